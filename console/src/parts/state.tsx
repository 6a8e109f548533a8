/** State labels. Each has an icon and a word, so that colour is not the only signal. */
import type { Session, Waiting } from "../shapes.ts";

const WORDS: Record<string, string> = {
  idle: "idle", ready: "ready", running: "running", parked: "waits", held: "held",
  open: "runs", waits: "waits", done: "done", failed: "failed", refused: "refused", unknown: "unknown",
};

export function State({ of }: { of: string }) {
  return <span class={`state state-${of}`}><i aria-hidden="true" />{WORDS[of] ?? of}</span>;
}

const KINDS: Record<string, string> = {
  approval: "an approval", completion: "a completion", event: "an event", sleep: "time", sub_agent: "a sub-agent",
  connection: "a connection", client_tool: "the client", budget: "a budget", provider: "its model provider",
};

/** Describes a wait. */
export function waitName(wait: Waiting): string {
  return KINDS[wait.kind] ?? wait.kind;
}

/** Returns how the last turn of an idle session ended, or nothing if it was answered. */
export function lastEnd({ state, last_end }: Session): string {
  if (state !== "idle" || !last_end || last_end === "answered") return "";
  return `last turn ${last_end.replaceAll("_", " ")}`;
}

/** Describes the waits of a session in a few words. */
export function waitsFor(session: Session): string {
  if (session.state !== "parked") return "";
  if (session.waits.some((wait) => /\/stuck:[^/]*$/.test(wait.key))) return "an operator";
  const names = new Set(session.waits.map(waitName));
  return [...names].join(", ");
}
