/** Empty states, error messages and the button that loads more. */
import type { ComponentChildren } from "preact";
import { Problem } from "../api.ts";
import { Text } from "./text.tsx";

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children && <p>{children}</p>}
    </div>
  );
}

/** A button that loads the next page, if there is one. */
export function ReadOn({ more, what }: { more: (() => void) | undefined; what: string }) {
  return more ? <button type="button" class="read-on" onClick={more}>More {what}</button> : null;
}

/** Shows an error: its code with a link to its documentation, and the details. */
export function Wrong({ error, again }: { error: Error | undefined; again?: () => void }) {
  if (!error) return null;
  const problem = error instanceof Problem ? error : undefined;
  return (
    <div class="wrong" role="alert">
      {problem && <a href={`/errors/${problem.code}`} target="_blank">{problem.code}</a>}
      <span><Text of={problem ? error.message : "The server does not respond; this page reconnects automatically."} /></span>
      {again && <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}
