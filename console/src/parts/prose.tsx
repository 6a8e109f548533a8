/** Renders the Markdown tree of `markdown.ts`. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { blocks, type Block, type Inline } from "../markdown.ts";
import { plain } from "../visible.ts";
import { Text } from "./text.tsx";

/** Renders a text as Markdown. */
export function Prose({ of }: { of: string }) {
  const found = useMemo(() => blocks(of), [of]);
  return <div class="prose">{found.map(block)}</div>;
}

function block(of: Block): ComponentChildren {
  switch (of.is) {
    case "p":
      return <p>{inlines(of.of)}</p>;
    case "heading":
      // The headings of the page itself end at level 2.
      return <div class="heading" role="heading" aria-level={Math.min(of.level + 2, 6)}>{inlines(of.of)}</div>;
    case "code":
      return <pre tabIndex={0} role="group" aria-label={of.language ? `${of.language} code` : "code"}><code><Text of={of.text} /></code></pre>;
    case "list": {
      const items = of.items.map((item) => <li>{inlines(item)}</li>);
      return of.ordered ? <ol start={of.start}>{items}</ol> : <ul>{items}</ul>;
    }
    case "quote":
      return <blockquote>{inlines(of.of)}</blockquote>;
    case "table": {
      const [head, ...rows] = of.rows;
      return (
        <div class="scroll" tabIndex={0} role="region" aria-label="table">
          <table>
            <thead><tr>{head?.map((cell) => <th scope="col">{inlines(cell)}</th>)}</tr></thead>
            <tbody>{rows.map((row) => <tr>{row.map((cell) => <td>{inlines(cell)}</td>)}</tr>)}</tbody>
          </table>
        </div>
      );
    }
    case "rule":
      return <hr />;
  }
}

function inlines(of: Inline[]): ComponentChildren {
  return of.map((piece) => {
    switch (piece.is) {
      case "text":
        return <Text of={piece.text} />;
      case "code":
        return <code><Text of={piece.text} /></code>;
      case "strong":
        return <strong>{inlines(piece.of)}</strong>;
      case "em":
        return <em>{inlines(piece.of)}</em>;
      case "link":
        // The title shows the target before a click, because the model chose the link text.
        return <a href={piece.href} rel="noopener noreferrer nofollow" target="_blank" title={plain(piece.href)}>{inlines(piece.of)} <span class="href">{plain(host(piece.href))}</span></a>;
    }
  });
}

function host(address: string): string {
  try {
    return new URL(address).host;
  } catch {
    return address;
  }
}
