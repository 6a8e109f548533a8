/** Tests that the console shows every character and every digit, and no markup. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parse, pretty } from "../src/exact.ts";
import { blocks, inline } from "../src/markdown.ts";
import { escaped, pieces, plain } from "../src/visible.ts";

test("letters that hide or turn text are shown by name", () => {
  assert.equal(plain("a\u202Eb\u0000\u001B[31m\u200Bc\uFEFF"), "a⟨RLO⟩b⟨NUL⟩⟨ESC⟩[31m⟨ZWSP⟩c⟨BOM⟩");
  assert.equal(plain("\u{E0041}x"), "⟨U+E0041⟩x");
  assert.equal(plain("line\n\ttab"), "line\n\ttab");
});

test("every control, bidi and tag character is one of them", () => {
  const ranges = [[0, 8], [0xb, 0x1f], [0x7f, 0x9f], [0x202a, 0x202e], [0x2066, 0x2069], [0xe0020, 0xe007f]] as const;
  for (const [from, to] of ranges) {
    for (let point = from; point <= to; point++) assert.notEqual(typeof pieces(String.fromCodePoint(point))[0], "string", point.toString(16));
  }
});

test("JSON in a box has no letter that hides or turns others, and means the same", () => {
  const value = { "no\u202Ete": "a\u202Eb\u200B\u001B[31m\u{E0041}\u007F\n", family: "👩‍👧", ok: "Grüße \\u202e" };
  const json = escaped(pretty(value));
  assert.deepEqual(JSON.parse(json), value);
  assert.equal(pieces(json).length, 1, "nothing is left that would be shown by name");
  assert.match(json, /"no\\u202ete": "a\\u202eb\\u200b\\u001b\[31m\\udb40\\udc41\\u007f\\n"/);
  assert.match(json, /"👩‍👧"/);
});

test("plain text of any script and emoji stay as they are", () => {
  for (const text of ["Grüße", "שלום", "日本語", "👩‍👩‍👧 👍🏽 ❤️"]) assert.equal(plain(text), text);
});

test("numbers keep every digit", () => {
  const text = '{"amount":12345678901234567890,"small":5,"rate":0.12345678901234567890}';
  // Without `JSON.rawJSON`, small numbers must still parse.
  if (!("rawJSON" in JSON)) return assert.deepEqual(parse('{"small":5}'), { small: 5 });
  assert.equal(pretty(parse(text)).replace(/\s/g, ""), text);
});

test("what Markdown does not know stays text, and nothing is markup", () => {
  assert.deepEqual(blocks("<img src=x onerror=alert(1)>"), [{ is: "p", of: [{ is: "text", text: "<img src=x onerror=alert(1)>" }] }]);
  assert.deepEqual(inline("![x](https://evil.example/x.png)").map((piece) => piece.is), ["text", "link"]);
  assert.deepEqual(inline("[x](javascript:alert(1))"), [{ is: "text", text: "[x](javascript:alert(1))" }]);
  assert.deepEqual(inline("[x](data:text/html,hi)").map((piece) => piece.is), ["text"]);
});

test("a fence that is still open is code up to the end", () => {
  assert.deepEqual(blocks("see\n```rust\nfn main() {"), [
    { is: "p", of: [{ is: "text", text: "see" }] },
    { is: "code", language: "rust", text: "fn main() {" },
  ]);
});

test("lists, headings, quotes, tables and emphasis are understood", () => {
  assert.deepEqual(blocks("# A\n- b\n- *c*\n\n1. d\n\n> e\n\n---\n\n|f|g|\n|-|-|\n|h|i|").map((block) => block.is), ["heading", "list", "list", "quote", "rule", "table"]);
  assert.deepEqual(inline("**a** `b` _c_ snake_case_name"), [
    { is: "strong", of: [{ is: "text", text: "a" }] },
    { is: "text", text: " " },
    { is: "code", text: "b" },
    { is: "text", text: " " },
    { is: "em", of: [{ is: "text", text: "c" }] },
    { is: "text", text: " snake_case_name" },
  ]);
});

test("text of any shape is read in time that grows with it", () => {
  for (const shape of ["*", "_", "`", "[", "**a", "[a](", "> ", "|"]) {
    const began = performance.now();
    blocks(shape.repeat(20_000));
    assert.ok(performance.now() - began < 2_000, shape);
  }
});
