/** HTTP client of the API: paths, the API key, idempotency keys and errors. Callers interpret the responses. */
import { parse } from "./exact.ts";
import { follow, type Told } from "./stream.ts";

/** An error response of the server (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    /** Milliseconds from the `Retry-After` header; 0 without one. */
    readonly waitMs = 0,
  ) {
    super(detail);
  }
}

/** Delay before a failed request is retried. */
const AGAIN_MS = 2_000;

/** Upper bound of the retry delay, whatever `Retry-After` says. */
const AGAIN_MS_MOST = 30_000;

/** Whether the error is transient: the server is unreachable, unhealthy or overloaded. */
export function passes(error: Error): boolean {
  return !(error instanceof Problem) || error.status >= 500 || error.status === 429;
}

/** Returns the delay before the next retry, in milliseconds. */
export function againMs(error: Error): number {
  const wait = error instanceof Problem ? error.waitMs : 0;
  return Math.min(Math.max(wait, AGAIN_MS), AGAIN_MS_MOST);
}

/** Returns a random idempotency key. Also works over plain HTTP from another machine, where `randomUUID` does not exist. */
export function unique(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const KEY = "outlast-key";

/** The API key, stored for this tab only. A server on the same machine does not require one. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? undefined,
  set: (value: string) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

let locked: () => void = () => {};

/** Sets the callback that runs when the server requires an API key. */
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
  // Only seconds are supported. An HTTP date, such as a proxy may send, is ignored.
  const wait = Number(response.headers.get("retry-after") ?? 0) * 1_000;
  throw new Problem(response.status, problem.code ?? String(response.status), problem.detail ?? response.statusText, Number.isFinite(wait) ? wait : 0);
}

type Query = Record<string, string | number | boolean | undefined>;

/** Builds a path with a query string. */
export function path(base: string, query: Query = {}): string {
  const said = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(said.map(([name, value]) => [name, String(value)])).toString();
  return search ? `${base}?${search}` : base;
}

/** Sends a GET request and parses the JSON response. */
export async function get<T>(base: string, query: Query = {}, stop?: AbortSignal): Promise<T> {
  const init = { headers: headers({ accept: "application/json" }), ...(stop ? { signal: stop } : {}) };
  const response = await fetch(path(base, query), init);
  return parse(await (await checked(response)).text()) as T;
}

/** Sends a GET request and returns the response as text. */
export async function text(base: string): Promise<string> {
  return (await checked(await fetch(base, { headers: headers({}) }))).text();
}

/** Sends a GET request and returns the response as bytes. */
export async function bytes(base: string): Promise<Blob> {
  return (await checked(await fetch(base, { headers: headers({}) }))).blob();
}

/** Sends a POST request. With an idempotency key, the server executes repeated requests once. */
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

/** Sends a DELETE request. */
export async function remove(base: string): Promise<void> {
  await checked(await fetch(base, { method: "DELETE", headers: headers({}) }));
}

/** How long a hidden tab keeps its streams open. Browsers limit connections per server, and other tabs need them. */
const UNSEEN_MS = 20_000;

/** Resolves when the tab is visible. */
function seen(stop: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", () => resolve(), { once: true, signal: stop }));
}

/** Subscribes to an event stream, from now or after event number `after`. Returns a function that unsubscribes. */
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
