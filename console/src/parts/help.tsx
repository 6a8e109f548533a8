/** The list of keyboard shortcuts. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { bindings, singleKeys } from "../keys.ts";

export function Help({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [on, setOn] = useState(singleKeys.on());
  // A layout effect runs with the render, so the page already ignores a key pressed right after `?`.
  useLayoutEffect(() => dialog.current?.showModal(), []);
  const flip = () => {
    singleKeys.set(!on);
    setOn(!on);
  };
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={close} onClick={(event) => event.target === dialog.current && close()}>
      <div class="help-inside">
        <h2 id="help-title">Keys</h2>
        <dl>
          {bindings().map(({ keys, what }) => (
            <div>
              <dt>{keys.split(" ").map((letter) => <kbd>{shownKey(letter)}</kbd>)}</dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
        <p><label><input type="checkbox" checked={on} onChange={flip} /> Keys of a single letter</label></p>
        <button type="button" onClick={close}>Close</button>
      </div>
    </dialog>
  );
}

function shownKey(letter: string): string {
  const names: Record<string, string> = { Enter: "↵", Escape: "Esc", ArrowDown: "↓", ArrowUp: "↑" };
  return names[letter] ?? letter;
}
