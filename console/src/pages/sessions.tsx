/** Sessions page: search, filters, and the state of each session. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { againMs, get, passes, path, post, Problem } from "../api.ts";
import { ago, moment, money, short } from "../format.ts";
import { useFeed, useNarrow, useNow, useRead, useTitle } from "../hooks.ts";
import { useKeys } from "../keys.ts";
import { write } from "../parts/composer.tsx";
import { Empty, Wrong } from "../parts/notice.tsx";
import { Rows } from "../parts/rows.tsx";
import { lastEnd, State, waitsFor } from "../parts/state.tsx";
import { Text } from "../parts/text.tsx";
import { go } from "../route.ts";
import { appended, refreshed, type Wish } from "../session-list.ts";
import type { Hit, Page, Session } from "../shapes.ts";

const PAGE = 500;
/** Interval between checks for deleted sessions. */
const LOOK_MS = 10_000;
const ENDS = [["", "Any end"], ["failed", "Failed"], ["stuck", "Stuck"], ["cancelled", "Cancelled"], ["abandoned", "Abandoned"], ["sealed", "Sealed"]] as const;
const STATES = [["", "All"], ["running", "Running"], ["parked", "Waiting"], ["held", "Held"], ["ready", "Ready"], ["idle", "Idle"]] as const;

/** Reads the search and the filters from the address. */
function wished(): Wish {
  const said = new URLSearchParams(location.search);
  return { search: said.get("search") ?? "", state: said.get("state") ?? "", last_end: said.get("last_end") ?? "" };
}

export function SessionsPage() {
  useTitle("Sessions");
  const now = useNow(15_000);
  const narrow = useNarrow();
  const [wish, setWish] = useState(wished);
  const [selected, setSelected] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  const list = useSessions(wish);
  const ask = (change: Partial<Wish>) => {
    const next = { ...wish, ...change };
    history.replaceState(undefined, "", path("/", { ...next }));
    setWish(next);
    setSelected(-1);
  };
  const move = (by: number) => setSelected((at) => Math.max(0, Math.min(list.items.length - 1, at + by)));
  const open = () => {
    const session = list.items[selected];
    if (session) go(`/sessions/${session.id}`);
  };
  const begin = async () => {
    go(`/sessions/${(await post<Session>("/v1/sessions", {})).id}`);
    // The composer exists after the next frame.
    requestAnimationFrame(write);
  };
  useKeys([
    { keys: "/", what: "Search", act: () => field.current?.focus() },
    { keys: "j", what: "Next session", act: () => move(1) },
    { keys: "k", what: "Session before", act: () => move(-1) },
    { keys: "Enter", what: "Open the session", act: open },
    { keys: "n", what: "New session", act: () => void begin() },
  ]);
  return (
    <div class="page sessions">
      <div class="bar">
        <h1>Sessions</h1>
        <div class="search"><input ref={field} type="search" placeholder="Search sessions and messages" aria-label="Search sessions" value={wish.search} onInput={(event) => ask({ search: event.currentTarget.value })} /><kbd aria-hidden="true">/</kbd></div>
        <div class="choices" role="group" aria-label="State">
          {STATES.map(([state, name]) => <button type="button" aria-pressed={wish.state === state} onClick={() => ask({ state })}>{name}</button>)}
        </div>
        <select aria-label="How the last turn ended" value={wish.last_end} onChange={(event) => ask({ last_end: event.currentTarget.value })}>
          {ENDS.map(([end, name]) => <option value={end}>{name}</option>)}
        </select>
        <button type="button" class="primary" onClick={() => void begin()}>New session</button>
      </div>
      <Wrong error={list.error} />
      <Messages search={wish.search} now={now} />
      <div class="row-heads" aria-hidden="true"><span>State</span><span>Session</span><span>Waits for</span><span class="num">Turns</span><span class="num">Cost</span><span class="num">Changed</span></div>
      {list.items.length === 0 && list.whole ? (
        <Empty title={wish.search || wish.state || wish.last_end ? "No matching sessions" : "No sessions yet"}>{wish.search || wish.state || wish.last_end ? "Try another search or state." : "Start one here, or with outlast run."}</Empty>
      ) : (
        <Rows items={list.items} height={narrow ? 62 : 40} label="Sessions" selected={selected} end={list.more} id={(session) => session.id} row={(session) => <Line session={session} now={now} />} />
      )}
      <p class="foot" role="status">{list.items.length}{list.whole ? "" : "+"} {list.items.length === 1 && list.whole ? "session" : "sessions"}{list.link === "open" ? "" : " · the server is not reachable"}</p>
    </div>
  );
}

/** Full-text search results: messages from any session. */
function Messages({ search, now }: { search: string; now: number }) {
  const words = /[\p{L}\p{N}]/u.test(search) ? search : "";
  const read = useRead<Page<Hit>>((stop) => (words ? get("/v1/search", { q: words, limit: 8 }, stop) : Promise.resolve({ items: [] })), [words]);
  const hits = words ? (read.value?.items ?? []) : [];
  if (hits.length === 0) return <Wrong error={words ? read.error : undefined} />;
  return (
    <section class="hits" aria-label="Messages">
      <h2>In messages</h2>
      <ul>
        {hits.map((hit) => (
          <li><a href={`/sessions/${hit.session}`}><b>{hit.role === "user" ? "You" : "Agent"}</b> <span class="excerpt"><Text of={hit.excerpt} /></span> <small title={moment(hit.at)}>{ago(hit.at, now)} · {short(hit.session)}</small></a></li>
        ))}
      </ul>
    </section>
  );
}

function Line({ session, now }: { session: Session; now: number }) {
  return (
    <a class="session-line" href={`/sessions/${session.id}`}>
      <State of={session.state} />
      <span class="title">{session.title ? <Text of={session.title.slice(0, 300)} /> : <em>empty</em>} <small>{session.key ? <Text of={session.key} /> : short(session.id)}</small></span>
      <span class="waits">{waitsFor(session) || lastEnd(session)}</span>
      <span class="num turns">{session.turns}</span>
      <span class="num cost">{money(session.cost)}</span>
      <time class="num changed" title={moment(session.updated)}>{ago(session.updated, now)}</time>
    </a>
  );
}

/** Returns `gone` if the error means that the session no longer exists. Other errors leave it unknown. */
function gone(error: Error): "gone" | undefined {
  return error instanceof Problem && error.status === 404 ? "gone" : undefined;
}

/** Loads the matching sessions page by page and keeps them up to date. */
function useSessions(wish: Wish) {
  const [items, setItems] = useState<readonly Session[]>([]);
  const [error, setError] = useState<Error>();
  const [whole, setWhole] = useState(false);
  const reading = useRef({ next: undefined as string | undefined, whole: false, begun: false, busy: true, wish });
  const changed = useRef(new Set<string>());

  const more = useCallback(async () => {
    const at = reading.current;
    if (at.busy || at.whole) return;
    at.busy = true;
    const first = at.next === undefined;
    try {
      const query = { search: at.wish.search, state: at.wish.state, last_end: at.wish.last_end, limit: PAGE };
      let page: Page<Session>;
      do {
        page = await get<Page<Session>>("/v1/sessions", { ...query, cursor: at.next });
        if (reading.current !== at) return;
        at.next = page.next;
        // The server scans a fixed number of sessions per page. A page without matches can be empty although more pages follow.
      } while (page.items.length === 0 && page.next !== undefined);
      at.whole = page.next === undefined;
      const { items } = page;
      setItems((old) => (first ? items : appended(old, items)));
      setWhole(at.whole);
      setError(undefined);
    } catch (error) {
      if (reading.current === at) setError(error as Error);
    } finally {
      at.busy = false;
    }
  }, []);

  const begin = useCallback((wish: Wish) => {
    reading.current = { next: undefined, whole: false, begun: true, busy: false, wish };
    void more();
  }, []);
  useEffect(() => {
    // Stays busy until the person stops typing: reaching the end of the old list must not start a request for the new one.
    reading.current = { next: undefined, whole: false, begun: false, busy: true, wish };
    const timer = setTimeout(() => {
      setItems([]);
      setWhole(false);
      begin(wish);
    }, 120);
    return () => clearTimeout(timer);
  }, [wish.search, wish.state, wish.last_end]);
  useEffect(() => {
    if (!error || !passes(error)) return;
    const timer = setTimeout(() => void more(), againMs(error));
    return () => clearTimeout(timer);
  }, [error]);

  const refresh = useCallback(async () => {
    const ids = [...changed.current].slice(0, 50);
    for (const id of ids) changed.current.delete(id);
    const { wish } = reading.current;
    const refused = (id: string) => (error: Error) => {
      if (passes(error)) setTimeout(() => changed.current.add(id), againMs(error));
      return gone(error);
    };
    const read = await Promise.all(ids.map((id) => get<Session>(`/v1/sessions/${id}`).catch(refused(id))));
    if (reading.current.wish !== wish) return;
    const fresh = new Map(ids.map((id, at) => [id, read[at]]));
    setItems((old) => refreshed(old, fresh, wish));
  }, []);
  useEffect(() => {
    const timer = setInterval(() => changed.current.size > 0 && void refresh(), 700);
    return () => clearInterval(timer);
  }, []);
  // Deletion of a session has no event, so a periodic check finds it.
  const look = useCallback(async () => {
    const [{ wish }, asked] = [reading.current, Date.now()];
    const page = await get<Page<Session>>("/v1/sessions", { search: wish.search, state: wish.state, last_end: wish.last_end, limit: PAGE }).catch(() => undefined);
    const oldest = page?.items.at(-1)?.created;
    if (!page || reading.current.wish !== wish || (page.next !== undefined && oldest === undefined)) return;
    const there = new Set(page.items.map((session) => session.id));
    setItems((old) => old.filter(({ id, created }) => there.has(id) || created > asked || (page.next !== undefined && created <= (oldest ?? 0))));
  }, []);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || void look(), LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  const link = useFeed("session.*,turn.*,wait.resolved", (frame) => changed.current.add(frame.session), () => {
    // The stream may have missed events before it connected, so a list that was requested before is loaded again.
    if (reading.current.begun) begin(reading.current.wish);
  });
  return { items, error, whole, more: () => void more(), link };
}
