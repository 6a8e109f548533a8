/** A list that is told from its beginning, read from its end. Its entries are numbered upwards, with gaps. Knows no server. */
import type { Page } from "./shapes.ts";

interface Numbered {
  no: number;
}

/** Reads what comes behind a number, in order, as far as a page reaches. */
type Behind<T> = (no: number) => Promise<Page<T>>;

/** The entries before a number, or the last ones, the newest first: as many as asked for, or some more, or all. */
export async function backwards<T extends Numbered>(most: number, cursor: string | undefined, behind: Behind<T>): Promise<Page<T>> {
  let to = cursor === undefined ? await end(behind) : Number(cursor);
  const items: T[] = [];
  // Numbers may belong to others: where few entries are found, more numbers are looked at.
  for (let width = most; to > 1 && items.length < most; width *= 2) {
    const from = Math.max(1, to - width);
    items.push(...(await between(from, to, behind)).reverse());
    to = from;
  }
  return to > 1 ? { items, next: String(to) } : { items };
}

/** The number behind the last entry. Pages are skipped in growing steps, so it takes few of them however long the list is. */
async function end<T extends Numbered>(behind: Behind<T>): Promise<number> {
  // There is an entry behind `low` if the list has any, and none behind `high`.
  let [low, high, step] = [0, Infinity, 0];
  for (;;) {
    const page = await behind(low + step);
    const last = page.items.at(-1);
    if (last && page.next === undefined) return last.no + 1;
    if (!last && step === 0) return low + 1;
    if (last) [low, step] = [last.no, Math.max(page.items.length, step * 2)];
    else high = low + step;
    step = Math.min(step, Math.floor((high - low) / 2));
  }
}

/** The entries from a number on and before another. */
async function between<T extends Numbered>(from: number, to: number, behind: Behind<T>): Promise<T[]> {
  const found: T[] = [];
  for (let at: number | undefined = from - 1; at !== undefined; ) {
    const page: Page<T> = await behind(at);
    const last = page.items.at(-1)?.no ?? to;
    found.push(...page.items.filter(({ no }) => no < to));
    at = page.next !== undefined && last < to - 1 ? last : undefined;
  }
  return found;
}
