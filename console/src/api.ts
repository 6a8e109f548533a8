/** Asks the server. Knows paths, the key and errors; what an answer means is for those who asked. */
import { parse } from "./exact.ts";
import { follow, type Told } from "./stream.ts";

/** An error as the server tells it (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    /** For how long the server wants to be left alone, where it says so. */
    readonly waitMs = 0,
  ) {
    super(detail);
  }
}

/** After so long a server that did not answer is asked again. */
const AGAIN_MS = 2_000;

/** However long a server wants to be left alone: whoever looks at a page sees how it is after so long. */
const AGAIN_MS_MOST = 30_000;

/** Whether it may help to ask again: the server is not there, not well, or has too much to do. */
export function passes(error: Error): boolean {
  return !(error instanceof Problem) || error.status >= 500 || error.status === 429;
}

/** After how long it may help to ask again. */
export function againMs(error: Error): number {
  const wait = error instanceof Problem ? error.waitMs : 0;
  return Math.min(Math.max(wait, AGAIN_MS), AGAIN_MS_MOST);
}

/** A key that nobody else makes. Also where the page came over plain HTTP from another machine, which has no `randomUUID`. */
export function unique(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const KEY = "outlast-key";

/** The key, kept for this tab and no longer. Servers on the same machine need none. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? undefined,
  set: (value: string) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

let locked: () => void = () => {};

/** Says what is to happen when the server wants a key. */
export function onLocked(then: () => void): void {
  locked = then;
}

function headers(more: Record<string, string>): Record<string, string> {
  const said = key.get();
  return said ? { ...more, authorization: `Bearer ${said}` } : more;
}

async function checked(response: Response): Promise<Response> {
  if (response.ok) return response;
  if (response.status === 401) locked();
  const problem = (await response.json().catch(() => ({}))) as { code?: string; detail?: string };
  // Anything else than seconds, such as a date from something in between, is taken as if it was not there.
  const wait = Number(response.headers.get("retry-after") ?? 0) * 1_000;
  throw new Problem(response.status, problem.code ?? String(response.status), problem.detail ?? response.statusText, Number.isFinite(wait) ? wait : 0);
}

type Query = Record<string, string | number | boolean | undefined>;

/** A path with what is asked for behind it. */
export function path(base: string, query: Query = {}): string {
  const said = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(said.map(([name, value]) => [name, String(value)])).toString();
  return search ? `${base}?${search}` : base;
}

/** Reads. */
export async function get<T>(base: string, query: Query = {}, stop?: AbortSignal): Promise<T> {
  const init = { headers: headers({ accept: "application/json" }), ...(stop ? { signal: stop } : {}) };
  const response = await fetch(path(base, query), init);
  return parse(await (await checked(response)).text()) as T;
}

/** Reads text. */
export async function text(base: string): Promise<string> {
  return (await checked(await fetch(base, { headers: headers({}) }))).text();
}

/** Reads bytes. */
export async function bytes(base: string): Promise<Blob> {
  return (await checked(await fetch(base, { headers: headers({}) }))).blob();
}

/** Does something. With an idempotency key it is done once, however often it is sent. */
export async function post<T>(base: string, body: unknown, once?: string): Promise<T> {
  const form = body instanceof FormData;
  const told = headers({
    ...(form ? {} : { "content-type": "application/json" }),
    ...(once ? { "idempotency-key": once } : {}),
  });
  const response = await checked(await fetch(base, { method: "POST", headers: told, body: form ? body : JSON.stringify(body) }));
  const said = await response.text();
  return (said ? parse(said) : undefined) as T;
}

/** Takes something away. */
export async function remove(base: string): Promise<void> {
  await checked(await fetch(base, { method: "DELETE", headers: headers({}) }));
}

/** How long a tab that nobody sees keeps its streams: there are few connections, and other tabs need them. */
const UNSEEN_MS = 20_000;

/** Waits until the tab can be seen. */
function seen(stop: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", () => resolve(), { once: true, signal: stop }));
}

/** Follows a stream of events from now, or from behind an event, until stopped. */
export function listen(base: string, query: Query, after: number | undefined, told: Told): () => void {
  const stop = new AbortController();
  let connection = new AbortController();
  let timer: ReturnType<typeof setTimeout>;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => connection.abort(), UNSEEN_MS);
  };
  document.addEventListener("visibilitychange", look, { signal: stop.signal });
  const open = async (address: string, cursor: string | undefined, signal: AbortSignal) => {
    await seen(signal);
    connection = new AbortController();
    const more = { accept: "text/event-stream", ...(cursor === undefined ? {} : { "last-event-id": cursor }) };
    return fetch(address, { headers: headers(more), signal: AbortSignal.any([signal, connection.signal]), cache: "no-store" });
  };
  const sleep = (ms: number, signal: AbortSignal) =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
    });
  const from = after === undefined ? undefined : String(after);
  void follow(path(base, query), from, told, stop.signal, { open, sleep, random: Math.random });
  return () => stop.abort();
}
