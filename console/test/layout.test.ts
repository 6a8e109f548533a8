/** Tests of the folded time axis, the turn tree and text diffs. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { branches, wire } from "../src/branches.ts";
import { duration, past } from "../src/format.ts";
import { differ, paired } from "../src/lines.ts";
import { quantile, samples } from "../src/prometheus.ts";
import { scale } from "../src/scale.ts";
import { joined } from "../src/session-model.ts";
import type { Message, Turn } from "../src/shapes.ts";

test("a line of time without rest is even", () => {
  const line = scale([{ from: 0, until: 50, waits: false }, { from: 50, until: 100, waits: false }]);
  assert.deepEqual([line.place(0), line.place(50), line.place(100), line.folds], [0, 0.5, 1, []]);
});

test("two days of waiting are folded, and what ran keeps its proportions", () => {
  const day = 86_400_000;
  const line = scale([{ from: 0, until: 1_000, waits: false }, { from: 1_000, until: 2 * day, waits: true }, { from: 2 * day, until: 2 * day + 1_000, waits: false }]);
  assert.equal(line.folds.length, 1);
  const [first, last] = [line.place(1_000) - line.place(0), line.place(2 * day + 1_000) - line.place(2 * day)];
  assert.ok(Math.abs(first - last) < 1e-9 && first > 0.4);
});

const turn = (index: number, span: [number, number], parent?: number): Turn => ({
  id: `trn_${index}`, session: "ses_1", index, state: "ended", first: span[0], last: span[1],
  ...(parent === undefined ? {} : { parent: { session: "ses_1", seq: parent } }),
});

test("a turn that follows another stays in its lane, a second one branches off", () => {
  const turns = [turn(0, [1, 3]), turn(1, [4, 6], 3), turn(2, [7, 9], 3), turn(3, [10, 12], 9)];
  const lines = branches(turns, [{ name: "main", at: { session: "ses_1", seq: 6 } }, { name: "b", at: { session: "ses_1", seq: 12 } }]);
  assert.deepEqual(lines.map(({ lane, parent, heads }) => [lane, parent, heads]), [[0, undefined, []], [0, 0, ["main"]], [1, 0, []], [1, 2, ["b"]]]);
});

test("a branch leaves beside the turn that it follows, and meets no other on its way", () => {
  const lines = branches([turn(0, [1, 7]), turn(1, [8, 12], 7), turn(2, [13, 17], 7)], []);
  assert.deepEqual(lines.map(wire), ["", "M8 20V60", "M8 20H16Q24 20 24 34V100"]);
});

test("the lines of two texts are the same, gone or new", () => {
  assert.deepEqual(differ("a\nb\nc", "a\nx\nc").map(({ is, text }) => `${is} ${text}`), ["same a", "gone b", "new x", "same c"]);
});

const said = (seq: number): Message => ({ session: "ses_1", turn: "t", seq, at: 0, role: "user", text: "", content: {} });

test("the newest page joins what was read before without a hole and without a repeat", () => {
  const seqs = (shown: number[], page: number[]) => joined(shown.map(said), page.map(said)).map(({ seq }) => seq);
  assert.deepEqual(seqs([], [1, 2]), [1, 2]);
  assert.deepEqual(seqs([1, 2, 3], [3, 4]), [1, 2, 3, 4]);
  assert.deepEqual(seqs([1, 2], [7, 8]), [7, 8], "what lies between was never read");
});

test("a quantile is the bound of the bucket it falls into", () => {
  const text = 'x_bucket{le="0.1"} 5\nx_bucket{le="1"} 9\nx_bucket{le="+Inf"} 10\nx_count 10\n';
  assert.deepEqual([0.5, 0.9, 0.99].map((q) => quantile(samples(text), [], "x", q)), [0.1, 1, Infinity]);
});

test("times are said in their two largest units, and no minute has sixty seconds", () => {
  const said = [0, 999, 1_000, 9_949, 59_999, 60_000, 3_599_999, 86_399_999, 90_000_000].map(duration);
  assert.deepEqual(said, ["0 ms", "999 ms", "1.0 s", "9.9 s", "59 s", "1 min 0 s", "59 min 59 s", "23 h 59 min", "1 d 1 h"]);
});

test("a time in a sentence is just now, some time ago, or a day", () => {
  const now = Date.parse("2026-11-17T12:00:00Z");
  assert.deepEqual([0, 4, 90, 86_400].map((s) => past(now - s * 1_000, now)), ["just now", "just now", "1 min ago", "1 d ago"]);
  const long = past(now - 40 * 86_400_000, now);
  assert.match(long, /^on .*2026/);
  assert.doesNotMatch(long, /ago/);
});

test("what is gone stands beside what is new in its place, and what is the same beside itself", () => {
  const rows = paired(differ("a\nb\nc", "a\nx\ny\nc")).map(([left, right]) => [left?.text, right?.text]);
  assert.deepEqual(rows, [["a", "a"], ["b", "x"], [undefined, "y"], ["c", "c"]]);
});
