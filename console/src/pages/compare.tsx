/** Two sessions side by side: one forked from the other, or the same question asked of two agents. */
import { get } from "../api.ts";
import { money } from "../format.ts";
import { useFeed, useRead, useSoon, useTitle } from "../hooks.ts";
import { Difference } from "../parts/difference.tsx";
import { Wrong } from "../parts/notice.tsx";
import { Prose } from "../parts/prose.tsx";
import { State } from "../parts/state.tsx";
import { Text } from "../parts/text.tsx";
import { tokens } from "../parts/timeline.tsx";
import type { Message, Page, Session, Spending } from "../shapes.ts";

interface Side {
  session: Session;
  messages: Message[];
  spent: Spending | undefined;
}

async function side(id: string, stop: AbortSignal): Promise<Side> {
  const [session, messages, spent] = await Promise.all([
    get<Session>(`/v1/sessions/${id}`, {}, stop),
    get<Page<Message>>(`/v1/sessions/${id}/messages`, {}, stop),
    get<Page<Spending>>("/v1/cost", { by: "session", session: id }, stop),
  ]);
  return { session, messages: messages.items, spent: spent.items[0] };
}

export function ComparePage({ left, right }: { left: string; right: string }) {
  useTitle("Side by side");
  const read = useRead((stop) => Promise.all([side(left, stop), side(right, stop)]), [left, right]);
  const soon = useSoon(read.again, 400);
  useFeed("turn.*,effect.*", (frame) => (frame.session === left || frame.session === right) && soon(), soon);
  if (!read.value) return <Wrong error={read.error} again={read.again} />;
  const [a, b] = read.value;
  const same = common(a.messages, b.messages);
  return (
    <div class="page compare">
      <div class="bar"><h1>Side by side</h1><span class="quiet grow">{same > 0 && (same === 1 ? "the first message is the same" : `the first ${same} messages are the same`)}</span></div>
      <div class="scrolls" tabIndex={0} role="region" aria-label="Both sessions">
        <div class="sides">
          {[a, b].map((side, at) => (
            <section aria-label={at === 0 ? "Left" : "Right"}>
              <header><h2><a href={`/sessions/${side.session.id}`}><Text of={side.session.title.slice(0, 80) || "Session"} /></a></h2><State of={side.session.state} />{side.spent && <span class="quiet">{tokens(side.spent.usage)} {money(side.spent.cost)}</span>}</header>
              {side.messages.slice(same).map((message) => (
                <article class={`said said-${message.role}`}>
                  <header><b>{message.role === "user" ? "You" : message.role === "tool" ? message.content.tool : "Agent"}</b></header>
                  {message.role === "assistant" ? <Prose of={message.text} /> : <p class="plain-text"><Text of={message.text} /></p>}
                </article>
              ))}
            </section>
          ))}
        </div>
        <h2 class="section">What differs</h2>
        <Difference before={lines(a.messages.slice(same))} after={lines(b.messages.slice(same))} label="What differs" />
      </div>
    </div>
  );
}

/** How many messages both begin with. */
function common(a: readonly Message[], b: readonly Message[]): number {
  const at = a.findIndex((message, index) => JSON.stringify(message.content) !== JSON.stringify(b[index]?.content));
  return at < 0 ? Math.min(a.length, b.length) : at;
}

function lines(messages: readonly Message[]): string {
  return messages.map((message) => `${message.role}: ${message.text}`).join("\n");
}
