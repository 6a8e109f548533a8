/** Details of one effect: request, result, policy decisions, attempts. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { get } from "../api.ts";
import { duration, moment, money } from "../format.ts";
import { useRead } from "../hooks.ts";
import { argumentsOf } from "../provenance.ts";
import type { Decided, Effect, Incident, Ruling, Shown } from "../shapes.ts";
import { plain } from "../visible.ts";
import { Json } from "./json.tsx";
import { Wrong } from "./notice.tsx";
import { Sinks } from "./sinks.tsx";
import { waitName, State } from "./state.tsx";
import { Text } from "./text.tsx";
import { nameOf, tokens } from "./timeline.tsx";

export function EffectDetail({ effect, close }: { effect: Effect; close: () => void }) {
  const { call } = effect;
  return (
    <div class="detail" tabIndex={0} role="region" aria-label={plain(nameOf(effect))}>
      <header>
        <button type="button" class="plain" onClick={close}>← Timeline</button>
        <h2><Text of={nameOf(effect)} /></h2>
        <State of={effect.state} />
      </header>
      <dl class="facts">
        <Fact name="Kind">{effect.kind.replaceAll("_", " ")}</Fact>
        <Fact name="Place"><code><Text of={effect.key} /></code></Fact>
        <Fact name="Asked">{moment(effect.from)} <span class="quiet">record {effect.seq}</span></Fact>
        {effect.until !== undefined && <Fact name="Answered">{moment(effect.until)} <span class="quiet">record {effect.answered} · after {duration(effect.until - effect.from)}</span></Fact>}
        <Fact name="Attempt">{effect.attempts}</Fact>
        {effect.usage && <Fact name="Tokens">{tokens(effect.usage)}{effect.usage.cache_read ? <span class="quiet"> {effect.usage.cache_read} from the cache</span> : null}</Fact>}
        {effect.cost && <Fact name="Cost">{money(effect.cost)} <span class="quiet">{effect.cost}</span></Fact>}
        {call?.class && <Fact name="Class">{call.class.replaceAll("_", " ")}</Fact>}
        {call?.id && <Fact name="Idempotency key"><code>{call.id}</code></Fact>}
        {call?.labels && call.labels.length > 0 && <Fact name="Untrusted sources">{call.labels.map((label) => <span class="chip warn"><Text of={label} /></span>)}</Fact>}
        {call?.ruling && <Fact name="Policy"><RulingLine ruling={call.ruling} /></Fact>}
        {effect.decisions && effect.decisions.length > 0 && <Fact name="Decisions"><ol class="incidents">{effect.decisions.map((decided) => <li key={decided.seq}><DecidedLine decided={decided} /></li>)}</ol></Fact>}
        {effect.replays !== undefined && effect.replays > 0 && <Fact name="Replayed">{effect.replays === 1 ? "once" : `${effect.replays} times`} <span class="quiet">answered from the journal after another lease resumed the turn</span></Fact>}
        {effect.hooks && effect.hooks.length > 0 && <Fact name="Changed by hooks">{effect.hooks.join(", ")}</Fact>}
        {effect.incidents && effect.incidents.length > 0 && <Fact name="Incidents"><ol class="incidents">{effect.incidents.map((incident) => <li><IncidentLine incident={incident} from={effect.from} /></li>)}</ol></Fact>}
        {effect.waits && effect.waits.length > 0 && <Fact name="Waits for">{effect.waits.map(waitName).join(", ")}</Fact>}
      </dl>
      <Sinks of={call?.provenance} passed={argumentsOf(effect.request)} label="Origins of the sensitive values" />
      <h3>Request</h3>
      <Json of={effect.request} label="Request" />
      {effect.kind === "model_call" && effect.answered !== undefined && <WasShown key={`${effect.turn} ${effect.key}`} effect={effect} />}
      {effect.outcome !== undefined && (
        <div>
          <h3>Outcome</h3>
          <Json of={effect.outcome} label="Outcome" />
        </div>
      )}
    </div>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}

/** An incident of an effect, with its time. */
function IncidentLine({ incident: { what, attempt, at, seq, detail }, from }: { incident: Incident; from: number }) {
  const words = { again: `attempt ${attempt} started`, failed: `attempt ${attempt} failed`, paced: "a rate limit applied", payment: "a payment", stuck: "the turn was stuck" }[what];
  return (
    <>
      <span title={moment(at)}>{words} <span class="quiet">after {duration(at - from)} · record {seq}</span></span>
      {detail && <Json of={detail} label={words} />}
    </>
  );
}

/** A policy decision at one policy point. */
function DecidedLine({ decided: { point, at, seq, ruling, labels, reason } }: { decided: Decided }) {
  return (
    <>
      <RulingLine ruling={ruling} at={point} /> {reason && <Text of={reason} />} <span class="quiet" title={moment(at)}>record {seq}</span>
      {labels?.map((label) => <span class="chip warn"><Text of={label} /></span>)}
    </>
  );
}

/** The full prompt of a model call. Loaded on demand, because it may contain the whole conversation. */
function WasShown({ effect }: { effect: Effect }) {
  const [wanted, setWanted] = useState(false);
  const read = useRead((stop) => (wanted ? get<Shown>(`/v1/turns/${effect.turn}/effects/request`, { key: effect.key }, stop) : Promise.resolve(undefined)), [wanted]);
  const { value } = read;
  if (!wanted) return <p class="section"><button type="button" onClick={() => setWanted(true)}>Show the request to the model</button></p>;
  return (
    <section aria-label="Request to the model" class="was-shown">
      <Wrong error={read.error} />
      {value && (
        <>
          <h3>Prompt</h3>
          <Json of={value.system || "(none)"} label="Prompt" />
          <h3>{value.tools ? `${value.tools.length} tools` : "Tools"}</h3>
          {value.tools ? <Json of={value.tools} label="Tools" /> : <p class="quiet">The tool definitions were not stored yet when this turn started.</p>}
          <h3>{value.messages.length} {value.messages.length === 1 ? "message" : "messages"}</h3>
          <Json of={value.messages} label="Messages" />
        </>
      )}
    </section>
  );
}

function RulingLine({ ruling, at }: { ruling: Ruling; at?: string }) {
  const [word, more] = typeof ruling.decision === "string" ? [ruling.decision, undefined] : (Object.entries(ruling.decision)[0] ?? ["", undefined]);
  return (
    <span>
      <b>{word.replaceAll("_", " ")}</b>{at && ` at ${at}`} by rule <code><Text of={ruling.rule} /></code> <span class="quiet">of policy {ruling.policy.slice(0, 12)}</span>
      {more !== undefined && <Json of={more} label="Details of the rule" />}
    </span>
  );
}
