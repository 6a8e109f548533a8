/** Hooks that several pages use: data loading, clock, viewport, tab title, events. */
import type { RefObject } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { againMs, passes } from "./api.ts";
import { hear } from "./feed.ts";
import { pages } from "./paged.ts";
import type { Frame, Page } from "./shapes.ts";
import type { Link } from "./stream.ts";
import { plain } from "./visible.ts";

/** A value loaded from the server. The previous value stays available during a reload. */
export interface Read<T> {
  value: T | undefined;
  error: Error | undefined;
  again: () => void;
}

/** Loads a value. Reloads it when `on` changes, on request, and after a transient error. */
export function useRead<T>(load: (stop: AbortSignal) => Promise<T>, on: readonly unknown[]): Read<T> {
  const [read, setRead] = useState<{ value: T | undefined; error: Error | undefined; on: readonly unknown[] }>();
  const [times, setTimes] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    load(stop.signal).then(
      (value) => stop.signal.aborted || setRead({ value, error: undefined, on }),
      (error: Error) => {
        if (stop.signal.aborted) return;
        setRead((old) => ({ value: old?.value, error, on }));
        if (passes(error)) timer = setTimeout(() => setTimes((times) => times + 1), againMs(error));
      },
    );
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...on, times]);
  const again = useCallback(() => setTimes((times) => times + 1), []);
  return { value: read?.value, error: read?.error, again };
}

/** Entries per page. */
const PAGE = 200;

/** A paginated list. `more` loads the next page, if there is one. */
export interface List<T> extends Read<readonly T[]> {
  more: (() => void) | undefined;
}

/** Loads the first page of a list, and further pages on demand. */
export function useList<T>(load: (page: { limit: number; cursor: string | undefined }, stop: AbortSignal) => Promise<Page<T>>, on: readonly unknown[]): List<T> {
  const [most, setMost] = useState(PAGE);
  const read = useRead((stop) => pages(most, (cursor) => load({ limit: PAGE, cursor }, stop)), [...on, most]);
  return { ...read, value: read.value?.items, more: read.value?.next === undefined ? undefined : () => setMost(most + PAGE) };
}

/** Returns the current time and updates it every `everyMs` milliseconds. */
export function useNow(everyMs: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

const NARROW = matchMedia("(max-width: 899px)");

/** Whether the viewport has room for one column only. */
export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const changed = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", changed);
    return () => NARROW.removeEventListener("change", changed);
  }, []);
  return narrow;
}

/** Whether the element has been visible since it was mounted. */
export function useSeen(place: RefObject<Element | null>): boolean {
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    if (!place.current) return;
    const look = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && setSeen(true));
    look.observe(place.current);
    return () => look.disconnect();
  }, []);
  return seen;
}

/** Sets the title of the tab while the component is mounted. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${plain(title)} · Outlast` : "Outlast";
  }, [title]);
}

/** Subscribes to durable events of all sessions. Returns the state of the connection. */
export function useFeed(types: string, told: (frame: Frame) => void, again: () => void): Link {
  const [link, setLink] = useState<Link>("connecting");
  const latest = useRef({ told, again });
  latest.current = { told, again };
  useEffect(() => {
    return hear({ types, event: (frame) => latest.current.told(frame), link: setLink, again: () => latest.current.again() });
  }, [types]);
  return link;
}

/** Throttles a function: it runs `ms` milliseconds after the first call, once for all calls until then. */
export function useSoon(act: () => void, ms: number): () => void {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      latest.current();
    }, ms);
  }, [ms]);
}
