/** Dark or light: what the system says, or what was chosen here. */
const CHOSEN = "outlast-theme";

export type Theme = "system" | "light" | "dark";

/** What was chosen. */
export function theme(): Theme {
  const chosen = localStorage.getItem(CHOSEN);
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

/** Shows what was chosen. */
export function showTheme(): void {
  document.documentElement.dataset["theme"] = theme();
}

/** Chooses. */
export function chooseTheme(chosen: Theme): void {
  if (chosen === "system") localStorage.removeItem(CHOSEN);
  else localStorage.setItem(CHOSEN, chosen);
  showTheme();
  dispatchEvent(new Event("outlast-theme"));
}
