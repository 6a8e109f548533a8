/**
 * Keyboard shortcuts. Pages register shortcuts while they are mounted; one listener handles them. Single-letter shortcuts can be
 * turned off for people who use speech input (WCAG 2.1.4).
 */
import { useLayoutEffect, useRef } from "preact/hooks";

/** A key, or a sequence of two keys such as `g s`, and its action. */
export interface Binding {
  keys: string;
  what: string;
  act: () => void;
}

const bound = new Set<{ current: readonly Binding[] }>();
const OFF = "outlast-keys-off";
/** Maximum time between the two keys of a sequence. */
const PATIENCE_MS = 900;

export const singleKeys = {
  on: () => localStorage.getItem(OFF) === null,
  set: (on: boolean) => (on ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1")),
};

/** Returns the active shortcuts, those of the newest page first. */
export function bindings(): Binding[] {
  return [...bound].reverse().flatMap((ref) => ref.current);
}

/** Registers shortcuts while the component is mounted. */
export function useKeys(keys: readonly Binding[]): void {
  const latest = useRef(keys);
  latest.current = keys;
  // A layout effect runs with the render, so a key pressed right after it uses the new shortcuts.
  useLayoutEffect(() => {
    bound.add(latest);
    return () => void bound.delete(latest);
  }, []);
}

let before = { key: "", at: 0 };

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName));
}

/** Installs the key listener. */
export function hearKeys(): void {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    // An open dialog disables page shortcuts.
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && isTyping(event.target)) {
      (event.target as HTMLElement).blur();
      return;
    }
    if (isTyping(event.target) || (event.key.length === 1 && !singleKeys.on())) return;
    // Enter and Space activate the focused button.
    const pressed = event.target instanceof HTMLElement && event.target.closest("button, a, summary, [role=tab]");
    if (pressed && (event.key === "Enter" || event.key === " ")) return;
    const two = event.timeStamp - before.at < PATIENCE_MS ? `${before.key} ${event.key}` : "";
    before = { key: event.key, at: event.timeStamp };
    const all = bindings();
    const found = all.find((binding) => two && binding.keys === two) ?? all.find((binding) => binding.keys === event.key);
    if (!found) return;
    event.preventDefault();
    before.at = 0;
    found.act();
  });
}
