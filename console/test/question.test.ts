/** Tests of questions and how answers are parsed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { answer, asked } from "../src/question.ts";
import type { Blocked } from "../src/shapes.ts";

const wait = (tool: string, passed: unknown): Blocked => ({ key: "k", kind: "completion", since: 0, moved_by: "completion", tool, arguments: passed });

test("a question is what ask_user was passed", () => {
  assert.deepEqual(asked(wait("ask_user", { question: "Red or blue?", options: ["red", "blue"] })), { question: "Red or blue?", options: ["red", "blue"] });
  assert.deepEqual(asked(wait("ask_user", { question: "Which?" })), { question: "Which?", options: [] });
  assert.equal(asked(wait("post", { question: "Which?" })), undefined);
  assert.equal(asked(wait("ask_user", { question: 5 })), undefined);
  assert.equal(asked(wait("ask_user", undefined)), undefined);
});

// The same cases as in `crates/tools/src/ask.rs`.
test("an option is chosen by its number, and everything else is text", () => {
  const said = ["1", " 2 ", "3", "0", "green", "red", "", "true"].map((typed) => answer({ question: "?", options: ["red", "7"] }, typed));
  assert.deepEqual(said, ["red", "7", "3", "0", "green", "red", "", "true"]);
});
