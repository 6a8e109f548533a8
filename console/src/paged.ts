/** Forward pagination. Independent of the server. */
import type { Page } from "./shapes.ts";

/** Reads pages until the list ends or has `most` entries. The result has `next` if more entries exist. */
export async function pages<T>(most: number, read: (cursor: string | undefined) => Promise<Page<T>>): Promise<Page<T>> {
  let page = await read(undefined);
  const items = [...page.items];
  while (page.next !== undefined && items.length < most) {
    page = await read(page.next);
    items.push(...page.items);
  }
  return { ...page, items };
}
