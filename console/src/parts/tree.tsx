/** The tree of a session: its turns, where they branch, and where its heads stand. */
import { useMemo } from "preact/hooks";
import { post } from "../api.ts";
import { short } from "../format.ts";
import { branches, type Branch } from "../branches.ts";
import { go } from "../route.ts";
import type { Known } from "../session-model.ts";
import { Text } from "./text.tsx";

interface Props {
  known: Known;
  head: string;
  fork: (at: number) => void;
  failed: (error: Error) => void;
}

const [ROW, LANE] = [40, 16];

export function Tree({ known, head, fork, failed }: Props) {
  const { session } = known;
  const lines = useMemo(() => branches(known.turns, session?.heads ?? []), [known.turns, session]);
  const titles = useMemo(() => new Map(known.messages.filter((message) => message.role === "user").map((message) => [message.turn, message.text])), [known.messages]);
  if (!session) return null;
  const rewind = async (to: number) => {
    try {
      await post(`/v1/sessions/${session.id}/rewind`, { to, head });
    } catch (error) {
      failed(error as Error);
    }
  };
  const lanes = Math.max(1, ...lines.map((line) => line.lane + 1));
  return (
    <div class="tree" tabIndex={0} role="region" aria-label="Tree">
      {session.forked_from && <p class="quiet">Forked from message #{session.forked_from.seq} of <a href={`/sessions/${session.forked_from.session}`}>{short(session.forked_from.session)}</a></p>}
      <ol style={{ paddingLeft: `${lanes * LANE + 8}px` }}>
        <svg width={lanes * LANE + 8} height={lines.length * ROW} aria-hidden="true">
          {lines.map((line, at) => <path d={wire(line, at)} class="wire" />)}
          {lines.map((line, at) => <circle cx={line.lane * LANE + 8} cy={at * ROW + ROW / 2} r="4" class={line.heads.includes(head) ? "knot here" : "knot"} />)}
        </svg>
        {lines.map((line) => (
          <li style={{ height: `${ROW}px` }}>
            <span class="tree-title"><span class="quiet">{line.turn.index + 1}</span> <Text of={(titles.get(line.turn.id) ?? line.turn.end?.how ?? line.turn.state).slice(0, 120)} /></span>
            {line.heads.map((name) => <a class={name === head ? "chip here" : "chip"} href={`/sessions/${session.id}?head=${encodeURIComponent(name)}`}>{name}</a>)}
            <button type="button" class="plain" onClick={() => fork(line.turn.last)}>Fork</button>
            <button type="button" class="plain" disabled={line.heads.includes(head)} onClick={() => void rewind(line.turn.last)} title={`Move ${head} back to the end of this turn`}>Rewind</button>
          </li>
        ))}
      </ol>
      <NewHead session={session.id} failed={failed} />
    </div>
  );
}

function wire(line: Branch, at: number): string {
  if (line.parent === undefined) return "";
  const [x, y] = [line.lane * LANE + 8, at * ROW + ROW / 2];
  const [px, py] = [line.parentLane * LANE + 8, line.parent * ROW + ROW / 2];
  return x === px ? `M${px} ${py}V${y}` : `M${px} ${py}V${y - 14}Q${px} ${y} ${px + 8} ${y}H${x}`;
}

/** Makes a branch within the session. */
function NewHead({ session, failed }: { session: string; failed: (error: Error) => void }) {
  const make = async (event: SubmitEvent) => {
    event.preventDefault();
    const name = new FormData(event.currentTarget as HTMLFormElement).get("name");
    if (typeof name !== "string" || !name.trim()) return;
    try {
      await post(`/v1/sessions/${session}/fork`, { head: name.trim() });
      go(`/sessions/${session}?head=${encodeURIComponent(name.trim())}`);
    } catch (error) {
      failed(error as Error);
    }
  };
  return (
    <form class="new-head" onSubmit={(event) => void make(event)}>
      <label for="head-name">New head at the end of main</label>
      <input id="head-name" name="name" placeholder="name" autocomplete="off" />
      <button type="submit">Branch</button>
    </form>
  );
}
