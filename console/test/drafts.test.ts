/** Tests of partial replies: duplicate and late frames, gaps, frames of dead workers. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { hear, open, type Drafts } from "../src/drafts.ts";
import type { Effect, Live, Message } from "../src/shapes.ts";

const KEY = "turn/0/model/0";
const said = (offset: number, text: string, attempt = 1): Live => ({ type: "text", key: KEY, attempt, offset, text });

function heard(...frames: Live[]): { text: string | undefined; gap: boolean | undefined; attempt: number | undefined } {
  const drafts = frames.reduce((drafts, live) => hear(drafts, "trn_1", live), new Map() as Drafts);
  const draft = drafts.get(`trn_1 ${KEY}`);
  return { text: draft?.text, gap: draft?.gap, attempt: draft?.attempt };
}

test("pieces are put together in order", () => {
  assert.deepEqual(heard(said(0, "Hel"), said(3, "lo")), { text: "Hello", gap: false, attempt: 1 });
});

test("a piece that comes twice is said once, whole or in part", () => {
  assert.equal(heard(said(0, "Hel"), said(0, "Hel"), said(3, "lo"), said(2, "lo")).text, "Hello");
  assert.equal(heard(said(0, "Hel"), said(0, "Hello")).text, "Hello");
});

test("offsets count bytes, and letters of several bytes stay whole", () => {
  assert.equal(heard(said(0, "é€"), said(5, "🦀"), said(9, "!")).text, "é€🦀!");
  assert.equal(heard(said(0, "é€"), said(2, "€🦀")).text, "é€🦀");
});

test("who comes late knows that the beginning is missing, until it is said again", () => {
  assert.deepEqual(heard(said(6, "world")), { text: "world", gap: true, attempt: 1 });
  assert.deepEqual(heard(said(6, "world"), said(11, "!")), { text: "world!", gap: true, attempt: 1 });
  assert.deepEqual(heard(said(6, "world"), said(0, "Hello world!")), { text: "Hello world!", gap: false, attempt: 1 });
});

test("a later attempt takes the place of an earlier one, and never the other way round", () => {
  assert.deepEqual(heard(said(0, "old"), said(0, "ne", 4), said(3, "er"), said(2, "w", 4)), { text: "new", gap: false, attempt: 4 });
});

test("a new server that says the same words under its own attempt doubles nothing", () => {
  assert.equal(heard(said(0, "Hello "), said(6, "wor"), said(0, "Hello ", 9), said(6, "world", 9)).text, "Hello world");
});

test("text that was retracted is gone, and late pieces of it are not heard", () => {
  const frames: Live[] = [said(0, "bad"), { type: "retracted", key: KEY, attempt: 1 }, said(3, "der")];
  assert.equal(heard(...frames).text, "");
  assert.equal(heard(...frames, said(0, "good", 2)).text, "good");
});

const message = (seq: number): Message => ({ session: "ses_1", turn: "trn_1", seq, at: 0, role: "assistant", text: "", content: {} });
const effect = (change: Partial<Effect>): Effect => ({ turn: "trn_1", key: KEY, kind: "model_call", state: "done", seq: 3, from: 0, attempts: 1, request: {}, ...change });
const draft = hear(new Map(), "trn_1", said(0, "Hello"));

test("a draft stays until its record is among the messages, so that text is never gone and never there twice", () => {
  assert.equal(open(draft, [message(1)], []).size, 1, "nothing is durable yet");
  assert.equal(open(draft, [message(1)], [effect({ answered: 3 })]).size, 1, "the messages were read before the record was written");
  assert.equal(open(draft, [message(1), message(3)], [effect({ answered: 3 })]).size, 0);
});

test("a draft of a call that failed, or of another head, goes with its record", () => {
  assert.equal(open(draft, [message(1)], [effect({ answered: 3, state: "failed" })]).size, 0);
  assert.equal(open(draft, [], [effect({ answered: 3 })]).size, 0);
});
