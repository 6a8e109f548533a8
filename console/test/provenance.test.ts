/** Tests of the descriptions of provenance. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "../src/exact.ts";
import { argumentsOf, sinkRows } from "../src/provenance.ts";

const rows = (provenance: [string, string][], passed: unknown) =>
  sinkRows(provenance.map(([path, origin]) => ({ path, origin })), passed).map(({ path, value, from, trusted }) => [path, value, from, trusted]);

test("each sink argument has its value and its origin", () => {
  assert.deepEqual(rows([["/to", "user"]], { to: "dana@corp.example", subject: "hi" }), [["/to", '"dana@corp.example"', "typed by the user", true]]);
  assert.deepEqual(rows([["/from", "agent"], ["/to/1", "tool:contacts"]], { from: "office@corp.example", to: ["a", "b"] }), [
    ["/from", '"office@corp.example"', "in the system prompt of the agent", true],
    ["/to/1", '"b"', "returned by the trusted tool contacts", true],
  ]);
});

test("what trusted text does not clear comes first", () => {
  const passed = { to: "dana@corp.example", subject: "Win", cc: "eve@evil.example" };
  assert.deepEqual(rows([["/to", "user"], ["/subject", "unknown"], ["/cc", "unknown"]], passed), [
    ["/subject", '"Win"', "not found in trusted text", false],
    ["/cc", '"eve@evil.example"', "not found in trusted text", false],
    ["/to", '"dana@corp.example"', "typed by the user", true],
  ]);
});

test("a call that is itself the sink has no value, and an unknown origin is not trusted", () => {
  assert.deepEqual(rows([["", "call"]], { to: "ann" }), [["", undefined, "matters whatever its arguments are", false]]);
  assert.deepEqual(rows([["/to", "memory:notes"]], { to: "ann" }), [["/to", '"ann"', "memory:notes", false]]);
});

test("pointers are read as JSON pointers, and find only what was passed", () => {
  const value = (path: string, passed: unknown) => rows([[path, "unknown"]], passed)[0]?.[1];
  assert.equal(value("/a~1b/c~0d/", { "a/b": { "c~d": { "": null } } }), "null");
  assert.equal(value("/~01", { "~1": true }), "true");
  assert.equal(value("/to/constructor", { to: {} }), undefined);
  assert.equal(value("/to/length", { to: "ann" }), undefined);
  assert.equal(value("/to", undefined), undefined);
  assert.equal(value("/__proto__", JSON.parse('{"__proto__": 5}')), "5");
  if ("rawJSON" in JSON) assert.equal(value("/amount", parse('{"amount": 12345678901234567890}')), "12345678901234567890");
});

test("the arguments of a recorded call are in its request", () => {
  assert.deepEqual(argumentsOf({ tool: "mail", arguments: { to: "ann" } }), { to: "ann" });
  assert.deepEqual(argumentsOf({ call: { tool: "mail", arguments: { to: "ann" } } }), { to: "ann" });
  assert.equal(argumentsOf({ tool: "mail", failure: { code: "policy.denied" } }), undefined);
  assert.equal(argumentsOf(null), undefined);
});
