/**
 * Text that a model says right now, put together from live frames.
 *
 * A frame names its model call, its attempt and the bytes before it, so that pieces that come twice, late or with a gap are known
 * for what they are. Attempts count on over processes: text of a server that was killed is never mixed with that of the next.
 * A draft is never truth: the reply's record takes its place.
 */
import type { Effect, Live, Message } from "./shapes.ts";

/** What one attempt of one model call has said so far. */
export interface Draft {
  turn: string;
  key: string;
  attempt: number;
  text: string;
  /** Bytes of the text, missing ones before it among them. */
  bytes: number;
  /** Whether pieces are missing: they were said while nobody listened. */
  gap: boolean;
}

/** The drafts of a session, by the key of their model call within its turn. */
export type Drafts = ReadonlyMap<string, Draft>;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** The drafts after a frame was heard. */
export function hear(drafts: Drafts, turn: string, live: Live): Drafts {
  if (live.type === "retracted") return retract(drafts, turn, live.key, live.attempt);
  if (live.type !== "text") return drafts;
  const id = `${turn} ${live.key}`;
  const before = drafts.get(id);
  if (before && live.attempt < before.attempt) return drafts;
  const fresh = { turn, key: live.key, attempt: live.attempt, text: "", bytes: 0, gap: false };
  const draft = before?.attempt === live.attempt ? before : fresh;
  const after = append(draft, live.offset, live.text);
  return after === before ? drafts : new Map(drafts).set(id, after);
}

function append(draft: Draft, offset: number, text: string): Draft {
  const said = encoder.encode(text);
  const end = offset + said.length;
  if (offset === 0 && draft.gap) return { ...draft, text, bytes: end, gap: false };
  if (end <= draft.bytes) return draft;
  if (offset > draft.bytes) return { ...draft, text, bytes: end, gap: true };
  return { ...draft, text: draft.text + decoder.decode(said.subarray(draft.bytes - offset)), bytes: end };
}

/** What an attempt said is void. Later pieces of it, too. */
function retract(drafts: Drafts, turn: string, key: string, attempt: number): Drafts {
  const id = `${turn} ${key}`;
  const draft = drafts.get(id);
  if (draft && draft.attempt > attempt) return drafts;
  return new Map(drafts).set(id, { turn, key, attempt: attempt + 1, text: "", bytes: 0, gap: false });
}

/**
 * The drafts that no message has taken the place of. Both lists must have been read in this order, messages first: a reply that
 * is among the messages is then sure to be among the answered effects.
 */
export function open(drafts: Drafts, messages: readonly Message[], effects: readonly Effect[]): Drafts {
  const answered = new Map(effects.map((effect) => [`${effect.turn} ${effect.key}`, effect]));
  const said = new Set(messages.map((message) => `${message.turn} ${message.seq}`));
  const shown = new Set(messages.map((message) => message.turn));
  const left = [...drafts].filter(([id, draft]) => {
    const effect = answered.get(id);
    if (effect?.answered === undefined) return true;
    return effect.state === "done" && shown.has(draft.turn) && !said.has(`${draft.turn} ${effect.answered}`);
  });
  return left.length === drafts.size ? drafts : new Map(left);
}
