/**
 * Lossless JSON. JavaScript rounds integers above 2^53, but an approver of a payment must see every digit. Such numbers keep their
 * source text, and `JSON.stringify` writes them unchanged.
 */

type Reviver = (this: unknown, key: string, value: unknown, from?: { source?: string }) => unknown;
interface Raw {
  rawJSON?(text: string): unknown;
}

/** Parses JSON without losing digits. */
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

/** Formats JSON with indentation. */
export function pretty(value: unknown): string {
  return JSON.stringify(value, undefined, 2) ?? "";
}
