/** The message form. An empty field after sending means that the message is durable. */
import { useRef, useState } from "preact/hooks";
import { post, unique } from "../api.ts";
import { size } from "../format.ts";
import type { Receipt } from "../shapes.ts";
import { plain } from "../visible.ts";
import { Wrong } from "./notice.tsx";
import { Text } from "./text.tsx";

export function Composer({ session, head, active }: { session: string; head: string; active: boolean }) {
  const [said, setSaid] = useState("");
  const [files, setFiles] = useState<File[]>([]);
  const [joins, setJoins] = useState(true);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  // Retries reuse the idempotency key, so a lost response does not send the message twice.
  const once = useRef<string>(undefined);
  const picker = useRef<HTMLInputElement>(null);
  const change = (text: string) => {
    once.current = undefined;
    setSaid(text);
  };
  const send = async () => {
    if (busy || (!said.trim() && files.length === 0)) return;
    setBusy(true);
    once.current ??= unique();
    const input = { text: said, head, delivery: active && joins ? "join" : "next" };
    try {
      await post<Receipt>(`/v1/sessions/${session}/turns`, files.length ? form(input, files) : input, once.current);
      [once.current] = [undefined];
      setSaid("");
      setFiles([]);
      setError(undefined);
    } catch (error) {
      setError(error as Error);
    }
    setBusy(false);
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void send();
  };
  return (
    <form class="composer" onSubmit={(event) => (event.preventDefault(), void send())}>
      <Wrong error={error} />
      {files.length > 0 && (
        <ul class="picked">
          {files.map((file, at) => <li><Text of={file.name} /> <small>{size(file.size)}</small> <button type="button" class="plain" aria-label={`Leave ${plain(file.name)} away`} onClick={() => setFiles(files.filter((_, other) => other !== at))}>×</button></li>)}
        </ul>
      )}
      <div class="composer-line">
        <textarea id="composer" rows={Math.min(8, said.split("\n").length)} placeholder={active ? "Say something to the turn that runs" : "Write a message"} aria-label="Message" value={said} onInput={(event) => change(event.currentTarget.value)} onKeyDown={pressed} />
        <input ref={picker} type="file" multiple hidden aria-label="Files" onChange={(event) => (setFiles([...files, ...(event.currentTarget.files ?? [])]), (event.currentTarget.value = ""), (once.current = undefined))} />
        <button type="button" aria-label="Attach files" title="Attach files" onClick={() => picker.current?.click()}>+</button>
        <button type="submit" class="primary" disabled={busy}>Send</button>
      </div>
      {active && <label class="quiet"><input type="checkbox" checked={joins} onChange={() => setJoins(!joins)} /> join the running turn, instead of starting a new one</label>}
    </form>
  );
}

/** Focuses the message field. */
export function write(): void {
  document.getElementById("composer")?.focus();
}

function form(input: unknown, files: readonly File[]): FormData {
  const form = new FormData();
  form.append("input", JSON.stringify(input));
  for (const file of files) form.append("file", file, file.name);
  return form;
}
