/** Parses server-sent events from text in chunks of any size. `stream.ts` handles connections. */

/** A parsed event. */
export interface Sent {
  /** The event id, if present. */
  id: string | undefined;
  /** The event type. */
  name: string;
  data: string;
}

/** An incremental parser. */
export class Parser {
  #rest = "";
  #data: string[] = [];
  #name = "";
  #id: string | undefined;
  /** The last event id. An id may also arrive without an event, with a heartbeat. */
  cursor: string | undefined;
  /** Reconnect delay requested by the server, in milliseconds. */
  retry: number | undefined;

  /** Parses a chunk and returns the events that it completes. */
  push(piece: string): Sent[] {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    const whole: Sent[] = [];
    for (const line of lines) {
      const sent = this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (sent) whole.push(sent);
    }
    return whole;
  }

  #line(line: string): Sent | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return undefined;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    if (field === "event") this.#name = value;
    if (field === "id") this.#id = value;
    if (field === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
    return undefined;
  }

  #dispatch(): Sent | undefined {
    const sent = { id: this.#id, name: this.#name || "message", data: this.#data.join("\n") };
    const whole = this.#data.length > 0;
    this.cursor = this.#id ?? this.cursor;
    [this.#data, this.#name, this.#id] = [[], "", undefined];
    return whole ? sent : undefined;
  }
}
