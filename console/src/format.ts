/** Formats numbers and times for display. */

/** Formats a duration. */
export function duration(ms: number): string {
  if (ms < 999.5) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9_950) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 60_000) return `${Math.floor(ms / 1_000)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1_000)} s`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
  return `${Math.floor(ms / 86_400_000)} d ${Math.floor((ms % 86_400_000) / 3_600_000)} h`;
}

/** Formats the time since `at`, abbreviated. */
export function ago(at: number, now: number): string {
  const s = Math.max(0, Math.round((now - at) / 1_000));
  if (s < 5) return "now";
  if (s < 60) return `${s} s`;
  if (s < 3_600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3_600)} h`;
  if (s < 86_400 * 30) return `${Math.floor(s / 86_400)} d`;
  return day(at);
}

/** Formats a past time for use in a sentence: just now, a while ago, or on a date. */
export function past(at: number, now: number): string {
  const said = ago(at, now);
  if (said === "now") return "just now";
  return said === day(at) ? `on ${said}` : `${said} ago`;
}

function day(at: number): string {
  return new Date(at).toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
}

/** Formats a date and time, to the second. */
export function moment(at: number): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** Formats a time of day. */
export function clock(at: number): string {
  return new Date(at).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
}

/** Formats a dollar amount without rounding and without trailing zeros. */
export function money(dollars: string | undefined): string {
  if (dollars === undefined) return "";
  const value = Number(dollars);
  if (value === 0) return "$0";
  if (value < 0.01) return `$${value.toPrecision(2)}`;
  return `$${value.toFixed(value < 1 ? 3 : 2)}`;
}

/** Formats a count, abbreviated. */
export function count(of: number): string {
  if (of < 10_000) return String(of);
  if (of < 1_000_000) return `${(of / 1_000).toFixed(of < 100_000 ? 1 : 0)}k`;
  return `${(of / 1_000_000).toFixed(1)}M`;
}

/** Formats a size in bytes, abbreviated. */
export function size(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(1)} KB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** Returns the last characters of an id, enough to distinguish it in a list. */
export function short(id: string): string {
  return id.slice(-6);
}
