/**
 * Parses a subset of Markdown into a tree: headings, lists, code, emphasis, links. Unsupported syntax stays text. HTML and images
 * are not supported. `parts/prose.tsx` renders the tree.
 */

export type Inline =
  | { is: "text"; text: string }
  | { is: "code"; text: string }
  | { is: "strong" | "em"; of: Inline[] }
  | { is: "link"; href: string; of: Inline[] };

export type Block =
  | { is: "p"; of: Inline[] }
  | { is: "heading"; level: number; of: Inline[] }
  | { is: "code"; language: string; text: string }
  | { is: "list"; ordered: boolean; start: number; items: Inline[][] }
  | { is: "quote"; of: Inline[] }
  | { is: "table"; rows: Inline[][][] }
  | { is: "rule" };

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+.#-]*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^\s{0,6}(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;

/** Parses a text into blocks. An unclosed code fence extends to the end, as happens while text streams in. */
export function blocks(text: string): Block[] {
  const lines = text.split("\n");
  const found: Block[] = [];
  let paragraph: string[] = [];
  const close = () => {
    if (paragraph.length) found.push({ is: "p", of: inline(paragraph.join("\n")) });
    paragraph = [];
  };
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] ?? "";
    const [fence, heading, item] = [FENCE.exec(line), HEADING.exec(line), ITEM.exec(line)];
    if (fence) {
      close();
      const mark = fence[1] ?? "```";
      const end = lines.findIndex((later, index) => index > at && later.trim().startsWith(mark));
      const until = end < 0 ? lines.length : end;
      found.push({ is: "code", language: fence[2] ?? "", text: lines.slice(at + 1, until).join("\n") });
      at = until;
    } else if (heading) {
      close();
      found.push({ is: "heading", level: heading[1]?.length ?? 1, of: inline(heading[2] ?? "") });
    } else if (/^ {0,3}([-*_])( *\1){2,}\s*$/.test(line)) {
      close();
      found.push({ is: "rule" });
    } else if (item) {
      close();
      at = list(lines, at, found);
    } else if (/^\s{0,3}>/.test(line)) {
      close();
      const from = at;
      while (/^\s{0,3}>/.test(lines[at + 1] ?? "")) at++;
      const quoted = lines.slice(from, at + 1).map((quoted) => quoted.replace(/^\s{0,3}> ?/, ""));
      found.push({ is: "quote", of: inline(quoted.join("\n")) });
    } else if (/^\s*\|.*\|\s*$/.test(line) && /^\s*\|?[\s:|-]+\|?\s*$/.test(lines[at + 1] ?? "")) {
      close();
      at = table(lines, at, found);
    } else if (line.trim() === "") {
      close();
    } else {
      paragraph.push(line);
    }
  }
  close();
  return found;
}

function list(lines: string[], from: number, found: Block[]): number {
  const first = ITEM.exec(lines[from] ?? "");
  const ordered = first?.[2] !== undefined;
  const items: string[] = [];
  let at = from;
  for (; at < lines.length; at++) {
    const line = lines[at] ?? "";
    const item = ITEM.exec(line);
    if (item && (item[2] !== undefined) === ordered) items.push(item[3] ?? "");
    else if (/^\s+\S/.test(line) && items.length) items[items.length - 1] += `\n${line.trim()}`;
    else break;
  }
  found.push({ is: "list", ordered, start: Number(first?.[2] ?? 1), items: items.map(inline) });
  return at - 1;
}

function table(lines: string[], from: number, found: Block[]): number {
  const cells = (line: string) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim()));
  const rows = [cells(lines[from] ?? "")];
  let at = from + 2;
  for (; /^\s*\|/.test(lines[at] ?? ""); at++) rows.push(cells(lines[at] ?? ""));
  found.push({ is: "table", rows });
  return at - 1;
}

/** Maximum length of an inline element, which bounds the parsing time. Beyond it, the opening mark is text. */
const REACH = 4_000;

/** Parses a line into inline elements. */
export function inline(text: string): Inline[] {
  const found: Inline[] = [];
  let [plain, at] = [0, 0];
  while (at < text.length) {
    const mark = "`*_[".includes(text[at] ?? "") ? marked(text, at) : undefined;
    if (!mark) {
      at++;
      continue;
    }
    if (at > plain) found.push({ is: "text", text: text.slice(plain, at) });
    found.push(mark.piece);
    plain = at = mark.end;
  }
  if (plain < text.length) found.push({ is: "text", text: text.slice(plain) });
  return found;
}

/** Parses the inline element at a position and returns it with its end. */
function marked(text: string, at: number): { piece: Inline; end: number } | undefined {
  const near = text.slice(at, at + REACH);
  if (near[0] === "`") {
    const fence = /^`+/.exec(near)?.[0] ?? "`";
    const end = near.indexOf(fence, fence.length);
    return end > fence.length ? { piece: { is: "code", text: near.slice(fence.length, end) }, end: at + end + fence.length } : undefined;
  }
  if (near[0] === "[") {
    const link = /^\[([^[\]\n]{1,500})\]\((https?:\/\/[^\s()]{1,2000})\)/i.exec(near);
    // Links with other URL schemes stay text.
    return link ? { piece: { is: "link", href: link[2] ?? "", of: inline(link[1] ?? "") }, end: at + link[0].length } : undefined;
  }
  const sign = near.startsWith("**") ? "**" : (near[0] ?? "");
  // Underscores within words, as in `snake_case_names`, are not emphasis.
  if (sign === "_" && /\w/.test(text[at - 1] ?? "")) return undefined;
  const end = near.indexOf(sign, sign.length);
  const inside = near.slice(sign.length, end);
  if (end < 0 || inside === "" || /^\s|\s$/.test(inside) || (sign !== "**" && inside.includes("\n"))) return undefined;
  if (sign === "_" && /\w/.test(near[end + 1] ?? "")) return undefined;
  return { piece: { is: sign === "**" ? "strong" : "em", of: inline(inside) }, end: at + end + sign.length };
}
