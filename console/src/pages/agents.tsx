/** Who answers: agents with their packages, and every version of what is kept in the database, with what changed. */
import { useState } from "preact/hooks";
import { get } from "../api.ts";
import { pretty } from "../exact.ts";
import { ago, moment } from "../format.ts";
import { useNow, useRead, useTitle } from "../hooks.ts";
import { useKeys } from "../keys.ts";
import { Difference } from "../parts/difference.tsx";
import { Json } from "../parts/json.tsx";
import { Wrong } from "../parts/notice.tsx";
import { Text } from "../parts/text.tsx";
import { go } from "../route.ts";
import type { Agent, Page, Stored } from "../shapes.ts";

export function AgentsPage({ name }: { name: string | undefined }) {
  useTitle(name ?? "Agents");
  const read = useRead((stop) => get<Page<Agent>>("/v1/agents", {}, stop), []);
  const stored = useRead((stop) => get<Page<Stored>>("/v1/configs/agent", { limit: 500 }, stop), []);
  const agents = read.value?.items ?? [];
  const kept = (stored.value?.items ?? []).filter((config) => !agents.some((agent) => agent.name === config.name));
  const names = [...agents.map((agent) => agent.name), ...kept.map((config) => config.name)];
  const shown = name ?? names[0];
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
              <span class="quiet">in the database, answers after the next start</span>
            </a>
          ))}
        </nav>
        <div class="scrolls" tabIndex={0} role="region" aria-label="Agent">
          {shown && agents.some((agent) => agent.name === shown) && <AgentDetail key={shown} name={shown} />}
          {shown && <Versions key={`versions of ${shown}`} name={shown} known={(stored.value?.items ?? []).some((config) => config.name === shown)} />}
        </div>
      </div>
    </div>
  );
}

function AgentDetail({ name }: { name: string }) {
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
    </section>
  );
}

function Versions({ name, known }: { name: string; known: boolean }) {
  const now = useNow(30_000);
  const [shown, setShown] = useState(0);
  const read = useRead((stop) => (known ? get<Page<Stored>>(`/v1/configs/agent/${encodeURIComponent(name)}/versions`, {}, stop) : Promise.resolve({ items: [] })), [name, known]);
  const versions = read.value?.items ?? [];
  const [after, before] = [versions[shown], versions[shown + 1]];
  if (!known) return <p class="quiet section">Its file is not in the database, so it has no versions here. Turns keep the package they began with.</p>;
  return (
    <section>
      <h3>Versions</h3>
      <Wrong error={read.error} />
      <ol class="versions">
        {versions.map((version, at) => (
          <li><button type="button" class="plain" aria-pressed={at === shown} onClick={() => setShown(at)}>Version {version.version}</button> <time class="quiet" title={moment(version.at)}>{ago(version.at, now)} ago</time></li>
        ))}
      </ol>
      {after && before && <Difference before={pretty(before.body)} after={pretty(after.body)} label={`From version ${before.version} to ${after.version}`} />}
      {after && !before && <Json of={after.body} label={`Version ${after.version}`} />}
    </section>
  );
}
