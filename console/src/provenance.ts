/** Describes the origins of the sink arguments of a call. */
import type { SinkArgument } from "./shapes.ts";

/** A sink argument for display. */
export interface SinkRow {
  /** JSON pointer to the argument; empty if the call itself is the sink. */
  path: string;
  /** The value as JSON. Absent if the call itself is the sink or the arguments are unknown. */
  value: string | undefined;
  /** The origin of the value. */
  from: string;
  /** Whether the origin is trusted. */
  trusted: boolean;
}

/** Returns the sink arguments of a call. Arguments from untrusted origins come first. */
export function sinkRows(provenance: readonly SinkArgument[], passed: unknown): SinkRow[] {
  const rows = provenance.map(({ path, origin }) => ({ path, value: path === "" ? undefined : valueAt(passed, path), ...inWords(origin) }));
  return rows.sort((one, other) => Number(one.trusted) - Number(other.trusted));
}

/** Describes an origin. Origins that this console does not know are untrusted. */
function inWords(origin: string): { from: string; trusted: boolean } {
  if (origin === "user") return { from: "typed by the user", trusted: true };
  if (origin === "agent") return { from: "in the system prompt of the agent", trusted: true };
  if (origin.startsWith("tool:")) return { from: `returned by the trusted tool ${origin.slice("tool:".length)}`, trusted: true };
  if (origin === "unknown") return { from: "not found in trusted text", trusted: false };
  if (origin === "call") return { from: "matters whatever its arguments are", trusted: false };
  return { from: origin, trusted: false };
}

/** Returns the value at a JSON pointer, as JSON. */
function valueAt(whole: unknown, path: string): string | undefined {
  let value = whole;
  for (const step of path.split("/").slice(1)) {
    const name = step.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return JSON.stringify(value);
}

/** Returns the arguments of a call from its effect's request. A refused call has none. */
export function argumentsOf(request: unknown): unknown {
  const { arguments: passed, call } = (request ?? {}) as { arguments?: unknown; call?: { arguments?: unknown } };
  return passed ?? call?.arguments;
}
