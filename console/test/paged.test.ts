/** Tests of forward pagination. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { pages } from "../src/paged.ts";

/** Reads the numbers below `total` in pages of three, and records the requests. */
async function read(total: number, most: number) {
  const asked: (string | undefined)[] = [];
  const list = await pages(most, async (cursor) => {
    asked.push(cursor);
    const from = Number(cursor ?? 0);
    const items = Array.from({ length: Math.min(3, total - from) }, (_, at) => from + at);
    return from + 3 < total ? { items, next: String(from + 3) } : { items };
  });
  return { ...list, asked };
}

test("a list is read to its end", async () => {
  assert.deepEqual(await read(7, 100), { items: [0, 1, 2, 3, 4, 5, 6], asked: [undefined, "3", "6"] });
  assert.deepEqual(await read(0, 100), { items: [], asked: [undefined] });
});

test("a list that is longer than asked for says that there is more", async () => {
  assert.deepEqual(await read(7, 6), { items: [0, 1, 2, 3, 4, 5], next: "6", asked: [undefined, "3"] });
});
