/** The effects of turns as a waterfall chart: newest turn first, each with its own time axis. */
import { useMemo, useState } from "preact/hooks";
import { get } from "../api.ts";
import type { Draft } from "../drafts.ts";
import { clock, count, duration, moment, money, size } from "../format.ts";
import { useRead } from "../hooks.ts";
import { useKeys } from "../keys.ts";
import { scale, type Scale } from "../scale.ts";
import type { Known } from "../session-model.ts";
import type { Decided, Effect, Resume, Turn, Usage, WholeTurn } from "../shapes.ts";
import { pieces, retries, rows, spans } from "../waterfall.ts";
import { Empty } from "./notice.tsx";
import { Text } from "./text.tsx";

interface Props {
  known: Known;
  now: number;
  show: (effect: Effect) => void;
  earlier: () => void;
}

export function Timeline({ known, now, show, earlier }: Props) {
  const [selected, setSelected] = useState(-1);
  const turns = useMemo(() => [...known.turns].reverse().filter((turn) => turn.end?.how !== "joined"), [known.turns]);
  const byTurn = useMemo(() => Map.groupBy(known.effects, (effect) => effect.turn), [known.effects]);
  const all = turns.flatMap((turn) => byTurn.get(turn.id) ?? []);
  const move = (by: number) => setSelected((at) => Math.max(0, Math.min(all.length - 1, at + by)));
  useKeys([
    { keys: "J", what: "Next effect", act: () => move(1) },
    { keys: "K", what: "Effect before", act: () => move(-1) },
    { keys: "o", what: "Open the effect", act: () => all[selected] && show(all[selected]) },
  ]);
  if (known.session && turns.length === 0) return <Empty title="No turns yet">Model calls, tool calls and waits of turns appear here.</Empty>;
  return (
    <div class="timeline" tabIndex={0} role="region" aria-label="Timeline">
      {turns.map((turn) => (
        <TurnLine key={turn.id} turn={turn} effects={byTurn.get(turn.id) ?? []} known={known} now={now} selected={all[selected]} show={show} />
      ))}
      {known.turnsBefore > 0 && <button type="button" class="earlier" onClick={earlier}>Earlier turns <span class="quiet">{known.turnsBefore} more</span></button>}
    </div>
  );
}

interface LineProps {
  turn: Turn;
  effects: readonly Effect[];
  known: Known;
  now: number;
  selected: Effect | undefined;
  show: (effect: Effect) => void;
}

function TurnLine({ turn, effects, known, now, selected, show }: LineProps) {
  const stands = turn.end?.how ?? (turn.state === "active" && known.session?.state === "parked" ? "waits" : turn.state);
  const drafts = [...known.drafts.values()].filter((draft) => draft.turn === turn.id && !effects.some((effect) => effect.key === draft.key));
  // An ended turn does not depend on the clock.
  const time = turn.state === "ended" ? 0 : now;
  const line = useMemo(() => scale(effects.flatMap((effect) => spans(effect, time))), [effects, time]);
  // The details of an ended turn are final. For a running turn, each new record reloads them.
  const newest = turn.state === "ended" ? "ended" : effects.reduce((seq, effect) => Math.max(seq, effect.answered ?? effect.seq), turn.last);
  const whole = useRead((stop) => get<WholeTurn>(`/v1/turns/${turn.id}`, {}, stop), [turn.id, newest]).value;
  const resumes = whole?.resumes ?? [];
  return (
    <section class="turn" aria-label={`Turn ${turn.index + 1}`}>
      <header>
        <h2>Turn {turn.index + 1}</h2>
        <span class={`end end-${stands}`}>{stands.replaceAll("_", " ")}</span>
        {effects[0] && <time title={moment(effects[0].from)}>{clock(effects[0].from)}</time>}
        {turn.state === "ended" && whole && <TurnCost whole={whole} />}
      </header>
      {whole?.decisions?.map((decided) => <DecisionLine key={decided.seq} decided={decided} />)}
      {effects.length > 0 && (
        <ol class="effects">
          {rows(effects, resumes).map((row) =>
            "effect" in row ? (
              <li key={row.effect.key}><EffectLine effect={row.effect} line={line} resumes={resumes} now={time} note={known.notes.get(`${turn.id} ${row.effect.key}`)} selected={row.effect === selected} show={show} /></li>
            ) : (
              <li key={`resume ${row.resume.seq}`}><ResumeLine resume={row.resume} /></li>
            ),
          )}
          {drafts.map((draft) => <li key={draft.key}><DraftLine draft={draft} /></li>)}
        </ol>
      )}
      {effects.length === 0 && drafts.map((draft) => <DraftLine draft={draft} />)}
      {line.folds.length > 0 && <p class="quiet folds">{line.folds.map((fold) => `${duration(fold.ms)} of waiting hidden`).join(" · ")}</p>}
    </section>
  );
}

/** A policy decision about the turn itself. */
function DecisionLine({ decided }: { decided: Decided }) {
  return (
    <p class="of-turn">
      <b>{decided.decision}</b> at {decided.point} by rule <code><Text of={decided.ruling.rule} /></code>{decided.reason && <>: <Text of={decided.reason} /></>} <span class="quiet">policy {decided.ruling.policy.slice(0, 12)} · record {decided.seq}</span>
    </p>
  );
}

/** Marks where another lease resumed the turn. */
function ResumeLine({ resume: { at, lease, worker, replayed, seq } }: { resume: Resume }) {
  const before = replayed === 0 ? "no effects from the journal" : `${replayed} ${replayed === 1 ? "effect" : "effects"} from the journal`;
  return (
    <p class="resumed" title={moment(at)}>
      <b>Resumed</b> at {clock(at)}, {before} <span class="quiet">lease {lease} · {worker.slice(0, 12)}… · record {seq}</span>
    </p>
  );
}

interface EffectLineProps {
  effect: Effect;
  line: Scale;
  resumes: readonly Resume[];
  now: number;
  note: string | undefined;
  selected: boolean;
  show: (effect: Effect) => void;
}

function EffectLine({ effect, line, resumes, now, note, selected, show }: EffectLineProps) {
  const until = effect.until ?? now;
  return (
    <button type="button" class={`effect effect-${effect.kind} effect-${effect.state}`} data-selected={selected ? "" : undefined} onClick={() => show(effect)}>
      <span class={`effect-name depth-${Math.min(3, depth(effect))}`}><i aria-hidden="true" /><span><Text of={nameOf(effect)} /></span></span>
      <span class="track" aria-hidden="true">
        {line.folds.map((fold) => <i class="fold" style={{ left: `${fold.at * 100}%`, width: `${fold.width * 100}%` }} />)}
        {pieces(effect, now).map(({ from, until, is }) => {
          const [left, right] = [line.place(from), line.place(until)];
          return <i class={`span span-${is}`} style={{ left: `${left * 100}%`, width: `${Math.max(0.4, (right - left) * 100)}%` }} />;
        })}
        {effect.incidents?.filter(({ what }) => what !== "again" && what !== "failed").map((incident) => <i class={`tick tick-${incident.what}`} style={{ left: `${line.place(incident.at) * 100}%` }} />)}
        {resumes.map((resume) => <i class="resume" style={{ left: `${line.place(resume.at) * 100}%` }} />)}
      </span>
      <span class="num">{effect.state === "open" || effect.state === "waits" ? effect.state === "open" ? "runs" : "waits" : duration(until - effect.from)}</span>
      <span class="effect-more">{facts(effect, note).map((fact) => <span><Text of={fact} /></span>)}</span>
    </button>
  );
}

/** A partial reply that has no record yet. */
function DraftLine({ draft }: { draft: Draft }) {
  return (
    <div class="effect effect-model_call effect-open">
      <span class="effect-name"><i aria-hidden="true" />model</span>
      <span class="track" aria-hidden="true"><i class="span streaming" /></span>
      <span class="num">says</span>
      <span class="effect-more"><span>{size(draft.bytes)}</span></span>
    </div>
  );
}

/** Returns the label of an effect. */
export function nameOf(effect: Effect): string {
  if (effect.call) return effect.call.tool;
  const request = (effect.request ?? {}) as { model?: string; name?: string };
  if (effect.kind === "model_call" || effect.kind === "direct_call") return request.model ?? "model";
  if (effect.kind === "durable_step") return request.name ?? effect.key.split("/").at(-1) ?? "step";
  const names: Record<string, string> = { sleep: "sleep", await_event: "wait", checkpoint: "checkpoint", sync_environment: "configuration" };
  return names[effect.kind] ?? effect.kind;
}

/** Returns the nesting depth of an effect: steps and waits within calls. */
function depth(effect: Effect): number {
  const below = effect.key.split("/").slice(2);
  return Math.max(0, below.filter((part) => /^(child|step|sleep|event|direct|call)/.test(part)).length - (effect.kind === "model_call" ? 0 : 1));
}

function facts(effect: Effect, note: string | undefined): string[] {
  const found: string[] = [];
  if (effect.usage) found.push(tokens(effect.usage));
  if (effect.cost) found.push(money(effect.cost));
  const tried = retries(effect);
  // Model calls show their number of failed attempts instead.
  if (effect.attempts > 1 && effect.kind !== "model_call" && effect.kind !== "direct_call") found.push(`attempt ${effect.attempts}`);
  else if (tried > 0) found.push(tried === 1 ? "1 attempt failed" : `${tried} attempts failed`);
  if (effect.replays) found.push("replayed");
  const befell = new Set(effect.incidents?.map((incident) => incident.what));
  if (befell.has("paced")) found.push("held by a rate");
  if (befell.has("payment")) found.push("pays");
  if (befell.has("stuck")) found.push("was stuck");
  if (effect.call?.ruling) found.push(`rule ${effect.call.ruling.rule}`);
  for (const { point, decision, ruling } of effect.decisions ?? []) found.push(`${decision} at ${point}, rule ${ruling.rule}`);
  if (effect.call?.labels?.length) found.push("untrusted");
  if (effect.state === "failed" || effect.state === "refused" || effect.state === "unknown") found.push(effect.state);
  if (note) found.push(note);
  return found;
}

/** Formats input and output tokens. */
export function tokens(usage: Usage): string {
  const read = (usage.input ?? 0) + (usage.cache_read ?? 0) + (usage.cache_write ?? 0);
  return `${count(read)} → ${count((usage.output ?? 0) + (usage.reasoning ?? 0))} tok`;
}

/** The totals of a turn. */
function TurnCost({ whole }: { whole: WholeTurn }) {
  const { durability } = whole;
  const kept = [`${durability.records} records`, size(durability.bytes), ...(durability.commits === undefined ? ["commits not counted"] : [`${durability.commits} commits`]), ...(durability.waited_ms === undefined ? [] : [`${Number(durability.waited_ms).toFixed(1)} ms on disk`])];
  const counted = durability.commits === undefined ? "Commits and time on disk are unknown for imported turns and for turns of older versions." : "Cost of durability of the turn";
  return (
    <span class="turn-cost">
      {whole.agent && <a href={`/agents/${encodeURIComponent(whole.agent)}?turn=${whole.id}`} title="The package of the turn"><Text of={whole.agent} /></a>}
      {Number(whole.cost) > 0 && <span>{money(whole.cost)}</span>}
      <span title={counted}>{kept.join(" · ")}</span>
    </span>
  );
}
