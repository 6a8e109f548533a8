/**
 * The bars and rows of the timeline. A bar has segments for failed attempts, pauses and the final attempt. The rows of a turn are
 * its effects, and marks where another worker resumed the turn.
 */
import type { Span } from "./scale.ts";
import type { Effect, Resume } from "./shapes.ts";

/** A segment of an effect. */
export interface Piece {
  from: number;
  until: number;
  /** `vain`: a failed attempt. `pause`: no attempt is running. `last`: the attempt that gave the outcome or still runs. */
  is: "vain" | "pause" | "last";
}

/** Returns the segments of an effect in order. An attempt ends when it fails or when the next one begins. */
export function pieces(effect: Effect, now: number): Piece[] {
  const end = Math.max(effect.until ?? now, effect.from);
  const found: Piece[] = [];
  let at = effect.from;
  // Attempts shorter than a millisecond are kept; empty pauses are not.
  const add = (until: number, is: Piece["is"]) => {
    const piece = { from: at, until: Math.max(at, Math.min(until, end)), is };
    if (is !== "pause" || piece.until > at) found.push(piece);
    at = piece.until;
  };
  for (const { what, from, at: ended } of effect.incidents ?? []) {
    if (what === "failed") add(from ?? at, "pause");
    if (what === "failed" || what === "again") add(ended, "vain");
  }
  add(end, "last");
  return found;
}

/** Returns the spans of an effect on the time axis of its turn. */
export function spans(effect: Effect, now: number): Span[] {
  const rests = effect.state === "waits" || effect.kind === "sleep" || effect.kind === "await_event";
  return pieces(effect, now).map(({ from, until, is }) => ({ from, until, waits: is === "pause" || (is === "last" && rests) }));
}

/** Returns the number of failed attempts. */
export function retries(effect: Effect): number {
  return (effect.incidents ?? []).filter(({ what }) => what === "failed" || what === "again").length;
}

/** A row of a turn. */
export type Row = { effect: Effect } | { resume: Resume };

/** Returns the rows of a turn. A resume stands before the first effect that completed after it. */
export function rows(effects: readonly Effect[], resumes: readonly Resume[]): Row[] {
  const left = [...resumes];
  const found: Row[] = [];
  for (const effect of effects) {
    const answered = effect.answered ?? Infinity;
    while (left[0] && left[0].seq < answered) found.push({ resume: left.shift() as Resume });
    found.push({ effect });
  }
  return [...found, ...left.map((resume) => ({ resume }))];
}
