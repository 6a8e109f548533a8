/** Tests of broken streams: no durable event is lost or repeated, and the stream reconnects. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Frame } from "../src/shapes.ts";
import { wants } from "../src/feed.ts";
import { Parser } from "../src/sse.ts";
import { follow, type Link, type Outside } from "../src/stream.ts";

const event = (seq: number) => `id: ${seq}\nevent: turn.started\ndata: {"session":"ses_1","seq":${seq},"type":"turn.started","data":{}}\n\n`;
const live = (text: string) => `event: live\ndata: {"session":"ses_1","type":"live","data":{"type":"text","text":"${text}"}}\n\n`;

/** Plays one script per connection: chunks of a body, a status, or a refused connection. */
async function played(scripts: (string[] | number | "refused")[], from: string | "now" = "0"): Promise<{ asked: (string | undefined)[]; seqs: (number | undefined)[]; links: Link[]; again: number }> {
  const stop = new AbortController();
  const [asked, seqs, links]: [(string | undefined)[], (number | undefined)[], Link[]] = [[], [], []];
  let again = 0;
  const outside: Outside = {
    open: async (_, after) => {
      asked.push(after);
      const script = scripts.shift();
      if (script === undefined) stop.abort();
      if (script === undefined || script === "refused") throw new Error("refused");
      if (typeof script === "number") return new Response("", { status: script });
      const pieces = script.map((piece) => new TextEncoder().encode(piece));
      return new Response(new ReadableStream({ pull: (to) => (pieces.length ? to.enqueue(pieces.shift()) : to.close()) }));
    },
    // A silence timeout never fires here, and pauses take no time.
    sleep: (ms) => (ms > 10_000 ? new Promise(() => {}) : Promise.resolve()),
    random: () => 0.5,
  };
  const told = { event: (frame: Frame) => void seqs.push(frame.seq), link: (link: Link) => void links.push(link), again: () => void again++ };
  await follow("/v1/events", from === "now" ? undefined : from, told, stop.signal, outside);
  return { asked, seqs, links, again };
}

test("a stream that breaks goes on behind the last durable event", async () => {
  const { asked, seqs, again } = await played([[event(1), event(2), live("a")], "refused", "refused", 503, [event(3)]]);
  assert.deepEqual(seqs, [1, 2, undefined, 3]);
  assert.deepEqual(asked, ["0", "2", "2", "2", "2", "3"]);
  assert.equal(again, 1, "whoever reads it is told that what is not durable may be missing");
});

test("a stream without a cursor says that it may have missed events", async () => {
  const { seqs, again } = await played([[event(1)], [event(2)]], "now");
  assert.deepEqual([seqs, again], [[1, 2], 2]);
});

test("an event that was cut in the middle is told once, whole", async () => {
  const whole = event(2);
  for (let at = 1; at < whole.length - 1; at++) {
    const { seqs } = await played([[event(1) + whole.slice(0, at)], [whole]]);
    assert.deepEqual(seqs, [1, 2], `cut at ${at}`);
  }
});

test("a sign of life moves the cursor over events that were not asked for", async () => {
  const { asked } = await played([[": alive\nid: 41\n\n"], []]);
  assert.deepEqual(asked, ["0", "41", "41"]);
});

test("a server that refuses for good is not asked again, one that is busy is", async () => {
  assert.deepEqual((await played([404])).asked, ["0"]);
  assert.deepEqual((await played([429, 503, []])).asked.length, 4);
});

test("events are the same in whatever pieces they come", () => {
  const text = `retry: 700\n\n${event(1)}: alive\n\n${live("é€🦀")}event: x\r\ndata: a\r\ndata: b\r\n\r\n`;
  const parsed = (pieces: string[]) => {
    const parser = new Parser();
    return [pieces.flatMap((piece) => parser.push(piece)), parser.retry, parser.cursor];
  };
  const whole = parsed([text]);
  assert.deepEqual(whole[1], 700);
  for (let at = 0; at <= text.length; at++) assert.deepEqual(parsed([text.slice(0, at), text.slice(at)]), whole);
  assert.deepEqual(parsed([...text]), whole);
});

test("readers of the one feed hear the types they want", () => {
  assert.ok(wants("turn.*,wait.resolved", "turn.parked") && wants("turn.*,wait.resolved", "wait.resolved"));
  assert.ok(!wants("turn.*,wait.resolved", "effect.asked") && !wants("turn.ended", "turn.ended_not"));
});
