/** Reads server-sent events out of text that comes in pieces of any size. Knows nothing of connections: `stream.ts`. */

/** One event as it came. */
export interface Sent {
  /** The number to go on from, if it has one. */
  id: string | undefined;
  /** What it is. */
  name: string;
  /** Its content. */
  data: string;
}

/** Gathers pieces into events. */
export class Parser {
  #rest = "";
  #data: string[] = [];
  #name = "";
  #id: string | undefined;
  /** The last number that was seen; one may also come alone, with a sign of life. */
  cursor: string | undefined;
  /** Milliseconds after which the server wants us back. */
  retry: number | undefined;

  /** Takes a piece and gives the events that are whole now. */
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
