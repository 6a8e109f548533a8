/**
 * JSON as it was written. JavaScript folds integers above 2^53, and a person who approves a payment must see every digit, so such
 * numbers stay the text they were; `JSON.stringify` writes them out as they came.
 */

type Reviver = (this: unknown, key: string, value: unknown, from?: { source?: string }) => unknown;
interface Raw {
  rawJSON?(text: string): unknown;
}

/** Reads JSON without losing a digit. */
export function parse(text: string): unknown {
  const raw = (JSON as Raw).rawJSON;
  if (!raw || !/\d{16}/.test(text)) return JSON.parse(text);
  const keep: Reviver = (_key, value, from) => {
    const source = from?.source;
    return typeof value === "number" && source !== undefined && isFolded(value, source) ? raw(source) : value;
  };
  return (JSON.parse as (text: string, reviver: Reviver) => unknown)(text, keep);
}

function isFolded(value: number, source: string): boolean {
  return /^-?\d+$/.test(source) ? !Number.isSafeInteger(value) : source.replace(/\D/g, "").length > 15;
}

/** JSON for people. */
export function pretty(value: unknown): string {
  return JSON.stringify(value, undefined, 2) ?? "";
}
