/** Costs page: the cost of models and tools over time, and by agent, model, tool or session. */
import { useMemo, useState } from "preact/hooks";
import { get } from "../api.ts";
import { count, money, short } from "../format.ts";
import { useFeed, useRead, useSoon, useTitle } from "../hooks.ts";
import { useKeys } from "../keys.ts";
import { pages } from "../paged.ts";
import { Empty, Wrong } from "../parts/notice.tsx";
import { Plot } from "../parts/plot.tsx";
import { Text } from "../parts/text.tsx";
import type { Page, Session, Spending, Usage } from "../shapes.ts";

/** Number of lines in the plot. */
const SHOWN = 5;
/** Maximum number of totals that are loaded and shown. */
const MOST = 10_000;
const PAGE = 500;
/** Maximum length of a session title. */
const TITLE = 48;
const BY = ["model", "agent", "tool", "session"] as const;
const WHAT = ["cost", "tokens", "replies"] as const;
type What = (typeof WHAT)[number];

export function CostsPage() {
  useTitle("Costs");
  const [by, setBy] = useState<(typeof BY)[number]>("model");
  const [what, setWhat] = useState<What>("cost");
  const read = useRead((stop) => pages<Spending>(MOST, (cursor) => get("/v1/cost", { by, per: "day", limit: PAGE, cursor }, stop)), [by]);
  const sessions = useRead<Page<Session>>((stop) => (by === "session" ? get("/v1/sessions", { limit: PAGE }, stop) : Promise.resolve({ items: [] })), [by]);
  const title = new Map((sessions.value?.items ?? []).map(({ id, key, title }) => [id, cut(key ?? title)] as const).filter(([, title]) => title));
  const soon = useSoon(read.again, 2_000);
  useFeed("turn.ended", soon, soon);
  useKeys(BY.map((name, at) => ({ keys: String(at + 1), what: `By ${name}`, act: () => setBy(name) })));
  const days = read.value?.items ?? [];
  const rows = added(days).sort((a, b) => amount(b, what) - amount(a, what) || amount(b, "tokens") - amount(a, "tokens"));
  const most = Math.max(...rows.map((row) => amount(row, what)), 0);
  const plot = useMemo(() => {
    return daily(days, rows.slice(0, SHOWN).map((row) => row.name), what, (name) => title.get(name) ?? named(name, by));
  }, [read.value, sessions.value, what]);
  const total = days.reduce((sum, day) => sum + Number(day.cost), 0);
  const unpriced = days.reduce((sum, day) => sum + day.unpriced, 0);
  return (
    <div class="page costs">
      <div class="bar">
        <h1>Costs</h1>
        <span class="grow"><b>{money(String(total))}</b> <span class="quiet">in all{unpriced > 0 && `, without ${count(unpriced)} replies of unknown price`}</span></span>
        <div class="choices" role="group" aria-label="What is shown">{WHAT.map((name) => <button type="button" aria-pressed={what === name} onClick={() => setWhat(name)}>{name}</button>)}</div>
      </div>
      <Wrong error={read.error} />
      {read.value?.next && <p class="note" role="status">There is more than these {count(MOST)} sums of days: what came last is not part of them.</p>}
      <div class="scrolls" tabIndex={0} role="region" aria-label="Costs">
        {read.value && days.length === 0 && <Empty title="No costs yet">Every reply of a model is listed here, with its tokens and, if the price is known, its cost.</Empty>}
        {plot.times.length > 0 && <Plot times={plot.times} series={plot.series} height={200} label={`${what} by day and ${by}`} unit={unit(what)} when={dayName} steps={[DAY, 2 * DAY, 7 * DAY, 30 * DAY]} />}
        {rows.length > 0 && (
          <div>
            <div class="choices" role="group" aria-label="Added up by">{BY.map((name) => <button type="button" aria-pressed={by === name} onClick={() => setBy(name)}>by {name}</button>)}</div>
            <table class="shares">
              <thead><tr><th scope="col">{by}</th><th scope="col" class="bar-head"><span class="sr">share</span></th><th scope="col" class="num wide-only">replies</th><th scope="col" class="num wide-only">tokens in</th><th scope="col" class="num wide-only">tokens out</th><th scope="col" class="num">{what === "cost" ? "cost" : what}</th></tr></thead>
              <tbody>
                {rows.map((row) => (
                  <tr>
                    <td>{by === "session" ? <a href={`/sessions/${row.name}`} title={row.name}><Text of={title.get(row.name) ?? short(row.name)} /></a> : <Text of={named(row.name, by)} />}</td>
                    <td class="bar-cell"><span class="stack" aria-hidden="true"><i class="tok tok-input" style={{ width: `${most ? (amount(row, what) / most) * 100 : 0}%` }} /></span></td>
                    <td class="num wide-only">{count(row.replies)}</td>
                    <td class="num wide-only">{count((row.usage.input ?? 0) + (row.usage.cache_read ?? 0) + (row.usage.cache_write ?? 0))}</td>
                    <td class="num wide-only">{count((row.usage.output ?? 0) + (row.usage.reasoning ?? 0))}</td>
                    <td class="num">{unit(what)(amount(row, what))}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </div>
    </div>
  );
}

function amount(row: Spending, what: What): number {
  if (what === "cost") return Number(row.cost);
  if (what === "replies") return row.replies;
  return Object.values(row.usage).reduce((sum: number, tokens) => sum + (typeof tokens === "number" ? tokens : 0), 0);
}

/** Returns the label of a row. A session is labelled by its id, and tool costs have no model. */
function named(name: string, by: string): string {
  if (by === "session") return short(name);
  return by === "model" && name === "none" ? "tools with a price" : name;
}

const DAY = 86_400;

function dayName(time: number): string {
  return new Date(time * 1_000).toLocaleDateString(undefined, { month: "short", day: "numeric", timeZone: "UTC" });
}

function cut(title: string): string {
  return title.length > TITLE ? `${title.slice(0, TITLE)}…` : title;
}

function unit(what: What): (value: number) => string {
  return what === "cost" ? (value) => money(String(value)) : count;
}

/** Sums the costs per name over all days. */
function added(days: readonly Spending[]): Spending[] {
  const all = new Map<string, Spending>();
  for (const day of days) {
    const { name, replies, usage, cost, unpriced } = day;
    const before = all.get(name);
    const sum = (part: keyof Usage) => (before?.usage[part] ?? 0) + (usage[part] ?? 0);
    all.set(name, {
      name,
      replies: (before?.replies ?? 0) + replies,
      usage: { input: sum("input"), cache_read: sum("cache_read"), cache_write: sum("cache_write"), output: sum("output"), reasoning: sum("reasoning") },
      cost: String(Number(before?.cost ?? 0) + Number(cost)),
      unpriced: (before?.unpriced ?? 0) + unpriced,
    });
  }
  return [...all.values()];
}

/** Returns one value per day for each of `names` and for the rest. Days without usage have the value 0. */
function daily(days: readonly Spending[], names: readonly string[], what: What, title: (name: string) => string): { times: number[]; series: { name: string; values: number[] }[] } {
  const known = days.map(({ day }) => Date.parse(`${day}T00:00:00Z`) / 1_000).filter(Number.isFinite).sort((a, b) => a - b);
  const [first, last] = [known[0], known.at(-1)];
  if (first === undefined || last === undefined) return { times: [], series: [] };
  const times: number[] = [];
  // The plot covers at least a week. One more day gives the last day a width.
  for (let day = Math.min(first, last - 6 * DAY); day <= last + DAY; day += DAY) times.push(day);
  const spent = (of: (name: string) => boolean) => {
    const byDay = new Map<number, number>();
    for (const row of days.filter(({ name }) => of(name))) {
      const day = Date.parse(`${row.day}T00:00:00Z`) / 1_000;
      byDay.set(day, (byDay.get(day) ?? 0) + amount(row, what));
    }
    return times.map((day) => byDay.get(day) ?? 0);
  };
  const series = names.map((name) => ({ name: title(name), values: spent((other) => other === name) }));
  const rest = { name: "the rest", values: spent((name) => !names.includes(name)) };
  return { times, series: rest.values.some((value) => value > 0) ? [...series, rest] : series };
}
