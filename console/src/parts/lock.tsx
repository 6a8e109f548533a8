/** The login dialog for servers that require an API key. The key is stored for this tab only. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export function Lock({ enter, wrong }: { enter: (key: string) => void; wrong: boolean }) {
  const [said, setSaid] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const submit = (event: Event) => {
    event.preventDefault();
    if (said.trim()) enter(said.trim());
  };
  return (
    <main class="lock">
      <form onSubmit={submit}>
        <h1>Outlast</h1>
        <p>This server asks for an API key. An administrator creates one with <code>outlast keys create</code>.</p>
        <label for="key">API key</label>
        <input ref={field} id="key" type="password" autocomplete="off" spellcheck={false} value={said} aria-invalid={wrong} aria-describedby={wrong ? "key-wrong" : undefined} onInput={(event) => setSaid(event.currentTarget.value)} />
        {wrong && <p id="key-wrong" class="error">The key is not valid, or no longer valid.</p>}
        <button type="submit" class="primary">Enter</button>
        <p class="quiet">It is stored only in this tab, and deleted when you close it.</p>
      </form>
    </main>
  );
}
