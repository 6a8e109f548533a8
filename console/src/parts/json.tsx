/** Data as it is: every letter, every digit. */
import { useState } from "preact/hooks";
import { pretty } from "../exact.ts";
import { Text } from "./text.tsx";

/** Lines that are shown before somebody wants more. */
const LINES = 120;

export function Json({ of, label }: { of: unknown; label: string }) {
  const [whole, setWhole] = useState(false);
  const text = typeof of === "string" ? of : pretty(of);
  const lines = text.split("\n");
  const cut = !whole && lines.length > LINES;
  return (
    <div class="json">
      <div class="json-acts">
        <button type="button" class="plain" onClick={() => void navigator.clipboard.writeText(text)}>Copy</button>
      </div>
      <pre tabIndex={0} role="group" aria-label={label}><Text of={cut ? lines.slice(0, LINES).join("\n") : text} /></pre>
      {cut && <button type="button" class="plain" onClick={() => setWhole(true)}>Show {lines.length - LINES} more lines</button>}
    </div>
  );
}
