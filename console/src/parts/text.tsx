/** Text as text: never markup, and nothing in it hidden. */
import { Fragment } from "preact";
import { pieces } from "../visible.ts";

/** A text whose every letter can be seen. */
export function Text({ of }: { of: string }) {
  const found = pieces(of);
  if (found.length === 1 && typeof found[0] === "string") return <Fragment>{of}</Fragment>;
  return (
    <Fragment>
      {found.map((piece) =>
        typeof piece === "string" ? <bdi>{piece}</bdi> : <span class="hidden-letter" title={piece.code}>{piece.name}</span>,
      )}
    </Fragment>
  );
}
