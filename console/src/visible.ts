/**
 * Makes invisible characters visible: control characters, terminal escape sequences, bidirectional marks, zero-width spaces, blank
 * letters. An approver must see exactly what an argument contains.
 */

/** A piece of text: plain text, or an invisible character with its name. */
export type Piece = string | { code: string; name: string };

// Line feed and tab are excluded, because text shows them.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff]|[\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/u;

const NAMES: Record<number, string> = {
  0x00: "NUL", 0x07: "BEL", 0x08: "BS", 0x0d: "CR", 0x1b: "ESC", 0x7f: "DEL", 0xad: "SHY", 0x61c: "ALM",
  0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ", 0x200e: "LRM", 0x200f: "RLM", 0x2028: "LS", 0x2029: "PS",
  0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x2060: "WJ",
  0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM",
};

/** Splits a text into pieces. A zero-width joiner between emoji stays as it is. */
export function pieces(text: string): Piece[] {
  if (!HIDDEN.test(text)) return text === "" ? [] : [text];
  const found: Piece[] = [];
  let plain = "";
  const letters = [...text];
  for (const [index, letter] of letters.entries()) {
    const joins = letter === "\u200d" && isEmoji(letters[index - 1]) && isEmoji(letters[index + 1]);
    if (joins || !HIDDEN.test(letter)) {
      plain += letter;
      continue;
    }
    if (plain) found.push(plain);
    plain = "";
    found.push(named(letter.codePointAt(0) ?? 0));
  }
  if (plain) found.push(plain);
  return found;
}

function isEmoji(letter: string | undefined): boolean {
  return letter !== undefined && /\p{Extended_Pictographic}|\ufe0f|\p{Emoji_Modifier}/u.test(letter);
}

function named(point: number): Piece {
  const code = `U+${point.toString(16).toUpperCase().padStart(4, "0")}`;
  return { code, name: NAMES[point] ?? code };
}

/** Returns equivalent JSON with invisible and bidirectional characters written as escapes. */
export function escaped(json: string): string {
  return pieces(json)
    .map((piece) => (typeof piece === "string" ? piece : escapes(parseInt(piece.code.slice(2), 16))))
    .join("");
}

function escapes(point: number): string {
  return String.fromCodePoint(point).replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Returns the text as one line without invisible characters. */
export function plain(text: string): string {
  return pieces(text)
    .map((piece) => (typeof piece === "string" ? piece : `⟨${piece.name}⟩`))
    .join("");
}
