/** Agents page: agents with their packages, and the stored versions with their changes. */
import { useState } from "preact/hooks";
import { get, Problem } from "../api.ts";
import { pretty } from "../exact.ts";
import { moment, past } from "../format.ts";
import { useList, useNow, useRead, useTitle } from "../hooks.ts";
import { useKeys } from "../keys.ts";
import { Difference } from "../parts/difference.tsx";
import { Json } from "../parts/json.tsx";
import { ReadOn, Wrong } from "../parts/notice.tsx";
import { Text } from "../parts/text.tsx";
import { go } from "../route.ts";
import type { Agent, Page, Stored } from "../shapes.ts";

export function AgentsPage({ name, turn }: { name: string | undefined; turn: string | undefined }) {
  useTitle(name ?? "Agents");
  const read = useRead((stop) => get<Page<Agent>>("/v1/agents", {}, stop), []);
  const stored = useRead((stop) => get<Page<Stored>>("/v1/configs/agent", { limit: 500 }, stop), []);
  const agents = read.value?.items ?? [];
  const kept = (stored.value?.items ?? []).filter((config) => !agents.some((agent) => agent.name === config.name));
  const names = [...agents.map((agent) => agent.name), ...kept.map((config) => config.name)];
  const shown = name ?? names[0];
  const note = stored.value?.items.find((config) => config.name === shown)?.note;
  const move = (by: number) => {
    const to = names[Math.max(0, Math.min(names.length - 1, names.indexOf(shown ?? "") + by))];
    if (to) go(`/agents/${encodeURIComponent(to)}`);
  };
  useKeys([
    { keys: "j", what: "Next agent", act: () => move(1) },
    { keys: "k", what: "Agent before", act: () => move(-1) },
  ]);
  return (
    <div class="page agents">
      <div class="bar"><h1>Agents</h1><span class="quiet grow">{agents.length > 0 && `${agents.length} ${agents.length === 1 ? "answers" : "answer"} here`}</span></div>
      <Wrong error={read.error ?? stored.error} />
      <div class="split">
        <nav aria-label="Agents" class="agent-list">
          {agents.map((agent) => (
            <a href={`/agents/${encodeURIComponent(agent.name)}`} aria-current={agent.name === shown ? "true" : undefined}>
              <b><Text of={agent.name} /></b>{agent.first && <span class="chip">first</span>}
              <span class="quiet"><Text of={agent.model} /> · {agent.tools.length} {agent.tools.length === 1 ? "tool" : "tools"}</span>
            </a>
          ))}
          {kept.map((config) => (
            <a href={`/agents/${encodeURIComponent(config.name)}`} aria-current={config.name === shown ? "true" : undefined}>
              <b><Text of={config.name} /></b>
              <span class="quiet">in the database, not used here</span>
            </a>
          ))}
        </nav>
        <div class="scrolls" tabIndex={0} role="region" aria-label="Agent">
          {shown && agents.some((agent) => agent.name === shown) && <AgentDetail key={shown} name={shown} turn={turn} />}
          {shown && read.value && !agents.some((agent) => agent.name === shown) && <h2><Text of={shown} /></h2>}
          {note && <p class="section" role="status"><Text of={note} /></p>}
          {shown && <Versions key={`versions of ${shown}`} name={shown} />}
        </div>
      </div>
    </div>
  );
}

function AgentDetail({ name, turn }: { name: string; turn: string | undefined }) {
  const read = useRead((stop) => get<Agent>(`/v1/agents/${encodeURIComponent(name)}`, {}, stop), [name]);
  const agent = read.value;
  if (!agent) return <Wrong error={read.error} />;
  return (
    <section>
      <h2><Text of={agent.name} /></h2>
      <dl class="facts">
        <div><dt>Model</dt><dd><Text of={agent.model} /></dd></div>
        <div><dt>Tools</dt><dd>{agent.tools.length === 0 ? <span class="quiet">none</span> : agent.tools.map((tool) => <span class="chip"><Text of={tool} /></span>)}</dd></div>
        <div><dt>Fingerprint</dt><dd><code>{agent.fingerprint}</code></dd></div>
      </dl>
      <h3>Package</h3>
      <Json of={agent.package} label="Package" />
      <Then key={turn} agent={agent} turn={turn} />
    </section>
  );
}

/** Compares the package of a turn with the current package. */
function Then({ agent, turn }: { agent: Agent; turn: string | undefined }) {
  const read = useRead((stop) => (turn ? get<Record<string, unknown>>(`/v1/turns/${turn}/package`, {}, stop) : Promise.resolve(undefined)), [turn]);
  const [said, setSaid] = useState(turn ?? "");
  const ask = (event: Event) => {
    event.preventDefault();
    if (said.trim()) go(`/agents/${encodeURIComponent(agent.name)}?turn=${encodeURIComponent(said.trim())}`);
  };
  const [before, after] = [pretty(sorted(bare(read.value))), pretty(sorted(bare(agent.package)))];
  return (
    <section>
      <h3>Compare with the package of a turn</h3>
      <form class="acts beside" onSubmit={ask}>
        <input class="grow" aria-label="Turn" placeholder="trn_…, or follow an agent's name in a timeline" spellcheck={false} value={said} onInput={(event) => setSaid(event.currentTarget.value)} />
        <button type="submit">Compare</button>
      </form>
      <Wrong error={read.error} />
      {read.value && before === after && <p class="quiet section" role="status">The turn used the current package.</p>}
      {read.value && before !== after && <Difference before={before} after={after} label="Changes since the package of the turn" />}
    </section>
  );
}

/** Removes the tool contracts from a package before it is compared. */
function bare(of: unknown): unknown {
  const { contracts: _, ...more } = (of ?? {}) as Record<string, unknown>;
  return more;
}

/** Sorts the keys of every object, so that equal data has equal JSON. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null || (JSON as { isRawJSON?(value: unknown): boolean }).isRawJSON?.(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, member]) => [name, sorted(member)]));
}

function Versions({ name }: { name: string }) {
  const now = useNow(30_000);
  const [shown, setShown] = useState(0);
  const read = useList<Stored>((page, stop) => get(`/v1/configs/agent/${encodeURIComponent(name)}/versions`, page, stop), [name]);
  const versions = read.value ?? [];
  const [after, before] = [versions[shown], versions[shown + 1]];
  if (read.error instanceof Problem && read.error.status === 404) return <p class="quiet section">It is not stored in the database, so it has no versions here. Turns keep the package that they started with.</p>;
  return (
    <section>
      <h3>Versions</h3>
      <Wrong error={read.error} />
      <ol class="versions">
        {versions.map((version, at) => (
          <li><button type="button" class="plain" aria-pressed={at === shown} onClick={() => setShown(at)}>Version {version.version}</button> <time class="quiet" title={moment(version.at)}>{past(version.at, now)}{version.body === undefined && ", deleted"}</time></li>
        ))}
      </ol>
      <ReadOn more={read.more} what="versions" />
      {after && <Change before={before} after={after} />}
    </section>
  );
}

/** Shows what a version changed. After a deletion, the next version is shown in full. */
function Change({ before, after }: { before: Stored | undefined; after: Stored }) {
  if (after.body === undefined) return <p class="quiet" role="status">Version {after.version} deleted it.</p>;
  if (before?.body === undefined) return <Json of={after.body} label={`Version ${after.version}`} />;
  return <Difference before={pretty(before.body)} after={pretty(after.body)} label={`From version ${before.version} to ${after.version}`} />;
}
