/** Parses the Prometheus text format. */

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Returns all samples in order. */
export function samples(text: string): Sample[] {
  return text.split("\n").flatMap((line) => {
    const found = /^([a-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/i.exec(line);
    if (!found) return [];
    const labels = Object.fromEntries([...(found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name ?? "", value ?? ""]));
    return [{ name: found[1] ?? "", labels, value: Number(found[3]) }];
  });
}

/** Returns the value of a metric without labels. */
export function value(all: readonly Sample[], name: string): number | undefined {
  return all.find((sample) => sample.name === name)?.value;
}

/**
 * Returns a quantile of a histogram, in the unit of its buckets. With earlier samples in `before`, only the increase since then
 * counts. The result is the upper bound of the bucket that contains the quantile.
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
