/** What a page says when it has nothing else to show: nothing there, or something went wrong. */
import type { ComponentChildren } from "preact";
import { Problem } from "../api.ts";
import { Text } from "./text.tsx";

/** Nothing is there. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children && <p>{children}</p>}
    </div>
  );
}

/** That a list goes on, and a way to read on. */
export function ReadOn({ more, what }: { more: (() => void) | undefined; what: string }) {
  return more ? <button type="button" class="read-on" onClick={more}>More {what}</button> : null;
}

/** Something went wrong: its code, with the page that explains it, and what was found. */
export function Wrong({ error, again }: { error: Error | undefined; again?: () => void }) {
  if (!error) return null;
  const problem = error instanceof Problem ? error : undefined;
  return (
    <div class="wrong" role="alert">
      {problem && <a href={`/errors/${problem.code}`} target="_blank">{problem.code}</a>}
      <span><Text of={problem ? error.message : "The server does not answer; this page goes on by itself when it does."} /></span>
      {again && <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}
