/** Shows why a session is blocked and how to unblock it. */
import { useState } from "preact/hooks";
import { post } from "../api.ts";
import { duration, moment } from "../format.ts";
import { answer, asked, type Question } from "../question.ts";
import type { Blocked, Why } from "../shapes.ts";
import { waitName } from "./state.tsx";
import { Text } from "./text.tsx";

export function Standing({ why, now, failed }: { why: Why; now: number; failed: (error: Error) => void }) {
  if (why.standing === "rests" || why.standing === "ended") return null;
  const since = duration(now - why.since);
  return (
    <div class={`standing standing-${why.standing}`} role="status">
      {why.standing === "running" && <p><b>Runs</b> · {why.doing === "the model" ? "waiting for the model" : <span><Text of={why.doing ?? ""} /> is running</span>} · since {since}</p>}
      {why.standing === "ready" && <p><b>Ready</b> · waiting for a worker</p>}
      {why.standing === "queued" && <p><b>Queued</b> behind another turn · since {since}</p>}
      {why.standing === "held" && <p><b>Held</b> · workers died {why.deaths ?? 0} times while it ran · will run alone{why.held_until !== undefined && <span> after {moment(why.held_until)}</span>}</p>}
      {why.standing === "stuck" && <Stuck why={why} failed={failed} />}
      {why.standing === "waits" && why.waits.map((wait) => <WaitLine key={wait.key} wait={wait} turn={why.turn} now={now} failed={failed} />)}
      {why.queued > 0 && <p class="quiet">{why.queued} more {why.queued === 1 ? "input waits" : "inputs wait"} behind it</p>}
    </div>
  );
}

function Stuck({ why, failed }: { why: Why; failed: (error: Error) => void }) {
  const retry = () => post(`/v1/turns/${why.turn}/retry`, {}).catch(failed);
  return (
    <p>
      <b>Stuck</b> · <a href={`/errors/${why.failure?.code}`} target="_blank">{why.failure?.code}</a> <Text of={why.failure?.message ?? why.failure?.detail ?? ""} />
      <button type="button" onClick={() => void retry()}>Try again</button>
    </p>
  );
}

function Provider({ wait, turn, failed }: { wait: Blocked; turn: string | undefined; failed: (error: Error) => void }) {
  const retry = () => post(`/v1/turns/${turn}/retry`, {}).catch(failed);
  return (
    <span>
      {wait.provider && <span> · <code><Text of={wait.provider} /></code> does not answer</span>}
      {wait.failure && <span> · <a href={`/errors/${wait.failure.code}`} target="_blank">{wait.failure.code}</a> <Text of={wait.failure.message ?? wait.failure.detail ?? ""} /></span>}
      <button type="button" onClick={() => void retry()}>Try now</button>
    </span>
  );
}

function WaitLine({ wait, turn, now, failed }: { wait: Blocked; turn: string | undefined; now: number; failed: (error: Error) => void }) {
  const question = asked(wait);
  if (question) return <Asks question={question} wait={wait} now={now} failed={failed} />;
  return (
    <p>
      <b>Waits</b> for {waitName(wait)}{wait.tool && <span> of <code><Text of={wait.tool} /></code></span>} · since {duration(now - wait.since)}
      {wait.deadline !== undefined && <span> · until {moment(wait.deadline)}</span>}
      {wait.moved_by === "approval" && <a class="button" href="/approvals">Decide</a>}
      {wait.moved_by === "completion" && wait.completion && <Complete completion={wait.completion} failed={failed} />}
      {wait.moved_by === "provider" && <Provider wait={wait} turn={turn} failed={failed} />}
      {wait.moved_by === "budget" && <span> · continues when the budget is raised: <code>outlast budgets set <Text of={wait.budget ?? ""} /></code></span>}
    </p>
  );
}

/** A question of the agent, with its options and a field for other answers. */
function Asks({ question, wait, now, failed }: { question: Question; wait: Blocked; now: number; failed: (error: Error) => void }) {
  const [said, setSaid] = useState("");
  const send = (typed: string) => void (typed.trim() && post(`/v1/completions/${wait.completion}`, { ok: answer(question, typed) }).catch(failed));
  return (
    <div class="asks">
      <p><b>Asks you</b> · since {duration(now - wait.since)}{wait.deadline !== undefined && <span> · until {moment(wait.deadline)}</span>}</p>
      <p class="plain-text"><Text of={question.question} /></p>
      {wait.completion && question.options.length > 0 && (
        <div class="options">
          {question.options.map((option, at) => <button type="button" onClick={() => send(String(at + 1))}><span class="quiet">{at + 1}</span> <Text of={option} /></button>)}
        </div>
      )}
      {wait.completion && (
        <form class="complete" onSubmit={(event) => (event.preventDefault(), send(said))}>
          <input aria-label="Your answer" placeholder={question.options.length > 0 ? "another answer" : "your answer"} value={said} onInput={(event) => setSaid(event.currentTarget.value)} />
          <button type="submit">Answer</button>
        </form>
      )}
    </div>
  );
}

/** Completes a wait with a value. */
function Complete({ completion, failed }: { completion: string; failed: (error: Error) => void }) {
  const [value, setValue] = useState("");
  const send = (event: Event) => {
    event.preventDefault();
    post(`/v1/completions/${completion}`, { ok: asJson(value) }).catch(failed);
  };
  return (
    <form class="complete" onSubmit={send}>
      <input aria-label="The answer, JSON or text" placeholder="answer, JSON or text" value={value} onInput={(event) => setValue(event.currentTarget.value)} />
      <button type="submit">Answer</button>
    </form>
  );
}

function asJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
