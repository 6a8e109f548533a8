/** The messages of a session, turn by turn, and partial replies. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Draft } from "../drafts.ts";
import { post } from "../api.ts";
import { clock, moment } from "../format.ts";
import { useKeys } from "../keys.ts";
import type { Known } from "../session-model.ts";
import type { Effect, Message, Node, Part, ToolUse, Turn } from "../shapes.ts";
import { pretty } from "../exact.ts";
import { Picture } from "./files.tsx";
import { Prose } from "./prose.tsx";
import { Rerun } from "./rerun.tsx";
import { Text } from "./text.tsx";

interface Props {
  known: Known;
  earlier: () => void;
  before: (message: Message) => Promise<Message | undefined>;
  fork: (at: Node) => void;
  show: (effect: Effect) => void;
}

/** Distance from the end, in pixels, within which the view scrolls with new messages. */
const NEAR = 80;

export function Conversation({ known, earlier, before, fork, show }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  // The selection is an id, not an index, because earlier messages may be inserted before it.
  const [chosen, setChosen] = useState<string>();
  const [asksAgain, setAsksAgain] = useState<string>();
  const { messages, drafts } = known;
  const results = new Map(messages.filter((message) => message.role === "tool").map((message) => [`${message.turn} ${message.content.call}`, message]));
  const said = messages.filter((message) => message.role !== "tool");
  const selected = said.findIndex((message) => idOf(message) === chosen);
  // While a form is open within the conversation, automatic scrolling is off.
  const form = said.find((message) => idOf(message) === asksAgain && message.role === "user");
  const turns = new Set(messages.map((message) => message.turn));
  const open = [...drafts.values()].filter((draft) => turns.has(draft.turn));
  const ends = new Map(known.turns.map((turn) => [turn.id, turn]));

  useLayoutEffect(() => {
    if (follows.current && !form && box.current) box.current.scrollTop = box.current.scrollHeight;
  });
  const scrolled = () => {
    const element = box.current;
    if (!element) return;
    follows.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
    if (element.scrollTop < NEAR && known.earlier && !form) earlier();
  };
  useEffect(() => {
    if (chosen) box.current?.querySelector("[data-selected]")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  const move = (by: number) => {
    follows.current = false;
    const next = said[Math.max(0, Math.min(said.length - 1, (selected < 0 ? said.length : selected) + by))];
    setChosen(next && idOf(next));
  };
  useKeys([
    { keys: "j", what: "Next message", act: () => move(1) },
    { keys: "k", what: "Message before", act: () => move(-1) },
    { keys: "f", what: "Fork behind the message", act: () => said[selected] && fork(said[selected]) },
    { keys: "r", what: "Ask again from the selected message", act: () => setAsksAgain(chosen) },
  ]);
  return (
    <div class="conversation" ref={box} onScroll={scrolled} tabIndex={0} role="log" aria-label="Conversation" aria-live="off">
      {known.earlier && <button type="button" class="earlier" onClick={earlier}>Earlier messages</button>}
      {known.session && said.length === 0 && <p class="quiet hint">No messages yet. Write below to start.</p>}
      {said.map((message, at) => (
        <Said key={idOf(message)} message={message} known={known} results={results} selected={at === selected} fork={fork} show={show} end={lastOf(said, at) ? ends.get(message.turn) : undefined} again={() => setAsksAgain(idOf(message))}>
          {idOf(message) === asksAgain && message.role !== "user" && at === selected && <p class="quiet" role="status">Only user messages can be asked again.</p>}
          {message === form && known.session && <Rerun session={known.session.id} message={message} before={() => before(message)} close={() => setAsksAgain(undefined)} />}
        </Said>
      ))}
      {open.map((draft) => <Saying key={`${draft.turn} ${draft.key}`} draft={draft} />)}
    </div>
  );
}

function idOf({ session, seq }: Node): string {
  return `${session} ${seq}`;
}

/** Whether a message is the last of its turn. */
function lastOf(said: readonly Message[], at: number): boolean {
  return said[at + 1]?.turn !== said[at]?.turn;
}

interface SaidProps {
  message: Message;
  known: Known;
  results: ReadonlyMap<string, Message>;
  selected: boolean;
  fork: (at: Node) => void;
  show: (effect: Effect) => void;
  end: Turn | undefined;
  again: () => void;
  children: ComponentChildren;
}

function Said({ message, known, results, selected, fork, show, end, again, children }: SaidProps) {
  const own = message.session === known.session?.id;
  return (
    <article class={`said said-${message.role}`} data-selected={selected ? "" : undefined} data-seq={message.seq}>
      <header>
        <b>{message.role === "user" ? "You" : "Agent"}</b>
        <time title={moment(message.at)}>{clock(message.at)}</time>
        <span class="quiet">#{message.seq}{own ? "" : " of the session it was forked from"}</span>
        <span class="act">
          {message.role === "user" && <button type="button" class="plain" onClick={again}>Ask again</button>}
          <button type="button" class="plain" onClick={() => fork(message)}>Fork from here</button>
        </span>
      </header>
      {(message.content.parts ?? []).map((part) => <Piece part={part} role={message.role} session={message.session} />)}
      {(message.content.calls ?? []).map((call) => <CallLine call={call} message={message} result={results.get(`${message.turn} ${call.id}`)} known={known} show={show} />)}
      {children}
      {end && <Ended turn={end} />}
    </article>
  );
}

function Piece({ part, role, session }: { part: Part; role: string; session: string }) {
  switch (part.type) {
    case "text":
      return role === "user" ? <p class="plain-text"><Text of={part.text} /></p> : <Prose of={part.text} />;
    case "reasoning":
      return part.text ? <details class="reasoning"><summary>Thought</summary><p class="plain-text"><Text of={part.text} /></p></details> : null;
    case "attachment":
      return <Picture attachment={part.attachment} session={session} />;
    case "instruction":
      return <details class="reasoning"><summary>Instruction</summary><p class="plain-text"><Text of={part.text} /></p></details>;
    // The page opens nothing that a sender linked.
    case "link":
      return <p class="plain-text"><Text of={`${part.link.name ?? part.link.kind}: ${part.link.url}`} /></p>;
    case "sealed":
      return null;
  }
}

function CallLine({ call, message, result, known, show }: { call: ToolUse; message: Message; result: Message | undefined; known: Known; show: (effect: Effect) => void }) {
  const effect = known.effects.find((effect) => effect.turn === message.turn && effect.kind === "tool_call" && effect.key.endsWith(`:${call.id}`));
  const passed = "json" in call.arguments ? pretty(call.arguments.json).replace(/\s+/g, " ") : call.arguments.broken;
  const state = effect?.state ?? (result ? "done" : "open");
  const note = effect && known.notes.get(`${effect.turn} ${effect.key}`);
  return (
    <button type="button" class={`call call-${state}`} disabled={!effect} onClick={() => effect && show(effect)} title="Show the call">
      <span class="call-name"><Text of={call.tool} /></span>
      <span class="call-passed"><Text of={passed.slice(0, 400)} /></span>
      <span class="call-result">{state === "open" || state === "waits" ? (state === "waits" ? "waits" : <Text of={note ?? "runs"} />) : <Text of={`→ ${(result?.text ?? state).slice(0, 200)}`} />}</span>
    </button>
  );
}

/** A partial reply that no record has replaced yet. */
function Saying({ draft }: { draft: Draft }) {
  return (
    <article class="said said-assistant saying" aria-busy="true">
      <header><b>Agent</b><span class="quiet">says</span></header>
      {draft.gap && <p class="quiet">The reply started before this page was connected; its beginning appears when it is complete.</p>}
      <Prose of={draft.text} />
    </article>
  );
}

function Ended({ turn }: { turn: Turn }) {
  const { end } = turn;
  if (!end || end.how === "answered" || end.how === "joined") return null;
  const why = end.reason ?? end.failure?.message ?? end.failure?.detail ?? end.failure?.code ?? end.budget ?? "";
  return (
    <p class={`ended ended-${end.how}`}>
      The turn ended: <b>{end.how.replaceAll("_", " ")}</b>{why && <span>. <Text of={why} /></span>}
      {RETRYABLE.includes(end.how) && <Retry turn={turn.id} />}
    </p>
  );
}

/** Outcomes after which the input can be retried as a new turn. */
const RETRYABLE = ["failed", "cancelled", "sealed", "out_of_budget"];

function Retry({ turn }: { turn: string }) {
  const [error, setError] = useState<Error>();
  const retry = () => void post(`/v1/turns/${turn}/retry`, {}).then(() => setError(undefined), setError);
  return <> <button type="button" onClick={retry}>Retry</button>{error && <span role="alert"> {error.message}</span>}</>;
}
