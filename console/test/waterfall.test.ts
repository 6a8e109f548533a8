/** Tests of the bars and rows of the timeline. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { scale } from "../src/scale.ts";
import type { Effect, Incident, Resume } from "../src/shapes.ts";
import { pieces, retries, rows, spans } from "../src/waterfall.ts";

const effect = (seq: number, more: Partial<Effect> = {}): Effect => ({
  turn: "trn_1", key: `turn/0/model/${seq}`, kind: "model_call", state: "done", seq, answered: seq, from: 0, until: 100, attempts: 1, request: {}, ...more,
});
const failed = (attempt: number, from: number, at: number): Incident => ({ seq: 5, what: "failed", attempt, from, at });
const told = (of: Effect, now = 0) => pieces(of, now).map(({ is, from, until }) => `${is} ${from}-${until}`);

test("an effect at the first attempt is one piece", () => {
  assert.deepEqual(told(effect(1)), ["last 0-100"]);
  assert.deepEqual(told(effect(1, { state: "open", until: undefined as never }), 70), ["last 0-70"]);
});

test("attempts of a model call that failed are pieces of their own, with the pauses between them", () => {
  const tried = effect(1, { incidents: [failed(1, 0, 10), failed(2, 30, 60)] });
  assert.deepEqual(told(tried), ["vain 0-10", "pause 10-30", "vain 30-60", "last 60-100"]);
  assert.equal(retries(tried), 2);
});

test("a call that was begun again came to nothing until then", () => {
  const again = effect(1, { kind: "tool_call", incidents: [{ seq: 4, what: "again", attempt: 2, at: 40 }, { seq: 5, what: "paced", at: 50 }] });
  assert.deepEqual([told(again), retries(again)], [["vain 0-40", "last 40-100"], 1]);
});

test("a clock that went back makes no piece longer than its effect", () => {
  assert.deepEqual(told(effect(1, { incidents: [failed(1, 0, 150), failed(2, 90, 95)] })), ["vain 0-100", "vain 100-100", "last 100-100"]);
});

test("a long pause before the next attempt is folded", () => {
  const line = scale(spans(effect(1, { until: 600_200, incidents: [failed(1, 0, 100)] }), 0).concat({ from: 600_100, until: 600_200, waits: false }));
  assert.equal(line.folds.length, 0, "what comes after the last failure is work");
  const paused = effect(1, { until: 600_200, incidents: [failed(1, 0, 100), failed(2, 600_100, 600_150)] });
  assert.equal(scale(spans(paused, 0)).folds.length, 1);
});

test("a resume stands before the first effect whose outcome came after it", () => {
  const resume = (seq: number): Resume => ({ seq, at: 0, lease: 2, worker: "wrk_1", replayed: 1 });
  const order = (seqs: number[], resumes: number[]) => rows(seqs.map((seq) => effect(seq)), resumes.map(resume)).map((row) => ("effect" in row ? row.effect.seq : `resumed ${row.resume.seq}`));
  assert.deepEqual(order([3, 6], [5]), [3, "resumed 5", 6]);
  assert.deepEqual(order([3, 6], [1, 9]), ["resumed 1", 3, 6, "resumed 9"]);
  const open = rows([effect(3), effect(4, { answered: undefined as never })], [resume(5)]);
  assert.deepEqual(open.map((row) => "effect" in row), [true, false, true]);
});
