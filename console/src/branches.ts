/** Lays out the turns of a session as a tree: one row per turn, one lane per branch. */
import type { Head, Turn } from "./shapes.ts";

export interface Branch {
  turn: Turn;
  lane: number;
  /** The row of the parent turn. */
  parent: number | undefined;
  parentLane: number;
  heads: string[];
}

/** Row height and lane width in pixels. */
export const [ROW, LANE] = [40, 16];

/** Returns the SVG path from a parent turn to its child. A branch leaves sideways and runs down in its own lane. */
export function wire({ lane, parent, parentLane }: Branch, at: number): string {
  if (parent === undefined) return "";
  const [x, y] = [lane * LANE + 8, at * ROW + ROW / 2];
  const [px, py] = [parentLane * LANE + 8, parent * ROW + ROW / 2];
  return x === px ? `M${px} ${py}V${y}` : `M${px} ${py}H${x - 8}Q${x} ${py} ${x} ${py + 14}V${y}`;
}

/** Returns the rows in the order of the turns. The first child of a turn stays in its lane; later children open new lanes. */
export function branches(turns: readonly Turn[], heads: readonly Head[]): Branch[] {
  const lines: Branch[] = [];
  const followed = new Set<number>();
  let lanes = 0;
  for (const turn of turns.filter((turn) => turn.end?.how !== "joined")) {
    const { parent } = turn;
    const before = lines.findLastIndex(({ turn }) => parent !== undefined && parent.session === turn.session && turn.first <= parent.seq && parent.seq <= turn.last);
    const straight = before >= 0 && !followed.has(before);
    const parentLane = lines[before]?.lane ?? 0;
    const lane = straight ? parentLane : lanes++;
    if (before >= 0) followed.add(before);
    lines.push({ turn, lane, parent: before < 0 ? undefined : before, parentLane, heads: [] });
  }
  for (const { name, at } of heads) {
    const line = lines.findLast(({ turn }) => at !== undefined && at.session === turn.session && turn.first <= at.seq && at.seq <= turn.last);
    line?.heads.push(name);
  }
  return lines;
}
