/** Asks again from a message on, of another agent or in other words, in a branch of its own; then both are shown side by side. */
import { useState } from "preact/hooks";
import { get, path, post } from "../api.ts";
import { useRead } from "../hooks.ts";
import { go } from "../route.ts";
import type { Agent, Message, Node, Page, Receipt, Session } from "../shapes.ts";
import { Wrong } from "./notice.tsx";

interface Props {
  session: string;
  message: Message;
  /** The message before; none if it is the first. */
  before: Node | undefined;
  close: () => void;
}

export function Rerun({ session, message, before, close }: Props) {
  const agents = useRead((stop) => get<Page<Agent>>("/v1/agents", {}, stop), []);
  const [agent, setAgent] = useState("");
  const [text, setText] = useState(message.text);
  const [error, setError] = useState<Error>();
  const run = async (event: Event) => {
    event.preventDefault();
    try {
      const fork = before ? await post<Session>(`/v1/sessions/${before.session}/fork`, { at: before.seq }) : await post<Session>("/v1/sessions", {});
      await post<Receipt>(`/v1/sessions/${fork.id}/turns`, { text, ...(agent ? { agent } : {}) });
      go(path("/compare", { left: session, right: fork.id }));
    } catch (error) {
      setError(error as Error);
    }
  };
  return (
    <form class="rerun" onSubmit={(event) => void run(event)}>
      <label for={`rerun-${message.seq}`}>Ask again from here, in a branch of its own</label>
      <textarea id={`rerun-${message.seq}`} rows={Math.min(6, text.split("\n").length + 1)} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <Wrong error={error ?? agents.error} />
      <div class="acts">
        <select aria-label="Agent" value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
          <option value="">the same agent</option>
          {agents.value?.items.map(({ name, model }) => <option value={name}>{name} · {model}</option>)}
        </select>
        <button type="submit" class="primary">Run and compare</button>
        <button type="button" onClick={close}>Back</button>
      </div>
    </form>
  );
}
