/**
 * Durable events of all sessions. All subscribers in a tab share one stream because browsers limit connections per server. Each
 * subscriber filters by event type.
 */
import { listen } from "./api.ts";
import type { Frame } from "./shapes.ts";
import type { Link } from "./stream.ts";

export interface Reader {
  /** Comma-separated event types. A trailing `*` matches any suffix. */
  types: string;
  event(frame: Frame): void;
  link(link: Link): void;
  /** Called when the stream connects: events before that may have been missed. */
  again(): void;
}

const TYPES = "session.*,turn.*,wait.*,effect.*";
const readers = new Set<Reader>();
let link: Link = "connecting";
let stop: (() => void) | undefined;

/** Subscribes to new events. Returns a function that unsubscribes. */
export function hear(reader: Reader): () => void {
  readers.add(reader);
  reader.link(link);
  stop ??= listen("/v1/events", { type: TYPES }, undefined, {
    event: (frame) => each((reader) => wants(reader.types, frame.type) && reader.event(frame)),
    link: (now) => {
      // If the server refuses the connection because it requires a key, the next subscriber reconnects.
      if (now === "refused") stop = undefined;
      link = now;
      each((reader) => reader.link(now));
    },
    again: () => each((reader) => reader.again()),
  });
  return () => void readers.delete(reader);
}

function each(tell: (reader: Reader) => void): void {
  for (const reader of [...readers]) tell(reader);
}

/** Whether a filter matches an event type. */
export function wants(types: string, name: string): boolean {
  return types.split(",").some((type) => (type.endsWith("*") ? name.startsWith(type.slice(0, -1)) : name === type));
}
