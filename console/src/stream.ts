/**
 * Subscribes to an event stream over `fetch`, which can send an API key, unlike `EventSource`. Reconnects automatically.
 *
 * After a disconnect, the stream resumes after the last durable event. Live events have no id and are not repeated; `drafts.ts`
 * detects their gaps.
 */
import { Parser } from "./sse.ts";
import type { Frame } from "./shapes.ts";

/** The state of a stream. */
export type Link = "connecting" | "open" | "waiting" | "refused";

/** Network, clock and randomness, which tests replace. */
export interface Outside {
  open(path: string, after: string | undefined, stop: AbortSignal): Promise<Response>;
  sleep(ms: number, stop: AbortSignal): Promise<void>;
  random(): number;
}

/** Callbacks of a stream. */
export interface Told {
  event(frame: Frame): void;
  link(link: Link): void;
  /** Called when events may have been missed: after a reconnect, and after the first connection of a stream that starts now. */
  again(): void;
}

const PAUSE_FIRST_MS = 250;
const PAUSE_MOST_MS = 2_000;
/** A stream without data for this long is dead. The server sends heartbeats more often. */
const SILENCE_MS = 45_000;

/** Follows a stream until it is stopped. Returns when the server refuses permanently: a status below 500 other than 429. */
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
      // Without a cursor, the stream starts when the server accepts it, which may be after the reader has loaded its data.
      if (opened || cursor === undefined) told.again();
      opened = true;
      const parser = new Parser();
      for await (const text of pieces(response.body, stop, outside)) {
        failures = 0;
        for (const sent of parser.push(text)) {
          if (sent.name !== "error") told.event(JSON.parse(sent.data) as Frame);
          // The cursor advances after the callback: if the callback throws, the event is requested again.
          cursor = sent.id ?? cursor;
        }
        [cursor, wish] = [parser.cursor ?? cursor, parser.retry];
      }
    } catch {
      // All errors lead to a reconnect.
    }
    if (stop.aborted) return;
    told.link("waiting");
    const pause = Math.min(PAUSE_FIRST_MS * 2 ** failures, PAUSE_MOST_MS, wish ?? PAUSE_MOST_MS);
    failures = Math.min(failures + 1, 8);
    await outside.sleep(pause * (0.5 + outside.random() / 2), stop);
  }
}

/** Yields the chunks of a body as text. Ends with the body, and throws if it is silent for too long. */
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
