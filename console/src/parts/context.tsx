/** The context ledger: the prompt of each model call, and how much of it came from the provider's cache. */
import { get } from "../api.ts";
import { count, money } from "../format.ts";
import { useRead } from "../hooks.ts";
import type { Known } from "../session-model.ts";
import type { Context, Usage } from "../shapes.ts";
import { Empty } from "./notice.tsx";
import { Text } from "./text.tsx";
import { nameOf } from "./timeline.tsx";

const PARTS = ["cache_read", "cache_write", "input", "output", "reasoning"] as const;
const NAMES: Record<(typeof PARTS)[number], string> = { cache_read: "from the cache", cache_write: "to the cache", input: "read new", output: "said", reasoning: "thought" };

/** Formats all token counts of a call. */
function told(usage: Usage): string {
  return PARTS.map((part) => `${usage[part] ?? 0} ${NAMES[part]}`).join(", ");
}

export function ContextLedger({ known, head }: { known: Known; head: string }) {
  const calls = known.effects.filter((effect) => effect.usage);
  const most = Math.max(1, ...calls.map(({ usage }) => PARTS.reduce((sum, part) => sum + (usage?.[part] ?? 0), 0)));
  const last = known.effects.at(-1)?.seq;
  const now = useRead((stop) => get<Context>(`/v1/sessions/${known.session?.id}/context`, { head }, stop), [known.session?.id, head, last]);
  if (calls.length === 0) return <Empty title="No model calls yet">The input and output tokens of each call are summed up here.</Empty>;
  return (
    <div class="ledger" tabIndex={0} role="region" aria-label="Context">
      <p class="legend">{PARTS.map((part) => <span><i class={`tok tok-${part}`} aria-hidden="true" />{NAMES[part]}</span>)}</p>
      <table>
        <thead><tr><th scope="col">Call</th><th scope="col">Tokens</th><th scope="col" class="num">In</th><th scope="col" class="num">Out</th><th scope="col" class="num">Cost</th></tr></thead>
        <tbody>
          {calls.map((effect) => (
            <tr>
              <td><Text of={nameOf(effect)} /> <span class="quiet">#{effect.seq}</span></td>
              <td class="bar-cell"><span class="stack" aria-hidden="true">{PARTS.map((part) => <i class={`tok tok-${part}`} style={{ width: `${((effect.usage?.[part] ?? 0) / most) * 100}%` }} />)}</span></td>
              <td class="num" title={told(effect.usage ?? {})}>{count((effect.usage?.input ?? 0) + (effect.usage?.cache_read ?? 0) + (effect.usage?.cache_write ?? 0))}</td>
              <td class="num">{count((effect.usage?.output ?? 0) + (effect.usage?.reasoning ?? 0))}</td>
              <td class="num">{money(effect.cost)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <h2>Context of the next call</h2>
      {now.value && (
        <>
          <p class="quiet">About {count(now.value.tokens)} tokens in {now.value.messages.length} messages{now.value.files > 0 ? `, and ${now.value.files} files` : ""}{now.value.compactions > 0 ? `; compacted ${now.value.compactions} times` : ""}.</p>
          <table>
            <thead><tr><th scope="col">Part</th><th scope="col">Share</th><th scope="col" class="num">Tokens</th></tr></thead>
            <tbody>
              {now.value.parts.map(({ who, tokens }) => (
                <tr>
                  <td><Text of={who} /></td>
                  <td class="bar-cell"><span class="stack" aria-hidden="true"><i class="tok tok-input" style={{ width: `${(tokens / Math.max(1, now.value?.tokens ?? 1)) * 100}%` }} /></span></td>
                  <td class="num">{count(tokens)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </>
      )}
    </div>
  );
}
