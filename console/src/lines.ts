/** Line-based text diff. */

export interface Line {
  is: "same" | "gone" | "new";
  text: string;
}

/** Above this number of lines, the diff replaces the whole text. */
const MOST = 2_000;

/** Returns the diff of two texts, based on their longest common subsequence of lines. */
export function differ(before: string, after: string): Line[] {
  const [a, b] = [before.split("\n"), after.split("\n")];
  if (a.length > MOST || b.length > MOST) return [...all(a, "gone"), ...all(b, "new")];
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const [row, below] = [lengths[i], lengths[i + 1]];
      if (row && below) row[j] = a[i] === b[j] ? (below[j + 1] ?? 0) + 1 : Math.max(below[j] ?? 0, row[j + 1] ?? 0);
    }
  }
  const found: Line[] = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      found.push({ is: "same", text: a[i] ?? "" });
      [i, j] = [i + 1, j + 1];
    } else if ((lengths[i + 1]?.[j] ?? 0) >= (lengths[i]?.[j + 1] ?? 0)) found.push({ is: "gone", text: a[i++] ?? "" });
    else found.push({ is: "new", text: b[j++] ?? "" });
  }
  return [...found, ...all(a.slice(i), "gone"), ...all(b.slice(j), "new")];
}

/** Arranges a diff in two columns: equal lines face each other, and removed lines face the lines that replace them. */
export function paired(lines: readonly Line[]): [Line | undefined, Line | undefined][] {
  const rows: [Line | undefined, Line | undefined][] = [];
  let [gone, fresh]: [Line[], Line[]] = [[], []];
  const close = () => {
    for (let at = 0; at < Math.max(gone.length, fresh.length); at++) rows.push([gone[at], fresh[at]]);
    [gone, fresh] = [[], []];
  };
  for (const line of lines) {
    if (line.is === "gone") gone.push(line);
    else if (line.is === "new") fresh.push(line);
    else {
      close();
      rows.push([line, line]);
    }
  }
  close();
  return rows;
}

function all(lines: readonly string[], is: Line["is"]): Line[] {
  return lines.map((text) => ({ is, text }));
}
