/** Shows JSON with every character visible and every digit exact. */
import { useState } from "preact/hooks";
import { pretty } from "../exact.ts";
import { Text } from "./text.tsx";

/** Number of lines shown before the text is expanded. */
const LINES = 120;

/** Copies a text to the clipboard. Over plain HTTP from another machine, only the legacy method works. */
async function copy(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export function Json({ of, label }: { of: unknown; label: string }) {
  const [whole, setWhole] = useState(false);
  const [copied, setCopied] = useState(false);
  const text = typeof of === "string" ? of : pretty(of);
  const lines = text.split("\n");
  const cut = !whole && lines.length > LINES;
  return (
    <div class="json">
      <div class="json-acts">
        <button type="button" class="plain" onClick={() => void copy(text).then(() => setCopied(true))} onBlur={() => setCopied(false)}>{copied ? "Copied" : "Copy"}</button>
      </div>
      <pre tabIndex={0} role="group" aria-label={label}><Text of={cut ? lines.slice(0, LINES).join("\n") : text} /></pre>
      {cut && <button type="button" class="plain" onClick={() => setWhole(true)}>Show {lines.length - LINES} more lines</button>}
    </div>
  );
}
