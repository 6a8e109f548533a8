/** Reverse pagination over an API that only pages forwards. Entries have ascending numbers with gaps. Independent of the server. */
import type { Page } from "./shapes.ts";

interface Numbered {
  no: number;
}

/** Reads one page of the entries after a number, in ascending order. */
type Behind<T> = (no: number) => Promise<Page<T>>;

/** Returns the entries before a cursor, or the last ones, newest first. Returns at least `most` entries unless the list is shorter. */
export async function backwards<T extends Numbered>(most: number, cursor: string | undefined, behind: Behind<T>): Promise<Page<T>> {
  let to = cursor === undefined ? await end(behind) : Number(cursor);
  const items: T[] = [];
  // Numbers have gaps. If a range contains too few entries, the next range is twice as wide.
  for (let width = most; to > 1 && items.length < most; width *= 2) {
    const from = Math.max(1, to - width);
    items.push(...(await between(from, to, behind)).reverse());
    to = from;
  }
  return to > 1 ? { items, next: String(to) } : { items };
}

/** Returns the number after the last entry. Steps grow exponentially, so long lists need few requests. */
async function end<T extends Numbered>(behind: Behind<T>): Promise<number> {
  // Invariant: the list has an entry after `low` (unless it is empty) and none after `high`.
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

/** Returns the entries with `from <= no < to`. */
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
