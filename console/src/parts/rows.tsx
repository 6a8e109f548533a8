/** Virtual list of rows with equal height. Only visible rows are in the document. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Extra rows that are rendered above and below the visible ones. */
const SPARE = 8;

interface Props<T> {
  items: readonly T[];
  height: number;
  label: string;
  selected: number;
  row: (item: T, index: number) => ComponentChildren;
  /** Called when the last rows are visible. */
  end: () => void;
  id: (item: T) => string;
}

export function Rows<T>({ items, height, label, selected, row, end, id }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 800 });
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () => setSeen({ top: element.scrollTop, height: element.clientHeight });
    const watch = new ResizeObserver(look);
    watch.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      watch.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || selected < 0) return;
    const [top, bottom] = [selected * height, (selected + 1) * height];
    if (top < element.scrollTop) element.scrollTop = top;
    else if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight;
  }, [selected, height]);
  const from = Math.max(0, Math.floor(seen.top / height) - SPARE);
  const until = Math.min(items.length, Math.ceil((seen.top + seen.height) / height) + SPARE);
  useEffect(() => {
    if (until >= items.length - SPARE) end();
  }, [until, items.length]);
  return (
    <div class="rows" ref={box} role="list" aria-label={label} tabIndex={0}>
      <div class="rows-all" style={{ height: `${items.length * height}px` }} role="presentation">
        {items.slice(from, until).map((item, at) => (
          <div class="row" role="listitem" key={id(item)} aria-setsize={items.length} aria-posinset={from + at + 1} data-selected={selected === from + at ? "" : undefined} style={{ top: `${(from + at) * height}px`, height: `${height}px` }}>
            {row(item, from + at)}
          </div>
        ))}
      </div>
    </div>
  );
}
