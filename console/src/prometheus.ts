/** Reads the text form of Prometheus. */

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Every sample of a text, in order. */
export function samples(text: string): Sample[] {
  return text.split("\n").flatMap((line) => {
    const found = /^([a-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/i.exec(line);
    if (!found) return [];
    const labels = Object.fromEntries([...(found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name ?? "", value ?? ""]));
    return [{ name: found[1] ?? "", labels, value: Number(found[3]) }];
  });
}

/** The value of a metric without labels. */
export function value(all: readonly Sample[], name: string): number | undefined {
  return all.find((sample) => sample.name === name)?.value;
}

/**
 * A quantile of a histogram, or of what it gained since it was read before, in the unit of its buckets: the bound of the bucket
 * that it falls into.
 */
export function quantile(all: readonly Sample[], before: readonly Sample[], name: string, q: number): number | undefined {
  const old = new Map(buckets(before, name));
  const counts = buckets(all, name).map(([bound, count]) => [bound, count - (old.get(bound) ?? 0)] as const);
  const total = counts.at(-1)?.[1] ?? 0;
  return total === 0 ? undefined : counts.find(([, count]) => count >= total * q)?.[0];
}

function buckets(all: readonly Sample[], name: string): [number, number][] {
  const of = all.filter((sample) => sample.name === `${name}_bucket`);
  return of.map(({ labels, value }) => [labels["le"] === "+Inf" ? Infinity : Number(labels["le"]), value]);
}
