/**
 * Keys. A page says what its keys do while it is shown; one listener hears them. Keys of one letter can be switched off, for people
 * who speak to their computer (WCAG 2.1.4).
 */
import { useLayoutEffect, useRef } from "preact/hooks";

/** A key, or two after another like `g s`, and what it does. */
export interface Binding {
  keys: string;
  what: string;
  act: () => void;
}

const bound = new Set<{ current: readonly Binding[] }>();
const OFF = "outlast-keys-off";
/** How long the second of two keys may take. */
const PATIENCE_MS = 900;

export const singleKeys = {
  on: () => localStorage.getItem(OFF) === null,
  set: (on: boolean) => (on ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1")),
};

/** Everything that keys do now, the latest page first. */
export function bindings(): Binding[] {
  return [...bound].reverse().flatMap((ref) => ref.current);
}

/** Says what keys do as long as the caller is shown. */
export function useKeys(keys: readonly Binding[]): void {
  const latest = useRef(keys);
  latest.current = keys;
  // Together with what is shown: a key that comes right behind a change means what is there now.
  useLayoutEffect(() => {
    bound.add(latest);
    return () => void bound.delete(latest);
  }, []);
}

let before = { key: "", at: 0 };

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName));
}

/** Hears keys from now on. */
export function hearKeys(): void {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    // What is behind a dialog is not meant.
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && isTyping(event.target)) {
      (event.target as HTMLElement).blur();
      return;
    }
    if (isTyping(event.target) || (event.key.length === 1 && !singleKeys.on())) return;
    // A button that has the focus is pressed by these.
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
