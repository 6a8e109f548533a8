/** Questions of an agent to a person (`ask_user`) and their answers. */
import type { Blocked } from "./shapes.ts";

export interface Question {
  question: string;
  options: string[];
}

/** Returns the question of a wait, if it is one. */
export function asked({ tool, arguments: passed }: Blocked): Question | undefined {
  if (tool !== "ask_user" || typeof passed !== "object" || passed === null) return undefined;
  const { question, options } = passed as { question?: unknown; options?: unknown };
  if (typeof question !== "string") return undefined;
  return { question, options: Array.isArray(options) ? options.filter((option) => typeof option === "string") : [] };
}

/** Parses a typed answer like `outlast chat`: the number of an option, or free text. */
export function answer({ options }: Question, typed: string): string {
  const said = typed.trim();
  return (/^\d+$/.test(said) ? options[Number(said) - 1] : undefined) ?? said;
}
