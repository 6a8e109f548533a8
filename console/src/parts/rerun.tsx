/**
 * Reruns a conversation from a message. Either forks it with another agent or other words, or replays it in memory with another
 * model or prompt and compares both runs.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, path, post } from "../api.ts";
import { money } from "../format.ts";
import { useRead } from "../hooks.ts";
import { useKeys } from "../keys.ts";
import { go } from "../route.ts";
import type { Agent, Compared, Course, Message, Node, Page, Receipt, Session, WholeTurn } from "../shapes.ts";
import { plain } from "../visible.ts";
import { SideBySide } from "./difference.tsx";
import { Wrong } from "./notice.tsx";
import { Text } from "./text.tsx";

interface Props {
  session: string;
  message: Message;
  /** Returns the previous message, or `undefined` for the first. */
  before: () => Promise<Node | undefined>;
  close: () => void;
}

export function Rerun({ session, message, before, close }: Props) {
  const agents = useRead((stop) => get<Page<Agent>>("/v1/agents", {}, stop), []);
  const turn = useRead((stop) => get<WholeTurn>(`/v1/turns/${message.turn}`, {}, stop), [message.turn]);
  const [chosen, setChosen] = useState<string>();
  // Without a name, the server uses its first agent, which may not be the one that answered.
  const agent = chosen ?? turn.value?.agent ?? "";
  const names = agents.value?.items.map(({ name }) => name) ?? [];
  const [text, setText] = useState(message.text);
  const [error, setError] = useState<Error>();
  const form = useRef<HTMLFormElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus({ preventScroll: true }), []);
  // The form grows when its data arrives, so it is scrolled into view again.
  useEffect(() => form.current?.scrollIntoView({ block: "nearest" }), [agents.value, turn.value]);
  useKeys([{ keys: "Escape", what: "Close the form", act: close }]);
  const pressed = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || event.isComposing) return;
    event.preventDefault();
    close();
  };
  const run = async (event: Event) => {
    event.preventDefault();
    try {
      const at = await before();
      const fork = at ? await post<Session>(`/v1/sessions/${at.session}/fork`, { at: at.seq }) : await post<Session>("/v1/sessions", {});
      await post<Receipt>(`/v1/sessions/${fork.id}/turns`, { text, agent });
      go(path("/compare", { left: session, right: fork.id }));
    } catch (error) {
      setError(error as Error);
    }
  };
  return (
    <form ref={form} class="rerun" onSubmit={(event) => void run(event)} onKeyDown={pressed}>
      <label for={`rerun-${message.seq}`}>Ask again from here, in a new branch</label>
      <textarea ref={field} id={`rerun-${message.seq}`} rows={Math.min(6, text.split("\n").length + 1)} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <Wrong error={error ?? agents.error ?? turn.error} />
      <div class="acts">
        <select aria-label="Agent" value={agent} onChange={(event) => setChosen(event.currentTarget.value)}>
          {agent !== "" && !names.includes(agent) && <option value={agent}>{plain(agent)} · no longer here</option>}
          {agents.value?.items.map(({ name, model }) => <option value={name}>{plain(name)} · {plain(model)}{name === turn.value?.agent ? " · answered originally" : ""}</option>)}
        </select>
        <button type="submit" class="primary" disabled={agent === ""}>Run and compare</button>
        <button type="button" onClick={close}>Back</button>
      </div>
      <Otherwise session={session} turn={message.turn} agent={agent} />
    </form>
  );
}

/** Replays the turns from here with another model or prompt. Writes nothing and does not execute recorded effects again. */
function Otherwise({ session, turn, agent }: { session: string; turn: string; agent: string }) {
  const [model, setModel] = useState("");
  const [prompt, setPrompt] = useState("");
  const [runs, setRuns] = useState(false);
  const [error, setError] = useState<Error>();
  const [compared, setCompared] = useState<Compared>();
  const run = async () => {
    setRuns(true);
    try {
      const wish = { from: turn, agent, ...(model ? { model } : {}), ...(prompt ? { prompt } : {}) };
      setCompared(await post<Compared>(`/v1/sessions/${session}/rerun`, wish));
      setError(undefined);
    } catch (error) {
      setError(error as Error);
    } finally {
      setRuns(false);
    }
  };
  return (
    <fieldset class="otherwise">
      <legend>Or rerun the turns from here, without storing anything</legend>
      <div class="acts">
        <input class="grow" aria-label="Model" placeholder="another model, like openai/gpt-5" value={model} onInput={(event) => setModel(event.currentTarget.value)} onKeyDown={(event) => event.key === "Enter" && (event.preventDefault(), void run())} />
        <button type="button" disabled={runs || agent === ""} onClick={() => void run()}>{runs ? "Runs…" : "Try and compare"}</button>
      </div>
      <textarea aria-label="Prompt" placeholder="another prompt, in place of the agent's" rows={2} value={prompt} onInput={(event) => setPrompt(event.currentTarget.value)} />
      <Wrong error={error} />
      {compared && <Courses of={compared} />}
    </fieldset>
  );
}

function Courses({ of }: { of: Compared }) {
  return (
    <div class="courses" role="region" aria-label="Then and now" tabIndex={0}>
      <p class="quiet" role="status">{of.changed} of {of.turns.length} {of.turns.length === 1 ? "turn differs" : "turns differ"} · {of.reused} calls from the recording, {of.ran} made{of.not_made.length > 0 ? `, ${of.not_made.length} not made` : ""} · {money(of.recorded_cost)} then, {money(of.rerun_cost)} now</p>
      {of.turns.map(({ index, input, recorded, rerun }) => (
        <article>
          <h2>Turn {index + 1}: <Text of={input.slice(0, 120)} /></h2>
          <SideBySide before={course(recorded)} after={course(rerun)} names={[`Then · ${money(recorded.cost)}`, `Now · ${money(rerun.cost)}`]} label={`Turn ${index + 1}, recorded and rerun`} />
        </article>
      ))}
    </div>
  );
}

/** Formats a run as text: its calls with their results, and the answer. */
function course({ calls, end, answer }: Course): string {
  const lines = calls.map(({ tool, arguments: passed, result }) => `${tool} ${JSON.stringify(passed)} → ${JSON.stringify(result)}`);
  return [...lines, answer ?? end].join("\n");
}
