/**
 * Maps times to a folded time axis. A turn may work for a second and then wait for two days. Idle stretches are folded to a narrow
 * strip, so that active stretches keep their proportions.
 */

export interface Span {
  from: number;
  until: number;
  /** Whether the span is a wait. */
  waits: boolean;
}

/** A stretch of time and the part of the axis, from 0 to 1, that it covers. */
interface Stretch {
  from: number;
  until: number;
  at: number;
  width: number;
  folded: boolean;
}

export interface Scale {
  place(time: number): number;
  /** Positions and durations of the folds. */
  folds: { at: number; width: number; ms: number }[];
}

/** Width of a fold relative to all active stretches. */
const FOLD = 0.06;
/** An idle stretch is folded if it is longer than all active stretches together times this factor. */
const LONG = 0.5;

export function scale(spans: readonly Span[]): Scale {
  const [begin, end] = [Math.min(...spans.map((span) => span.from)), Math.max(...spans.map((span) => span.until))];
  if (!Number.isFinite(begin) || end <= begin) return { place: () => 0, folds: [] };
  const work = union(spans.filter((span) => !span.waits));
  const worked = work.reduce((sum, { from, until }) => sum + until - from, 0);
  const stretches: Stretch[] = [];
  let at = begin;
  const add = (until: number, idle: boolean) => {
    const folded = idle && until - at > Math.max(worked * LONG, 1_000);
    if (until > at) stretches.push({ from: at, until, at: 0, width: folded ? 0 : until - at, folded });
    at = until;
  };
  for (const { from, until } of work) {
    add(from, true);
    add(until, false);
  }
  add(end, true);
  return laid(stretches);
}

function laid(stretches: Stretch[]): Scale {
  const folds = stretches.filter((stretch) => stretch.folded).length;
  const plain = stretches.reduce((sum, stretch) => sum + stretch.width, 0);
  const room = plain === 0 ? 0 : 1 - Math.min(0.5, folds * FOLD);
  let at = 0;
  for (const stretch of stretches) {
    stretch.width = stretch.folded ? (1 - room) / folds : (stretch.width / plain) * room;
    stretch.at = at;
    at += stretch.width;
  }
  return {
    place: (time) => {
      const stretch = stretches.find((stretch) => time <= stretch.until) ?? stretches.at(-1);
      if (!stretch) return 0;
      const part = Math.max(0, Math.min(1, (time - stretch.from) / (stretch.until - stretch.from)));
      return stretch.at + part * stretch.width;
    },
    folds: stretches.filter((stretch) => stretch.folded).map(({ at, width, from, until }) => ({ at, width, ms: until - from })),
  };
}

/** Merges touching spans, in order. */
function union(spans: readonly Span[]): { from: number; until: number }[] {
  const sorted = [...spans].sort((a, b) => a.from - b.from);
  const joined: { from: number; until: number }[] = [];
  for (const { from, until } of sorted) {
    const last = joined.at(-1);
    if (last && from <= last.until) last.until = Math.max(last.until, until);
    else joined.push({ from, until });
  }
  return joined;
}
