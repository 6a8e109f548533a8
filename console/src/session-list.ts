/** Updates the list of sessions. Each session occurs once. Independent of the server and the pages. */
import type { Session } from "./shapes.ts";

/** Search and filters. */
export interface Wish {
  search: string;
  state: string;
  /** How the last turn ended. */
  last_end?: string;
}

/** Appends a page. Sessions that moved meanwhile are already in the list and are skipped. */
export function appended(old: readonly Session[], page: readonly Session[]): readonly Session[] {
  const known = new Set(old.map(({ id }) => id));
  return [...old, ...page.filter(({ id }) => !known.has(id))];
}

/** Returns the list after some of its sessions, and others, were read again. */
export function refreshed(old: readonly Session[], fresh: ReadonlyMap<string, Session | "gone" | undefined>, wish: Wish): readonly Session[] {
  const kept = old.flatMap((session) => {
    const now = fresh.get(session.id) ?? session;
    return now === "gone" || (wish.state && now.state !== wish.state) || (wish.last_end && now.last_end !== wish.last_end) ? [] : [now];
  });
  const known = new Set(old.map((session) => session.id));
  const added = [...fresh.values()].filter((session) => session !== undefined && session !== "gone" && !known.has(session.id) && fits(session, wish)) as Session[];
  return [...added.sort((a, b) => b.created - a.created), ...kept];
}

function fits({ state, title, key, last_end }: Session, wish: Wish): boolean {
  const words = wish.search.toLowerCase();
  return (!wish.state || state === wish.state) && (!wish.last_end || last_end === wish.last_end) && (!words || title.toLowerCase().includes(words) || (key ?? "").toLowerCase().includes(words));
}
