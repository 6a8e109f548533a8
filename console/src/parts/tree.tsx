/** The turn tree of a session: its turns, branches and heads. */
import { useMemo } from "preact/hooks";
import { get, post } from "../api.ts";
import { short } from "../format.ts";
import { branches, LANE, ROW, wire } from "../branches.ts";
import { useRead } from "../hooks.ts";
import { go } from "../route.ts";
import type { Known } from "../session-model.ts";
import type { Head, Message, Node, Page, Session } from "../shapes.ts";
import { plain } from "../visible.ts";
import { Text } from "./text.tsx";

interface Props {
  known: Known;
  head: string;
  fork: (at: Node) => void;
  earlier: () => void;
  failed: (error: Error) => void;
}

/** Maximum number of other heads whose messages are loaded as labels for their turns. */
const HEADS = 8;

export function Tree({ known, head, fork, earlier, failed }: Props) {
  const { session } = known;
  const lines = useMemo(() => branches(known.turns, session?.heads ?? []), [known.turns, session]);
  // The loaded conversation does not contain messages of other branches.
  const others = (session?.heads ?? []).filter(({ name }) => name !== head).slice(0, HEADS);
  const read = useRead((stop) => Promise.all(others.map(({ name }) => get<Page<Message>>(`/v1/sessions/${session?.id}/messages`, { head: name }, stop))), [session?.id, session?.last, head]);
  const titles = useMemo(() => {
    const said = [...known.messages, ...(read.value ?? []).flatMap((page) => page.items)];
    return new Map(said.filter((message) => message.role === "user").map((message) => [message.turn, message.text]));
  }, [known.messages, read.value]);
  if (!session) return null;
  const rewind = async (to: number) => {
    try {
      await post(`/v1/sessions/${session.id}/rewind`, { to, head });
    } catch (error) {
      failed(error as Error);
    }
  };
  const shown = new Set(lines.flatMap((line) => line.heads));
  const apart = session.heads.filter(({ name, at }) => at !== undefined && !shown.has(name));
  const lanes = Math.max(1, ...lines.map((line) => line.lane + 1));
  return (
    <div class="tree" tabIndex={0} role="region" aria-label="Tree">
      {session.forked_from && <p class="quiet">Forked from message #{session.forked_from.seq} of <a href={`/sessions/${session.forked_from.session}`}>{short(session.forked_from.session)}</a></p>}
      {known.turnsBefore > 0 && <button type="button" class="earlier" onClick={earlier}>Earlier turns <span class="quiet">{known.turnsBefore} more</span></button>}
      {apart.length > 0 && <p class="quiet">Further back: {apart.map(({ name }) => <HeadChip session={session} name={name} head={head} />)}</p>}
      <ol style={{ paddingLeft: `${lanes * LANE + 8}px` }}>
        <svg width={lanes * LANE + 8} height={lines.length * ROW} aria-hidden="true">
          {lines.map((line, at) => <path d={wire(line, at)} class="wire" />)}
          {lines.map((line, at) => <circle cx={line.lane * LANE + 8} cy={at * ROW + ROW / 2} r="4" class={line.heads.includes(head) ? "knot here" : "knot"} />)}
        </svg>
        {lines.map((line) => (
          <li style={{ height: `${ROW}px` }}>
            <span class="tree-title"><span class="quiet">{line.turn.index + 1}</span> <Text of={(titles.get(line.turn.id) ?? line.turn.end?.how ?? line.turn.state).slice(0, 120)} /></span>
            {line.heads.map((name) => <HeadChip session={session} name={name} head={head} />)}
            <button type="button" class="plain" onClick={() => fork({ session: line.turn.session, seq: line.turn.last })}>Fork<span class="sr"> behind turn {line.turn.index + 1}</span></button>
            <button type="button" class="plain" disabled={line.heads.includes(head)} onClick={() => void rewind(line.turn.last)} title={`Move ${plain(head)} back to the end of this turn`}>Rewind<span class="sr"> to turn {line.turn.index + 1}</span></button>
          </li>
        ))}
      </ol>
      <NewHead session={session} head={head} failed={failed} />
    </div>
  );
}

function HeadChip({ session, name, head }: { session: Session; name: string; head: string }) {
  return <a class={name === head ? "chip here" : "chip"} href={`/sessions/${session.id}?head=${encodeURIComponent(name)}`}><Text of={name} /></a>;
}

/** Creates a branch at the end of the current head. */
function NewHead({ session, head, failed }: { session: Session; head: string; failed: (error: Error) => void }) {
  const at = session.heads.find(({ name }: Head) => name === head)?.at;
  // A head without messages in this session ends in its parent session. In that case, only the main head can be branched.
  const own = at?.session === session.id;
  if (!own && head !== "main") return null;
  const make = async (event: SubmitEvent) => {
    event.preventDefault();
    const name = new FormData(event.currentTarget as HTMLFormElement).get("name");
    if (typeof name !== "string" || !name.trim()) return;
    try {
      await post(`/v1/sessions/${session.id}/fork`, { head: name.trim(), ...(own ? { at: at.seq } : {}) });
      go(`/sessions/${session.id}?head=${encodeURIComponent(name.trim())}`);
    } catch (error) {
      failed(error as Error);
    }
  };
  return (
    <form class="new-head" onSubmit={(event) => void make(event)}>
      <label for="head-name">New head at the end of <Text of={head} /></label>
      <input id="head-name" name="name" placeholder="name" autocomplete="off" />
      <button type="submit">Branch</button>
    </form>
  );
}
