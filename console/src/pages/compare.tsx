/** Comparison of two sessions: a session and its fork, or the same input for two agents. */
import { get } from "../api.ts";
import { money } from "../format.ts";
import { useFeed, useRead, useSoon, useTitle } from "../hooks.ts";
import { Difference } from "../parts/difference.tsx";
import { Wrong } from "../parts/notice.tsx";
import { Prose } from "../parts/prose.tsx";
import { State } from "../parts/state.tsx";
import { Text } from "../parts/text.tsx";
import { tokens } from "../parts/timeline.tsx";
import type { Message, Node, Page, Session, Spending } from "../shapes.ts";

/** Maximum number of message pages that are read per session. */
const PAGES = 40;

interface Side {
  session: Session;
  /** The messages after the common prefix, up to the read limit. */
  messages: Message[];
  spent: Spending | undefined;
}

async function sides(left: string, right: string, stop: AbortSignal): Promise<[Side, Side]> {
  const [a, b] = await Promise.all([get<Session>(`/v1/sessions/${left}`, {}, stop), get<Session>(`/v1/sessions/${right}`, {}, stop)]);
  const forks = [a, b].flatMap(({ forked_from }) => (forked_from ? [forked_from] : []));
  return Promise.all([side(a, forks, stop), side(b, forks, stop)]);
}

async function side(session: Session, forks: readonly Node[], stop: AbortSignal): Promise<Side> {
  const [messages, spent] = await Promise.all([since(session.id, forks, stop), get<Page<Spending>>("/v1/cost", { by: "session", session: session.id }, stop)]);
  return { session, messages, spent: spent.items[0] };
}

/** Reads the messages of a session backwards, up to the first page that contains one of the fork points. */
async function since(id: string, forks: readonly Node[], stop: AbortSignal): Promise<Message[]> {
  let [messages, cursor]: [Message[], string | undefined] = [[], undefined];
  for (let pages = 0; pages < PAGES; pages++) {
    const page: Page<Message> = await get(`/v1/sessions/${id}/messages`, { cursor }, stop);
    messages = [...page.items, ...messages];
    cursor = page.next;
    if (!cursor || page.items.some((message) => forks.some((fork) => isAt(message, fork)))) break;
  }
  return messages;
}

function isAt(message: Node, fork: Node): boolean {
  return message.session === fork.session && message.seq === fork.seq;
}

export function ComparePage({ left, right }: { left: string; right: string }) {
  useTitle("Compare sessions");
  const read = useRead((stop) => sides(left, right, stop), [left, right]);
  const soon = useSoon(read.again, 400);
  useFeed("turn.*,effect.*", (frame) => (frame.session === left || frame.session === right) && soon(), soon);
  if (!read.value) return <Wrong error={read.error} again={read.again} />;
  const [a, b] = read.value;
  const [fromA, fromB] = part(a.messages, b.messages);
  const same = Math.min(fromA, fromB);
  return (
    <div class="page compare">
      <div class="bar"><h1>Compare sessions</h1><span class="quiet grow">{same > 0 && (same === 1 ? "the first message is the same" : "the messages before are the same")}</span></div>
      <div class="scrolls" tabIndex={0} role="region" aria-label="Both sessions">
        <div class="sides">
          {[a, b].map((side, at) => (
            <section aria-label={at === 0 ? "Left" : "Right"}>
              <header><h2><a href={`/sessions/${side.session.id}`}><Text of={side.session.title.slice(0, 80) || "Session"} /></a></h2><State of={side.session.state} />{side.spent && <span class="quiet">{tokens(side.spent.usage)} {money(side.spent.cost)}</span>}</header>
              {side.messages.slice(at === 0 ? fromA : fromB).map((message) => (
                <article class={`said said-${message.role}`}>
                  <header><b>{message.role === "user" ? "You" : message.role === "tool" ? message.content.tool : "Agent"}</b></header>
                  {message.role === "assistant" ? <Prose of={message.text} /> : <p class="plain-text"><Text of={message.text} /></p>}
                </article>
              ))}
            </section>
          ))}
        </div>
        <h2 class="section">What differs</h2>
        <Difference before={lines(a.messages.slice(fromA))} after={lines(b.messages.slice(fromB))} label="What differs" />
      </div>
    </div>
  );
}

/** Returns the index at which each conversation diverges from the other. */
function part(a: readonly Message[], b: readonly Message[]): [number, number] {
  // A fork shares the messages before its fork point, so they are matched by session and number, not by index: the loaded pages
  // may start at different messages.
  const places = new Map(b.map((message, at) => [`${message.session} ${message.seq}`, at]));
  const last = a.findLastIndex((message) => places.has(`${message.session} ${message.seq}`));
  const met = a[last];
  let [i, j] = met ? [last + 1, (places.get(`${met.session} ${met.seq}`) ?? -1) + 1] : [0, 0];
  while (i < a.length && j < b.length && JSON.stringify(a[i]?.content) === JSON.stringify(b[j]?.content)) [i, j] = [i + 1, j + 1];
  return [i, j];
}

function lines(messages: readonly Message[]): string {
  return messages.map((message) => `${message.role}: ${message.text}`).join("\n");
}
