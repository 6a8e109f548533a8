/**
 * Follows a stream of events over `fetch`, which unlike `EventSource` can send a key, and goes on by itself.
 *
 * A connection that ends, for whatever reason, is opened again behind the last durable event that was read. What is not durable
 * has no number and is not repeated; who needs it puts it together from what it says of itself (`drafts.ts`).
 */
import { Parser } from "./sse.ts";
import type { Frame } from "./shapes.ts";

/** How a stream stands. */
export type Link = "connecting" | "open" | "waiting" | "refused";

/** What a stream takes from outside, so that tests need neither network nor time. */
export interface Outside {
  open(path: string, after: string | undefined, stop: AbortSignal): Promise<Response>;
  sleep(ms: number, stop: AbortSignal): Promise<void>;
  random(): number;
}

/** What a stream tells. */
export interface Told {
  event(frame: Frame): void;
  link(link: Link): void;
  /** The stream is open again after a break: what is not durable may have been missed. */
  again(): void;
}

const PAUSE_FIRST_MS = 250;
const PAUSE_MOST_MS = 2_000;
/** A stream that says nothing for so long is dead; the server gives a sign of life more often. */
const SILENCE_MS = 45_000;

/** Follows until stopped. Comes back when the server refuses for good: a status below 500 that is not "too many". */
export async function follow(path: string, from: string | undefined, told: Told, stop: AbortSignal, outside: Outside): Promise<void> {
  let [cursor, failures, opened] = [from, 0, false];
  while (!stop.aborted) {
    told.link("connecting");
    let wish: number | undefined;
    try {
      const response = await outside.open(path, cursor, stop);
      if (!response.ok || !response.body) {
        if (response.status < 500 && response.status !== 429) {
          told.link("refused");
          return;
        }
        throw new Error(`status ${response.status}`);
      }
      told.link("open");
      if (opened) told.again();
      opened = true;
      const parser = new Parser();
      for await (const text of pieces(response.body, stop, outside)) {
        failures = 0;
        for (const sent of parser.push(text)) {
          if (sent.name !== "error") told.event(JSON.parse(sent.data) as Frame);
          // Only after it was told: what throws here is asked for again.
          cursor = sent.id ?? cursor;
        }
        [cursor, wish] = [parser.cursor ?? cursor, parser.retry];
      }
    } catch {
      // Whatever ended it, the answer is to come back.
    }
    if (stop.aborted) return;
    told.link("waiting");
    const pause = Math.min(PAUSE_FIRST_MS * 2 ** failures, PAUSE_MOST_MS, wish ?? PAUSE_MOST_MS);
    failures = Math.min(failures + 1, 8);
    await outside.sleep(pause * (0.5 + outside.random() / 2), stop);
  }
}

/** The pieces of a body as text; ends when the body does, and fails when it is silent for too long. */
async function* pieces(body: ReadableStream<Uint8Array>, stop: AbortSignal, outside: Outside): AsyncGenerator<string> {
  const [reader, decoder] = [body.getReader(), new TextDecoder()];
  try {
    while (!stop.aborted) {
      const watch = new AbortController();
      const silence = outside.sleep(SILENCE_MS, watch.signal).then(() => Promise.reject(new Error("silent")));
      silence.catch(() => {});
      const { value, done } = await Promise.race([reader.read(), silence]).finally(() => watch.abort());
      if (done) return;
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
