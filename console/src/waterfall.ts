/**
 * What a bar of the timeline is made of: attempts that came to nothing, pauses between them, and what gave the outcome. And the lines
 * of a turn: its effects, with the places between them where another worker went on with it.
 */
import type { Span } from "./scale.ts";
import type { Effect, Resume } from "./shapes.ts";

/** A stretch of an effect. */
export interface Piece {
  from: number;
  until: number;
  /** `vain`: an attempt that came to nothing. `pause`: nobody works on it. `last`: what gave the outcome, or runs. */
  is: "vain" | "pause" | "last";
}

/** The stretches of an effect, in order. An attempt ends where it failed, or where the next one began. */
export function pieces(effect: Effect, now: number): Piece[] {
  const end = Math.max(effect.until ?? now, effect.from);
  const found: Piece[] = [];
  let at = effect.from;
  // An attempt that failed within a millisecond is there too; a pause of none is not.
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

/** How an effect counts on the line of time of its turn. */
export function spans(effect: Effect, now: number): Span[] {
  const rests = effect.state === "waits" || effect.kind === "sleep" || effect.kind === "await_event";
  return pieces(effect, now).map(({ from, until, is }) => ({ from, until, waits: is === "pause" || (is === "last" && rests) }));
}

/** How many attempts of an effect came to nothing. */
export function retries(effect: Effect): number {
  return (effect.incidents ?? []).filter(({ what }) => what === "failed" || what === "again").length;
}

/** A line of a turn. */
export type Row = { effect: Effect } | { resume: Resume };

/** The lines of a turn: a resume stands before the first effect whose outcome came after it. */
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
