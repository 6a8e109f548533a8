/** The layout of every page: navigation, identity, connection state, keyboard help. */
import { useEffect, useState } from "preact/hooks";
import { get, key, onLocked } from "./api.ts";
import { useFeed, useRead, useSoon } from "./hooks.ts";
import { useKeys } from "./keys.ts";
import { AccessPage } from "./pages/access.tsx";
import { AgentsPage } from "./pages/agents.tsx";
import { ApprovalsPage } from "./pages/approvals.tsx";
import { ComparePage } from "./pages/compare.tsx";
import { CostsPage } from "./pages/costs.tsx";
import { ServerPage } from "./pages/server.tsx";
import { SessionPage } from "./pages/session.tsx";
import { SessionsPage } from "./pages/sessions.tsx";
import { Help } from "./parts/help.tsx";
import { Lock } from "./parts/lock.tsx";
import { Empty } from "./parts/notice.tsx";
import { Text } from "./parts/text.tsx";
import { go, useRoute, type Route } from "./route.ts";
import type { Page, Whoami } from "./shapes.ts";
import { chooseTheme, theme, type Theme } from "./theme.ts";

const PLACES = [
  { page: "sessions", to: "/", name: "Sessions", keys: "g s" },
  { page: "approvals", to: "/approvals", name: "Approvals", keys: "g a" },
  { page: "costs", to: "/costs", name: "Costs", keys: "g c" },
  { page: "agents", to: "/agents", name: "Agents", keys: "g n" },
  { page: "access", to: "/access", name: "Access", keys: "g x" },
  { page: "server", to: "/server", name: "Server", keys: "g v" },
] as const;

/** Pages that the navigation bar lists under "More" on a phone. */
const RARE = new Set<string>(["access", "server"]);

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

export function App() {
  const route = useRoute();
  const [help, setHelp] = useState(false);
  const [locked, setLocked] = useState(false);
  const [entered, setEntered] = useState(0);
  useEffect(() => onLocked(() => setLocked(true)), []);
  const keys = [
    ...PLACES.map(({ to, name, keys }) => ({ keys, what: name, act: () => go(to) })),
    { keys: "?", what: "Show these keys", act: () => setHelp((shown) => !shown) },
    { keys: "t", what: "Light, dark, or system theme", act: () => chooseTheme(NEXT[theme()]) },
  ];
  // While the login dialog is open, page shortcuts are off.
  useKeys(locked ? [] : keys);
  if (locked) {
    const enter = (said: string) => {
      key.set(said);
      setLocked(false);
      setEntered((times) => times + 1);
    };
    return <Lock enter={enter} wrong={key.get() !== undefined} />;
  }
  return (
    <div class="shell" key={entered}>
      <a class="skip" href="#main">Skip to the page</a>
      <Places route={route} help={() => setHelp(true)} />
      <main id="main" tabIndex={-1}>
        <Shown route={route} />
      </main>
      {help && <Help close={() => setHelp(false)} />}
    </div>
  );
}

function Shown({ route }: { route: Route }) {
  switch (route.page) {
    case "sessions":
      return <SessionsPage />;
    case "session":
      return <SessionPage key={route.id} id={route.id} search={route.search} />;
    case "compare":
      return <ComparePage left={route.left} right={route.right} />;
    case "approvals":
      return <ApprovalsPage />;
    case "costs":
      return <CostsPage />;
    case "agents":
      return <AgentsPage name={route.name} turn={route.turn} />;
    case "access":
      return <AccessPage />;
    case "server":
      return <ServerPage />;
    case "nowhere":
      return <div class="page"><div class="bar"><h1>Not found</h1></div><Empty title="There is no such page">This address has no page. <a href="/">All sessions</a></Empty></div>;
  }
}

function Places({ route, help }: { route: Route; help: () => void }) {
  const [more, setMore] = useState(false);
  const who = useRead((stop) => get<Whoami>("/v1/whoami", {}, stop), []);
  const waiting = useWaiting();
  const at = route.page === "session" || route.page === "compare" ? "sessions" : route.page;
  return (
    <header class="places">
      <a class="mark" href="/" aria-label="Outlast, all sessions">
        <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true"><rect width="32" height="32" rx="7" class="mark-ground" /><path d="M8 9h16M8 16h16M8 23h7" class="mark-lines" /><circle cx="22.5" cy="23" r="2.6" class="mark-dot" /></svg>
        <span>Outlast</span>
      </a>
      <nav aria-label="Pages">
        {PLACES.map(({ page, to, name }) => (
          <a href={to} class={RARE.has(page) ? "rare" : undefined} aria-current={at === page ? "page" : undefined}>
            {name}
            {page === "approvals" && waiting > 0 && <span class="count" title="pending approvals">{waiting}<span class="sr"> pending</span></span>}
          </a>
        ))}
      </nav>
      <button type="button" class="plain more" aria-expanded={more} aria-controls="who" onClick={() => setMore(!more)}>More</button>
      <div class="who" id="who" data-open={more ? "" : undefined}>
        {PLACES.filter(({ page }) => RARE.has(page)).map(({ to, name }) => <a href={to} onClick={() => setMore(false)}>{name}</a>)}
        <ThemeSwitch />
        <button type="button" class="plain" title="Keys (?)" onClick={() => (setMore(false), help())}>Keyboard</button>
        {who.value && <span title={`may: ${who.value.scopes}`}><Text of={who.value.by} /></span>}
        {key.get() !== undefined && <button type="button" class="plain" onClick={() => (key.forget(), location.reload())}>Leave</button>}
      </div>
    </header>
  );
}

/** Returns the number of pending approvals and keeps it up to date. */
function useWaiting(): number {
  const read = useRead((stop) => get<Page<unknown>>("/v1/approvals", {}, stop), []);
  const soon = useSoon(read.again, 400);
  useFeed("turn.parked,wait.resolved,turn.ended", soon, soon);
  return read.value?.items.length ?? 0;
}

function ThemeSwitch() {
  const [chosen, setChosen] = useState(theme());
  useEffect(() => {
    const changed = () => setChosen(theme());
    addEventListener("outlast-theme", changed);
    return () => removeEventListener("outlast-theme", changed);
  }, []);
  const names: Record<Theme, string> = { system: "auto", light: "light", dark: "dark" };
  return (
    <button type="button" class="plain" title="Light, dark, or system theme (t)" onClick={() => chooseTheme(NEXT[chosen])}>
      Colours: {names[chosen]}
    </button>
  );
}
