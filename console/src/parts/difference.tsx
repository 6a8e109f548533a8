/** Two texts and how they differ. */
import { differ } from "../lines.ts";
import { Text } from "./text.tsx";

const MARKS = { same: " ", gone: "−", new: "+" } as const;

export function Difference({ before, after, label }: { before: string; after: string; label: string }) {
  return (
    <pre class="difference" tabIndex={0} role="group" aria-label={label}>
      {differ(before, after).map(({ is, text }) => <span class={`line line-${is}`}><span aria-hidden="true">{MARKS[is]} </span>{is !== "same" && <span class="sr">{is}: </span>}<Text of={text} />{"\n"}</span>)}
    </pre>
  );
}
