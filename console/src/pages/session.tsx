/** Session page: the live conversation and the timeline of its turns. */
import { useEffect, useState } from "preact/hooks";
import { passes, post } from "../api.ts";
import { ago, money } from "../format.ts";
import { useNow, useTitle } from "../hooks.ts";
import { useKeys } from "../keys.ts";
import { Composer, write } from "../parts/composer.tsx";
import { ContextLedger } from "../parts/context.tsx";
import { Conversation } from "../parts/conversation.tsx";
import { EffectDetail } from "../parts/effect.tsx";
import { Files } from "../parts/files.tsx";
import { Wrong } from "../parts/notice.tsx";
import { State } from "../parts/state.tsx";
import { Standing } from "../parts/standing.tsx";
import { Text } from "../parts/text.tsx";
import { Timeline } from "../parts/timeline.tsx";
import { Tree } from "../parts/tree.tsx";
import { go } from "../route.ts";
import { NOTHING, SessionModel, type Known } from "../session-model.ts";
import type { Effect, Node, Session } from "../shapes.ts";
import { plain } from "../visible.ts";

const TABS = ["Conversation", "Timeline", "Tree", "Context", "Files"] as const;
type Tab = (typeof TABS)[number];

function isNarrow(): boolean {
  return matchMedia("(max-width: 899px)").matches;
}

export function SessionPage({ id, search }: { id: string; search: URLSearchParams }) {
  const head = search.get("head") ?? "main";
  const [model, known] = useSession(id, head);
  // A phone shows the conversation in a tab, which is selected first.
  const [tab, setTab] = useState<Tab>(isNarrow() ? "Conversation" : "Timeline");
  const [shown, setShown] = useState<string>();
  const [failed, setFailed] = useState<Error>();
  const now = useNow(1_000);
  const { session } = known;
  useTitle(session?.title.slice(0, 60) ?? "Session");
  const choose = (name: Tab) => {
    if (name === "Conversation" && !isNarrow()) document.querySelector<HTMLElement>(".conversation")?.focus();
    else setTab(name);
    setShown(undefined);
  };

  // An inherited message is forked in the session that contains it.
  const fork = async (at: Node | undefined) => {
    try {
      go(`/sessions/${(await post<Session>(`/v1/sessions/${at?.session ?? id}/fork`, at ? { at: at.seq } : {})).id}`);
    } catch (error) {
      setFailed(error as Error);
    }
  };
  // If the session does not exist, it cannot be forked or written to.
  const gone = known.error !== undefined && !passes(known.error);
  const end = session?.heads.find(({ name }) => name === head)?.at;
  const cancel = async () => {
    if (!session?.active) return;
    await post(`/v1/turns/${session.active}/cancel`, { reason: "cancelled in the console" }).catch(setFailed);
  };
  const show = (effect: Effect) => {
    setShown(`${effect.turn} ${effect.key}`);
    setTab("Timeline");
  };
  useKeys([
    { keys: "c", what: "Write a message", act: write },
    { keys: "F", what: "Fork at the end", act: () => gone || void fork(end) },
    { keys: "x", what: "Stop the turn", act: () => void cancel() },
    ...TABS.map((name, at) => ({ keys: String(at + 1), what: name, act: () => choose(name) })),
    { keys: "Escape", what: "Back", act: () => (shown ? setShown(undefined) : go("/")) },
  ]);
  const detail = known.effects.find((effect) => `${effect.turn} ${effect.key}` === shown);
  return (
    <div class="page session" data-tab={tab}>
      <div class="bar">
        <h1><Text of={session?.title.slice(0, 200) || "Session"} /></h1>
        {session && <State of={session.state} />}
        {session?.key && <span class="chip" title="key"><Text of={session.key} /></span>}
        {session && session.heads.length > 1 && <HeadChoice session={session} head={head} />}
        <span class="quiet grow">{session && `${session.turns} ${session.turns === 1 ? "turn" : "turns"}`}{Number(session?.cost ?? 0) > 0 && ` · ${money(session?.cost)}`}{session && ` · ${ago(session.updated, now)}`}</span>
        {known.link !== "open" && session && <span class="chip warn" role="status">{known.link === "refused" ? "not followed" : "reconnecting"}</span>}
        <div class="bar-acts">
          {session?.active && <button type="button" onClick={() => void cancel()}>Stop</button>}
          {!gone && <button type="button" onClick={() => void fork(end)}>Fork</button>}
        </div>
      </div>
      <Wrong error={failed ?? known.error} />
      <div class="tabs" role="tablist" aria-label="Views">
        {TABS.map((name) => (
          <button type="button" role="tab" id={`tab-${name}`} aria-selected={tab === name} aria-controls={`panel-${name === "Conversation" ? "conversation" : "side"}`} class={name === "Conversation" ? "narrow-only" : undefined} onClick={() => choose(name)}>{name}</button>
        ))}
      </div>
      <section class="conversation-side" id="panel-conversation" aria-label="Conversation">
        <Conversation known={known} earlier={() => void model?.earlier()} before={async (message) => model?.before(message)} fork={(at) => void fork(at)} show={show} />
        {known.why && <Standing why={known.why} now={now} failed={setFailed} />}
        {!gone && <Composer session={id} head={head} active={session?.active !== undefined} />}
      </section>
      <div class="side" id="panel-side" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {tab === "Timeline" && detail && <EffectDetail effect={detail} close={() => setShown(undefined)} />}
        {tab === "Timeline" && !detail && <Timeline known={known} now={now} show={show} earlier={() => void model?.earlierTurns()} />}
        {tab === "Tree" && <Tree known={known} head={head} fork={(at) => void fork(at)} earlier={() => void model?.earlierTurns()} failed={setFailed} />}
        {tab === "Context" && <ContextLedger known={known} head={head} />}
        {tab === "Files" && <Files known={known} />}
      </div>
    </div>
  );
}

function HeadChoice({ session, head }: { session: Session; head: string }) {
  return (
    <select aria-label="Head" value={head} onChange={(event) => go(`/sessions/${session.id}?head=${encodeURIComponent(event.currentTarget.value)}`)}>
      {session.heads.map(({ name }) => <option value={name}>{plain(name)}</option>)}
    </select>
  );
}

/**
 * Loads and follows a session while the page is mounted. Limits updates, because text streams in faster than the screen can show
 * it.
 */
function useSession(id: string, head: string): [SessionModel | undefined, Known] {
  const [model, setModel] = useState<SessionModel>();
  const [known, setKnown] = useState<Known>();
  useEffect(() => {
    let frame = 0;
    const changed = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        setKnown(fresh.known);
      });
    };
    const fresh: SessionModel = new SessionModel(id, head, changed);
    setModel(fresh);
    setKnown(fresh.known);
    return () => {
      cancelAnimationFrame(frame);
      fresh.close();
    };
  }, [id, head]);
  return [model, known ?? NOTHING];
}
