/** Shows untrusted text: no markup, and no invisible characters. */
import { Fragment } from "preact";
import { pieces } from "../visible.ts";

/** A text with invisible characters shown by name. */
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
