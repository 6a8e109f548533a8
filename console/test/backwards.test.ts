/** Tests of reverse pagination. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { backwards } from "../src/backwards.ts";

/** Serves a list in pages of fifty and counts the requests. */
function told(numbers: readonly number[]) {
  const behind = async (after: number) => {
    list.asked += 1;
    const rest = numbers.filter((no) => no > after).map((no) => ({ no }));
    return rest.length > 50 ? { items: rest.slice(0, 50), next: "cur_" } : { items: rest };
  };
  const list = { asked: 0, behind };
  return list;
}

/** Reads such a list back to its beginning. */
async function whole(numbers: readonly number[]): Promise<number[]> {
  const { behind } = told(numbers);
  let page = await backwards(20, undefined, behind);
  const found = [...page.items];
  while (page.next !== undefined) {
    page = await backwards(20, page.next, behind);
    found.push(...page.items);
  }
  return found.map(({ no }) => no);
}

const upTo = (last: number, every = 1) => Array.from({ length: Math.floor(last / every) }, (_, at) => (at + 1) * every);

test("the newest come first, and reading on reaches the oldest, each once", async () => {
  for (const numbers of [[], [1], [7], upTo(49), upTo(50), upTo(51), upTo(100), upTo(1_234), upTo(5_000, 7), [1, 2, 9_000]]) {
    assert.deepEqual(await whole(numbers), numbers.toReversed(), `${numbers.length} entries up to ${numbers.at(-1)}`);
  }
});

test("a page has as many as asked for, also where most numbers belong to others", async () => {
  const last = await backwards(20, undefined, told(upTo(1_234)).behind);
  assert.deepEqual(last.items.map(({ no }) => no), upTo(1_234).toReversed().slice(0, 20));
  const sparse = await backwards(20, undefined, told(upTo(50_000, 97)).behind);
  assert.ok(sparse.items.length >= 20);
});

test("the end of a long list is found with few questions", async () => {
  const list = told(upTo(100_000));
  const { items } = await backwards(20, undefined, list.behind);
  assert.equal(items[0]?.no, 100_000);
  assert.ok(list.asked < 40, `${list.asked} questions`);
});
