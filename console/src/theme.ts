/** The colour theme: dark, light or the system's. */
const CHOSEN = "outlast-theme";

export type Theme = "system" | "light" | "dark";

/** Returns the stored theme. */
export function theme(): Theme {
  const chosen = localStorage.getItem(CHOSEN);
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

/** Applies the stored theme. */
export function showTheme(): void {
  document.documentElement.dataset["theme"] = theme();
}

/** Stores a theme and applies it. */
export function chooseTheme(chosen: Theme): void {
  if (chosen === "system") localStorage.removeItem(CHOSEN);
  else localStorage.setItem(CHOSEN, chosen);
  showTheme();
  dispatchEvent(new Event("outlast-theme"));
}
