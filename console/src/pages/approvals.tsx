/** Approvals page: pending approvals and calls with an unknown outcome, across all sessions. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, post } from "../api.ts";
import { parse, pretty } from "../exact.ts";
import { duration, moment, money, past } from "../format.ts";
import { useFeed, useNow, useRead, useSeen, useSoon, useTitle } from "../hooks.ts";
import { useKeys } from "../keys.ts";
import { pages } from "../paged.ts";
import { Difference } from "../parts/difference.tsx";
import { Json } from "../parts/json.tsx";
import { Empty, Wrong } from "../parts/notice.tsx";
import { Prose } from "../parts/prose.tsx";
import { Sinks } from "../parts/sinks.tsx";
import { Text } from "../parts/text.tsx";
import { go } from "../route.ts";
import type { Counted, Message, Page, Pending, Unknown } from "../shapes.ts";
import { escaped } from "../visible.ts";

/** Decisions are disabled for this long after the list changed, because another approval may have moved under the pointer. */
const LOOK_MS = 500;

/** Maximum number of approvals that are loaded and shown. */
const MOST = 1_000;
const PAGE = 200;

function listed<T>(base: string, stop: AbortSignal): Promise<Page<T>> {
  return pages(MOST, (cursor) => get(base, { limit: PAGE, cursor }, stop));
}

/** A decision that a person is entering, with the id of its approval, because the list may change meanwhile. */
interface Mood {
  of: string;
  is: "denies" | "edits";
}

export function ApprovalsPage() {
  useTitle("Approvals");
  const now = useNow(5_000);
  const read = useRead((stop) => listed<Pending>("/v1/approvals", stop), []);
  const unknown = useRead((stop) => listed<Unknown>("/v1/unknown", stop), []);
  const soon = useSoon(() => (read.again(), unknown.again()), 250);
  useFeed("turn.*,wait.resolved,effect.*", soon, soon);
  const items = read.value?.items ?? [];
  const [chosen, setChosen] = useState<string>();
  const [mood, setMood] = useState<Mood>();
  const [error, setError] = useState<Error>();
  const [said, setSaid] = useState("");
  // The selection is an id, not an index, because the list changes while it is shown.
  const at = Math.max(0, items.findIndex(({ id }) => id === chosen));
  const question = items[at];
  const order = items.map(({ id }) => id).join();
  const changed = useRef({ order, at: -LOOK_MS });
  if (changed.current.order !== order) changed.current = { order, at: performance.now() };
  const move = (by: number) => {
    setChosen(items[Math.max(0, Math.min(items.length - 1, at + by))]?.id);
    setMood(undefined);
  };
  const begin = (of: Pending, is: Mood["is"]) => {
    setChosen(of.id);
    setMood({ of: of.id, is });
  };
  const decide = async (of: Pending, word: { verdict: string; reason?: string; arguments?: unknown }) => {
    if (performance.now() - changed.current.at < LOOK_MS) {
      setSaid("The list has just changed. Check the selected call again.");
      return;
    }
    try {
      const counted = await post<Counted>(`/v1/approvals/${of.id}`, word);
      setSaid(`${of.tool}: ${outcome(counted, word.verdict)}`);
      setError(undefined);
      setMood(undefined);
      read.again();
    } catch (error) {
      setError(error as Error);
    }
  };
  useKeys([
    { keys: "j", what: "Next question", act: () => move(1) },
    { keys: "k", what: "Question before", act: () => move(-1) },
    { keys: "a", what: "Approve exactly this", act: () => question && void decide(question, { verdict: "approve" }) },
    { keys: "s", what: "Approve for the rest of the session", act: () => question?.for_session && void decide(question, { verdict: "approve_for_session" }) },
    { keys: "d", what: "Deny", act: () => question && begin(question, "denies") },
    { keys: "e", what: "Change the arguments", act: () => question && begin(question, "edits") },
    { keys: "o", what: "Open the session", act: () => question && go(`/sessions/${question.session}`) },
    { keys: "Escape", what: "Back", act: () => setMood(undefined) },
  ]);
  return (
    <div class="page approvals">
      <div class="bar"><h1>Approvals</h1><span class="quiet grow">{items.length > 0 && `${items.length}${read.value?.next ? "+" : ""} ${items.length === 1 ? "call waits" : "calls wait"} for an approval`}</span></div>
      <p class="note" role="status">{said}</p>
      <Wrong error={error ?? read.error} />
      <div class="columns">
        <div class="scrolls" tabIndex={0} role="region" aria-label="Questions">
          {read.value && items.length === 0 && <Empty title="No call waits for an approval">Calls that require an approval appear here immediately, with their exact arguments.</Empty>}
          {items.map((item, index) => (
            <article key={item.id} class="question" data-selected={index === at ? "" : undefined} aria-label={`${item.tool}, asked ${past(item.since, now)}`} onFocusIn={() => setChosen(item.id)} onClick={() => setChosen(item.id)}>
              <Asked item={item} now={now} />
              {mood?.of === item.id && mood.is === "denies" && <Deny close={() => setMood(undefined)} deny={(reason) => void decide(item, { verdict: "deny", reason })} />}
              {mood?.of === item.id && mood.is === "edits" && <Edit item={item} close={() => setMood(undefined)} edit={(passed) => void decide(item, { verdict: "edit", arguments: passed })} />}
              {mood?.of !== item.id && (
                <div class="acts">
                  <button type="button" class="primary" onClick={() => void decide(item, { verdict: "approve" })}>Approve <kbd aria-hidden="true">a</kbd></button>
                  {item.for_session && <button type="button" onClick={() => void decide(item, { verdict: "approve_for_session" })}>Approve for the session <kbd aria-hidden="true">s</kbd></button>}
                  <button type="button" onClick={() => begin(item, "denies")}>Deny <kbd aria-hidden="true">d</kbd></button>
                  <button type="button" onClick={() => begin(item, "edits")}>Edit <kbd aria-hidden="true">e</kbd></button>
                  <a class="quiet" href={`/sessions/${item.session}`}>Session</a>
                </div>
              )}
            </article>
          ))}
          {read.value?.next && <More what="questions" />}
          {(unknown.value?.items.length ?? 0) > 0 && <h2 class="section">Calls with an unknown outcome</h2>}
          {unknown.value?.items.map((call) => <Settle key={call.call} call={call} now={now} done={unknown.again} failed={setError} />)}
          {unknown.value?.next && <More what="calls" />}
        </div>
      </div>
    </div>
  );
}

function More({ what }: { what: string }) {
  return <p class="quiet">There are more {what} than these {MOST}. They show up as these are settled.</p>;
}

function Asked({ item, now }: { item: Pending; now: number }) {
  return (
    <div>
      <header>
        <h2><Text of={item.tool} /></h2>
        <span class="quiet">asked {past(item.since, now)}</span>
        {item.expires !== undefined && <span class="chip warn" title={moment(item.expires)}>a no in {duration(item.expires - now)}</span>}
      </header>
      {item.reason && <p class="plain-text"><span class="quiet">Why: </span><Text of={item.reason} /></p>}
      <Said item={item} />
      {item.labels && item.labels.length > 0 && <p class="tainted">Text from {item.labels.map((label) => <span class="chip warn"><Text of={label} /></span>)} may have asked for this.</p>}
      <Json of={item.arguments} label={`What ${item.tool} will be passed`} />
      <Sinks of={item.provenance} passed={item.original === undefined ? item.arguments : item.original} label={item.original === undefined ? "Origins of the sensitive values" : "Origins of the sensitive values that the model requested"} />
      {item.preview && <div class="preview"><p class="quiet">The tool says it would do this:</p><p class="plain-text"><Text of={item.preview} /></p></div>}
      {item.original !== undefined && <Difference before={pretty(item.original)} after={pretty(item.arguments)} label="What was changed since the model asked" />}
      <p class="quiet">
        {item.rule && <span>Rule <code><Text of={item.rule} /></code> requires an approval. </span>}
        {item.needed > 1 && <span>{item.votes.length} of {item.needed} approved{item.votes.length > 0 && <span>: <Text of={item.votes.join(", ")} /></span>}. </span>}
        {item.who.length > 0 ? <span>It takes {item.needed > 1 ? item.needed : "one"} of: <Text of={item.who.join(", ")} />.</span> : "Anybody may give it."}
        {item.reminded > 0 && <span> {item.reminded} {item.reminded === 1 ? "reminder" : "reminders"} so far.</span>}
        <span> The turn cost {money(item.cost)} so far.</span>
      </p>
    </div>
  );
}

/** Shows the model's text before the call. Loads it when it becomes visible, because the list may be long. */
function Said({ item }: { item: Pending }) {
  const place = useRef<HTMLDivElement>(null);
  const seen = useSeen(place);
  const read = useRead((stop) => (seen ? get<Page<Message>>(`/v1/sessions/${item.session}/messages`, {}, stop) : Promise.resolve({ items: [] })), [item.id, seen]);
  const reply = read.value?.items.findLast(({ turn, content }) => turn === item.turn && content.calls?.some(({ tool }) => tool === item.tool));
  return <div ref={place}>{reply?.text && <div class="model-said"><p class="quiet">The model said:</p><Prose of={reply.text.slice(0, 600)} /></div>}</div>;
}

/** Describes the result of a vote. */
function outcome({ decided, yours, votes, of }: Counted, verdict: string): string {
  if (!decided) return `${votes ?? 0} of ${of ?? 0} approved`;
  if (!yours) return "was already decided";
  return verdict === "deny" ? "denied" : "approved";
}

function Deny({ close, deny }: { close: () => void; deny: (reason: string) => void }) {
  const [reason, setReason] = useState("");
  const field = useRef<HTMLInputElement>(null);
  // A layout effect runs with the render, so the field receives a key pressed right after `d`.
  useLayoutEffect(() => field.current?.focus(), []);
  return (
    <form class="acts" onSubmit={(event) => (event.preventDefault(), deny(reason.trim() || "denied"))}>
      <input ref={field} class="grow" aria-label="Why not" placeholder="Why not? The model is told." value={reason} onInput={(event) => setReason(event.currentTarget.value)} onKeyDown={(event) => event.key === "Escape" && close()} />
      <button type="submit" class="danger">Deny</button>
      <button type="button" onClick={close}>Back</button>
    </form>
  );
}

function Edit({ item, close, edit }: { item: Pending; close: () => void; edit: (passed: unknown) => void }) {
  const before = pretty(item.arguments);
  // A text field cannot show names of invisible characters, so they are written as JSON escapes.
  const shown = escaped(before);
  const [text, setText] = useState(shown);
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const [passed, wrong] = read(text);
  return (
    <form class="edit" onSubmit={(event) => (event.preventDefault(), wrong || edit(passed))}>
      <textarea ref={field} aria-label="Arguments" aria-invalid={wrong !== undefined} rows={Math.min(16, text.split("\n").length + 1)} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      {wrong && <p class="error">{wrong}</p>}
      {!wrong && text !== shown && <Difference before={before} after={pretty(passed)} label="What changes" />}
      <div class="acts">
        <button type="submit" class="primary" disabled={wrong !== undefined}>Approve this instead</button>
        <button type="button" onClick={close}>Back</button>
      </div>
    </form>
  );
}

function read(text: string): [unknown, string | undefined] {
  try {
    return [parse(text), undefined];
  } catch (error) {
    return [undefined, (error as Error).message];
  }
}

function Settle({ call, now, done, failed }: { call: Unknown; now: number; done: () => void; failed: (error: Error) => void }) {
  const [result, setResult] = useState("");
  const settle = async (finding: unknown) => {
    try {
      await post(`/v1/unknown/${call.call}`, finding);
      done();
    } catch (error) {
      failed(error as Error);
    }
  };
  const happened = () => {
    const [value, wrong] = read(result || "null");
    void settle({ happened: wrong ? result : value });
  };
  return (
    <article class="question unknown">
      <header><h2><Text of={call.tool} /></h2><span class="quiet">begun {past(call.since, now)}, no outcome is known</span></header>
      <Json of={call.arguments} label={`What ${call.tool} was passed`} />
      <p class="quiet">Its idempotency key is <code>{call.call}</code>. Check the external system, then record the outcome.</p>
      <div class="acts">
        <input class="grow" aria-label={`What ${call.tool} gave, JSON or text`} placeholder="what it gave, JSON or text" value={result} onInput={(event) => setResult(event.currentTarget.value)} />
        <button type="button" onClick={happened}>It happened</button>
        <button type="button" onClick={() => void settle("did_not_happen")}>It did not</button>
        <a class="quiet" href={`/sessions/${call.session}`}>Session</a>
      </div>
    </article>
  );
}
