/**
 * What becomes durable in any session, heard over one stream for the whole tab: a browser opens few connections to one server.
 * Readers say which types of events they want.
 */
import { listen } from "./api.ts";
import type { Frame } from "./shapes.ts";
import type { Link } from "./stream.ts";

export interface Reader {
  /** Names of types with commas between them; `*` at an end stands for anything. */
  types: string;
  event(frame: Frame): void;
  link(link: Link): void;
  /** The stream is open again after a break. */
  again(): void;
}

const TYPES = "session.*,turn.*,wait.*,effect.*";
const readers = new Set<Reader>();
let link: Link = "connecting";
let stop: (() => void) | undefined;

/** Hears from now on, until the function that comes back is called. */
export function hear(reader: Reader): () => void {
  readers.add(reader);
  reader.link(link);
  stop ??= listen("/v1/events", { type: TYPES }, undefined, {
    event: (frame) => each((reader) => wants(reader.types, frame.type) && reader.event(frame)),
    link: (now) => {
      // A server that refuses, because it wants a key, is asked again by whoever listens next.
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

/** Whether an event is of one of some types. */
export function wants(types: string, name: string): boolean {
  return types.split(",").some((type) => (type.endsWith("*") ? name.startsWith(type.slice(0, -1)) : name === type));
}
