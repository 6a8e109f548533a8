/** Numbers and times as people read them. */

/** How long something took. */
export function duration(ms: number): string {
  if (ms < 999.5) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9_950) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 60_000) return `${Math.floor(ms / 1_000)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1_000)} s`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
  return `${Math.floor(ms / 86_400_000)} d ${Math.floor((ms % 86_400_000) / 3_600_000)} h`;
}

/** How long ago something was, in few letters. */
export function ago(at: number, now: number): string {
  const s = Math.max(0, Math.round((now - at) / 1_000));
  if (s < 5) return "now";
  if (s < 60) return `${s} s`;
  if (s < 3_600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3_600)} h`;
  if (s < 86_400 * 30) return `${Math.floor(s / 86_400)} d`;
  return day(at);
}

/** When something was, as part of a sentence: just now, some time ago, or on a day. */
export function past(at: number, now: number): string {
  const said = ago(at, now);
  if (said === "now") return "just now";
  return said === day(at) ? `on ${said}` : `${said} ago`;
}

function day(at: number): string {
  return new Date(at).toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
}

/** A point in time, to the second. */
export function moment(at: number): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** The time of a day. */
export function clock(at: number): string {
  return new Date(at).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
}

/** Dollars, exact as they came, but not longer than needed. */
export function money(dollars: string | undefined): string {
  if (dollars === undefined) return "";
  const value = Number(dollars);
  if (value === 0) return "$0";
  if (value < 0.01) return `$${value.toPrecision(2)}`;
  return `$${value.toFixed(value < 1 ? 3 : 2)}`;
}

/** A count in few letters. */
export function count(of: number): string {
  if (of < 10_000) return String(of);
  if (of < 1_000_000) return `${(of / 1_000).toFixed(of < 100_000 ? 1 : 0)}k`;
  return `${(of / 1_000_000).toFixed(1)}M`;
}

/** Bytes in few letters. */
export function size(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(1)} KB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** The last letters of an id, enough to tell it from its neighbours. */
export function short(id: string): string {
  return id.slice(-6);
}
