/** Components that show text diffs. */
import { differ, paired, type Line } from "../lines.ts";
import { Text } from "./text.tsx";

const MARKS = { same: " ", gone: "−", new: "+" } as const;

/** Shows a diff in two columns, with equal lines side by side. */
export function SideBySide({ before, after, names, label }: { before: string; after: string; names: readonly [string, string]; label: string }) {
  return (
    <table class="paired" aria-label={label}>
      <thead><tr>{names.map((name) => <th scope="col">{name}</th>)}</tr></thead>
      <tbody>
        {paired(differ(before, after)).map(([left, right]) => (
          <tr>
            <Cell line={left} />
            <Cell line={right} />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Cell({ line }: { line: Line | undefined }) {
  if (!line) return <td />;
  return <td class={`line-${line.is}`}><span aria-hidden="true">{MARKS[line.is]} </span>{line.is !== "same" && <span class="sr">{line.is}: </span>}<Text of={line.text} /></td>;
}

export function Difference({ before, after, label }: { before: string; after: string; label: string }) {
  return (
    <pre class="difference" tabIndex={0} role="group" aria-label={label}>
      {differ(before, after).map(({ is, text }) => <span class={`line line-${is}`}><span aria-hidden="true">{MARKS[is]} </span>{is !== "same" && <span class="sr">{is}: </span>}<Text of={text} />{"\n"}</span>)}
    </pre>
  );
}
