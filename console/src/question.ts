/** What an agent asks a person (`ask_user`), and how an answer is understood. */
import type { Blocked } from "./shapes.ts";

export interface Question {
  question: string;
  options: string[];
}

/** The question that is behind a wait, if one is. */
export function asked({ tool, arguments: passed }: Blocked): Question | undefined {
  if (tool !== "ask_user" || typeof passed !== "object" || passed === null) return undefined;
  const { question, options } = passed as { question?: unknown; options?: unknown };
  if (typeof question !== "string") return undefined;
  return { question, options: Array.isArray(options) ? options.filter((option) => typeof option === "string") : [] };
}

/** The answer that somebody typed, as `outlast chat` takes it: an option by its number, or the text itself. */
export function answer({ options }: Question, typed: string): string {
  const said = typed.trim();
  return (/^\d+$/.test(said) ? options[Number(said) - 1] : undefined) ?? said;
}
