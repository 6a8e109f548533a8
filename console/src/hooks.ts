/** Small things that pages share: what was read, what time it is, what the tab is called. */
import type { RefObject } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { againMs, passes } from "./api.ts";
import { hear } from "./feed.ts";
import { pages } from "./paged.ts";
import type { Frame, Page } from "./shapes.ts";
import type { Link } from "./stream.ts";
import { plain } from "./visible.ts";

/** Something that is read from the server. What was read stays while it is read again. */
export interface Read<T> {
  value: T | undefined;
  error: Error | undefined;
  again: () => void;
}

/** Reads something, and again when one of `on` changes, somebody asks, or the server was out of reach. */
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

/** Entries of a list that are read at first, and with every wish for more. */
const PAGE = 200;

/** A list of the server, as far as it was read; `more` reads on, if there is more. */
export interface List<T> extends Read<readonly T[]> {
  more: (() => void) | undefined;
}

/** Reads the beginning of a list, and more of it when somebody wants it. */
export function useList<T>(load: (page: { limit: number; cursor: string | undefined }, stop: AbortSignal) => Promise<Page<T>>, on: readonly unknown[]): List<T> {
  const [most, setMost] = useState(PAGE);
  const read = useRead((stop) => pages(most, (cursor) => load({ limit: PAGE, cursor }, stop)), [...on, most]);
  return { ...read, value: read.value?.items, more: read.value?.next === undefined ? undefined : () => setMost(most + PAGE) };
}

/** The time, as often as it matters to a reader. */
export function useNow(everyMs: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

const NARROW = matchMedia("(max-width: 899px)");

/** Whether there is room for one column only. */
export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const changed = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", changed);
    return () => NARROW.removeEventListener("change", changed);
  }, []);
  return narrow;
}

/** Whether something has been in sight since it was shown. */
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

/** What the tab is called while the caller is shown. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${plain(title)} · Outlast` : "Outlast";
  }, [title]);
}

/** Hears what becomes durable in any session, from now on. Comes back with how the stream stands. */
export function useFeed(types: string, told: (frame: Frame) => void, again: () => void): Link {
  const [link, setLink] = useState<Link>("connecting");
  const latest = useRef({ told, again });
  latest.current = { told, again };
  useEffect(() => {
    return hear({ types, event: (frame) => latest.current.told(frame), link: setLink, again: () => latest.current.again() });
  }, [types]);
  return link;
}

/** Calls at most once in a while, and once more if it was asked for meanwhile. */
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
