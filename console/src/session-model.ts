/** The state of a session page. All data is read from the API. Events trigger a reload and carry partial replies (`drafts.ts`). */
import { againMs, get, listen, passes } from "./api.ts";
import { hear, open, type Drafts } from "./drafts.ts";
import type { Effect, Frame, Live, Message, Page, Session, Turn, Why } from "./shapes.ts";
import type { Link } from "./stream.ts";

/** Turns whose effects are loaded at first, and per request for earlier ones. */
const TURNS = 30;
/** Maximum number of turns whose effects are reloaded. Earlier turns have ended. */
const FOLLOWED = 200;
/** Minimum time between reconnects that fill a gap. */
const GAP_MS = 2_000;

/** The loaded data of a session. */
export interface Known {
  session: Session | undefined;
  messages: readonly Message[];
  /** Cursor to earlier messages, if there are any. */
  earlier: string | undefined;
  turns: readonly Turn[];
  effects: readonly Effect[];
  /** Number of turns before the first loaded turn. */
  turnsBefore: number;
  why: Why | undefined;
  drafts: Drafts;
  /** Progress notes of tools and the runtime, by turn and effect key. */
  notes: ReadonlyMap<string, string>;
  link: Link;
  error: Error | undefined;
}

export const NOTHING: Known = {
  session: undefined,
  messages: [],
  earlier: undefined,
  turns: [],
  effects: [],
  turnsBefore: 0,
  why: undefined,
  drafts: new Map(),
  notes: new Map(),
  link: "connecting",
  error: undefined,
};

/** Loads and follows one session until it is closed. */
export class SessionModel {
  known: Known = NOTHING;
  #changed: (known: Known) => void;
  #stop = () => {};
  #closed = false;
  /** Number of the last durable event received. */
  #heard = 0;
  #opened = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #busy = false;
  #dirty = false;
  /** Index of the first turn loaded initially. Earlier turns are loaded on demand. */
  #from: number | undefined;

  constructor(
    readonly id: string,
    readonly head: string,
    changed: (known: Known) => void,
  ) {
    this.#changed = changed;
    this.readAgain();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#stop();
  }

  /** Loads the page before the first loaded message. */
  async earlier(): Promise<void> {
    const { earlier } = this.known;
    if (!earlier) return;
    const page = await this.#messages(earlier);
    if (this.known.earlier === earlier) this.#set({ messages: [...page.items, ...this.known.messages], earlier: page.next });
  }

  /** Loads the turns before the first loaded turn. */
  async earlierTurns(): Promise<void> {
    const { turnsBefore } = this.known;
    if (turnsBefore === 0) return;
    const from = Math.max(0, turnsBefore - TURNS);
    const { turns, effects } = await this.#turns(from, turnsBefore - from);
    if (this.known.turnsBefore === turnsBefore) this.#set({ turns: [...turns, ...this.known.turns], effects: [...effects, ...this.known.effects], turnsBefore: from });
  }

  /** Returns the previous message, or `undefined` for the first. Loads earlier pages if necessary. */
  async before(message: Message): Promise<Message | undefined> {
    const place = () => this.known.messages.findIndex(({ session, seq }) => session === message.session && seq === message.seq);
    while (place() === 0 && this.known.earlier) await this.earlier();
    return this.known.messages[place() - 1];
  }

  #listen(): void {
    this.#stop();
    this.#opened = Date.now();
    this.#stop = listen(`/v1/sessions/${this.id}/events`, {}, this.#heard, {
      event: (frame) => this.#event(frame),
      link: (link) => this.#set({ link }),
      again: () => this.readAgain(),
    });
  }

  /** Reconnects to fill a gap: a new stream starts with the full text of partial replies. */
  #fillGap(): void {
    if (Date.now() - this.#opened > GAP_MS) this.#listen();
  }

  #event(frame: Frame): void {
    this.#heard = frame.seq ?? this.#heard;
    if (frame.type === "missed") this.#fillGap();
    if (frame.type !== "live") {
      this.readAgain();
      return;
    }
    const live = frame.data as Live;
    const turn = frame.turn ?? "";
    const drafts = hear(this.known.drafts, turn, live);
    if (drafts !== this.known.drafts) this.#set({ drafts });
    if (live.type === "text" && drafts.get(`${turn} ${live.key}`)?.gap) this.#fillGap();
    const note = noteOf(live);
    if (note) this.#set({ notes: pending(new Map(this.known.notes).set(`${turn} ${note.key}`, note.text), this.known.effects) });
  }

  /** Reloads the session. Requests during a reload cause one more reload. */
  readAgain(): void {
    this.#dirty = true;
    if (!this.#busy) void this.#read();
  }

  async #read(): Promise<void> {
    this.#busy = true;
    do {
      this.#dirty = false;
      clearTimeout(this.#timer);
      try {
        await this.#once();
      } catch (error) {
        this.#refused(error as Error);
      }
    } while (this.#dirty && !this.#closed);
    this.#busy = false;
  }

  /** Retries after a transient error, because no further event may arrive after the end of a turn. */
  #refused(error: Error): void {
    this.#set({ error });
    if (passes(error) && !this.#closed) this.#timer = setTimeout(() => this.readAgain(), againMs(error));
  }

  async #once(): Promise<void> {
    const session = await get<Session>(`/v1/sessions/${this.id}`);
    this.#from ??= Math.max(0, session.turns - TURNS);
    const from = Math.max(this.#from, session.turns - FOLLOWED);
    const page = await this.#messages();
    // Must run after the messages are read: see `open` in `drafts.ts`.
    const [read, why] = await Promise.all([this.#turns(from, FOLLOWED), get<Why>(`/v1/sessions/${this.id}/why`)]);
    const messages = joined(this.known.messages, page.items);
    const earlier = messages === page.items ? page.next : this.known.earlier;
    const before = new Set(this.known.turns.filter((turn) => turn.index < from).map((turn) => turn.id));
    const turns = [...this.known.turns.filter((turn) => before.has(turn.id)), ...read.turns];
    const effects = [...this.known.effects.filter((effect) => before.has(effect.turn)), ...read.effects];
    const drafts = open(this.known.drafts, messages, effects);
    const notes = pending(this.known.notes, effects);
    this.#set({ session, messages, earlier, turns, effects, turnsBefore: turns[0]?.index ?? 0, why, drafts, notes, error: undefined });
    if (this.#opened > 0 || this.#closed) return;
    this.#heard = session.last;
    this.#listen();
  }

  async #turns(from: number, limit: number): Promise<{ turns: Turn[]; effects: Effect[] }> {
    const [turns, effects] = await Promise.all([
      get<Page<Turn>>(`/v1/sessions/${this.id}/turns`, { from, limit }),
      get<Page<Effect>>(`/v1/sessions/${this.id}/effects`, { from, limit }),
    ]);
    return { turns: turns.items, effects: effects.items };
  }

  #messages(cursor?: string): Promise<Page<Message>> {
    return get(`/v1/sessions/${this.id}/messages`, { head: this.head, cursor });
  }

  #set(change: Partial<Known>): void {
    if (this.#closed) return;
    this.known = { ...this.known, ...change };
    this.#changed(this.known);
  }
}

/** Merges the newest page with the messages loaded before it. */
export function joined(shown: readonly Message[], page: Message[]): readonly Message[] {
  const first = page[0];
  const at = first ? shown.findIndex((message) => message.seq === first.seq && message.session === first.session) : -1;
  return at > 0 ? [...shown.slice(0, at), ...page] : page;
}

/** Returns the notes of effects without an outcome. */
function pending(notes: Known["notes"], effects: readonly Effect[]): Known["notes"] {
  const over = new Set(effects.filter((effect) => effect.answered !== undefined).map((effect) => `${effect.turn} ${effect.key}`));
  return new Map([...notes].filter(([id]) => !over.has(id)));
}

function noteOf(live: Live): { key: string; text: string } | undefined {
  switch (live.type) {
    case "running":
      return { key: live.key, text: live.attempt > 1 ? `runs, attempt ${live.attempt}` : "runs" };
    case "progress":
      return { key: live.key, text: live.note };
    case "replayed":
      return { key: live.key, text: "from the journal" };
    case "interrupted":
      return { key: live.key, text: "was interrupted" };
    default:
      return undefined;
  }
}
