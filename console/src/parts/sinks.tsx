/** Provenance of a call: each sink argument with its value and its origin. */
import { sinkRows } from "../provenance.ts";
import type { SinkArgument } from "../shapes.ts";
import { Text } from "./text.tsx";

export function Sinks({ of, passed, label }: { of: SinkArgument[] | undefined; passed: unknown; label: string }) {
  if (!of || of.length === 0) return null;
  const rows = sinkRows(of, passed);
  const valued = rows.some(({ value }) => value !== undefined);
  return (
    <div class="sinks" tabIndex={0} role="group" aria-label={label}>
      <table>
        <caption>{label}</caption>
        <thead><tr><th scope="col">Argument</th>{valued && <th scope="col">Value</th>}<th scope="col">Where it comes from</th></tr></thead>
        <tbody>
          {rows.map(({ path, value, from, trusted }) => (
            <tr>
              <th scope="row">{path === "" ? "the call itself" : <code><Text of={path} /></code>}</th>
              {valued && <td>{value !== undefined && <code class="plain-text"><Text of={value} /></code>}</td>}
              <td><span class={trusted ? "chip" : "chip warn"}><Text of={from} /></span></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
