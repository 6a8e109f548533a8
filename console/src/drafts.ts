/**
 * Partial replies: text that a model is streaming, assembled from live frames.
 *
 * Each frame names its model call, its attempt and its byte offset. Offsets detect duplicates, late frames and gaps. Attempt
 * numbers continue across processes, so text of a killed worker never mixes with text of its successor. A draft is provisional:
 * the recorded reply replaces it.
 */
import type { Effect, Live, Message } from "./shapes.ts";

/** The text that one attempt of a model call has streamed so far. */
export interface Draft {
  turn: string;
  key: string;
  attempt: number;
  text: string;
  /** Length of the text in bytes, including missing bytes. */
  bytes: number;
  /** Whether bytes are missing because the stream was not connected. */
  gap: boolean;
}

/** The drafts of a session. The key is the turn and the key of the model call. */
export type Drafts = ReadonlyMap<string, Draft>;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Returns the drafts after applying a live frame. */
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

/** Discards the text of an attempt and ignores its later frames. */
function retract(drafts: Drafts, turn: string, key: string, attempt: number): Drafts {
  const id = `${turn} ${key}`;
  const draft = drafts.get(id);
  if (draft && draft.attempt > attempt) return drafts;
  return new Map(drafts).set(id, { turn, key, attempt: attempt + 1, text: "", bytes: 0, gap: false });
}

/**
 * Returns the drafts that no message has replaced. Callers must read the messages before the effects: then every reply in
 * `messages` also has an answered effect.
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
