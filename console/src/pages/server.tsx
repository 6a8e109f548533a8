/** Server page: stored data, load, latencies. */
import { useEffect, useState } from "preact/hooks";
import { get, text } from "../api.ts";
import { clock, count, duration, size } from "../format.ts";
import { useTitle } from "../hooks.ts";
import { Wrong } from "../parts/notice.tsx";
import { Plot } from "../parts/plot.tsx";
import { quantile, samples, value, type Sample } from "../prometheus.ts";
import type { Health } from "../shapes.ts";

const EVERY_MS = 2_000;
/** Points per plot, which is four minutes. */
const POINTS = 120;

/** The metrics at one point in time. */
interface Point {
  at: number;
  all: Sample[];
}

export function ServerPage() {
  useTitle("Server");
  const [points, setPoints] = useState<readonly Point[]>([]);
  const [health, setHealth] = useState<Health>();
  const [error, setError] = useState<Error>();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    const look = async () => {
      try {
        const [said, metrics] = await Promise.all([get<Health>("/health/ready"), text("/metrics")]);
        setHealth(said);
        setPoints((old) => [...old, { at: Date.now() / 1_000, all: samples(metrics) }].slice(-POINTS));
        setError(undefined);
      } catch (error) {
        setError(error as Error);
      }
      timer = setTimeout(() => void look(), EVERY_MS);
    };
    void look();
    return () => clearTimeout(timer);
  }, []);
  const last = points.at(-1)?.all ?? [];
  const of = (name: string) => value(last, name);
  const over = (name: string) => points.map(({ all }) => value(all, name) ?? 0);
  const times = points.map((point) => point.at);
  return (
    <div class="page server">
      <div class="bar"><h1>Server</h1>{health && <span class="grow quiet">{health.state} · an acknowledged write {health.durability} · schema {health.schema}</span>}</div>
      <Wrong error={error} />
      <div class="scrolls" tabIndex={0} role="region" aria-label="Server">
        <dl class="gauges">
          <Gauge name="Leases held here" of={count(of("outlast_sessions_driven") ?? 0)} beside={`of ${count(of("outlast_sessions_driven_most") ?? 0)} at once`} />
          <Gauge name="Leases in total" of={count(of("outlast_sessions_running") ?? 0)} beside="over all workers" />
          <Gauge name="Queue" of={count(of("outlast_sessions_ready") ?? 0)} beside="wait for a worker" />
          <Gauge name="Streams open" of={count(of("outlast_streams_open") ?? 0)} />
          <Gauge name="Database" of={size(of("outlast_store_bytes") ?? 0)} />
          {MEASURED.map(({ metric, name }) => <Measure name={name} metric={metric} points={points} />)}
        </dl>
        <h2>Leases and queue</h2>
        <Plot times={times} series={[{ name: "leases", values: over("outlast_sessions_running") }, { name: "queue", values: over("outlast_sessions_ready") }]} height={190} whole label="Leases and queue over the last minutes" when={(time) => clock(time * 1_000)} steps={[60, 120]} recent={(POINTS * EVERY_MS) / 1_000} unit={(value) => String(Math.round(value))} />
        <h2>Writes and syncs that took longest, each two seconds</h2>
        <Plot times={times} series={[{ name: "writes", values: slowest(points, COMMIT) }, { name: "syncs", values: slowest(points, SYNC) }]} height={190} whole label="How long the slowest writes, and the slowest syncs to the disk, took over the last minutes, in milliseconds" when={(time) => clock(time * 1_000)} steps={[60, 120]} recent={(POINTS * EVERY_MS) / 1_000} unit={(value) => `${Math.round(value)} ms`} />
        <h2>Requests</h2>
        <Requests all={last} />
      </div>
    </div>
  );
}

/** Time that turns waited for a write: in the queue and until the sync to disk. */
const COMMIT = "outlast_commit_duration_seconds";
/** Time of the sync to disk alone, measured by the database. */
const SYNC = "outlast_sync_duration_seconds";

/** Metrics that are histograms. */
const MEASURED = [
  { metric: "outlast_http_request_seconds", name: "Answers" },
  { metric: COMMIT, name: "Writes, with their sync" },
  { metric: SYNC, name: "Syncs to the disk" },
] as const;

function Measure({ name, metric, points }: { name: string; metric: string; points: readonly Point[] }) {
  const last = points.at(-1)?.all ?? [];
  const [half, most] = [quantile(last, [], metric, 0.5), quantile(last, [], metric, 0.99)];
  if (half === undefined || most === undefined) return <Gauge name={name} of="–" />;
  return <Gauge name={name} of={`≤ ${seconds(half)}`} beside={`p99 ≤ ${seconds(most)} · ${count(value(last, `${metric}_count`) ?? 0)}`} />;
}

/** Returns the 99th percentile since the previous point, for each point, in milliseconds. */
function slowest(points: readonly Point[], metric: string): number[] {
  return points.map(({ all }, at) => {
    const most = quantile(all, points[at - 1]?.all ?? [], metric, 0.99) ?? 0;
    return Number.isFinite(most) ? most * 1_000 : 5_000;
  });
}

function seconds(of: number): string {
  return of === Infinity ? "more" : duration(of * 1_000);
}

function Gauge({ name, of, beside }: { name: string; of: string; beside?: string }) {
  return <div><dt>{name}</dt><dd>{of}<small class="quiet">{beside}</small></dd></div>;
}

function Requests({ all }: { all: readonly Sample[] }) {
  const rows = all.filter((sample) => sample.name === "outlast_http_requests_total").sort((a, b) => b.value - a.value);
  return (
    <table>
      <thead><tr><th scope="col">Route</th><th scope="col">Status</th><th scope="col" class="num">Count</th></tr></thead>
      <tbody>{rows.slice(0, 40).map(({ labels, value }) => <tr><td><code>{labels["method"]} {labels["route"]}</code></td><td>{labels["status"]}</td><td class="num">{count(value)}</td></tr>)}</tbody>
    </table>
  );
}
