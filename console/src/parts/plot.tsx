/** A time series plot, drawn by uPlot. A table with the same values makes it accessible. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { plain } from "../visible.ts";
import { Text } from "./text.tsx";

export interface Series {
  name: string;
  values: number[];
}

interface Props {
  /** Unix timestamps in seconds. */
  times: number[];
  series: readonly Series[];
  label: string;
  height: number;
  unit: (value: number) => string;
  /** Whether the values are integers. */
  whole?: boolean;
  /** Possible distances between axis labels, in seconds. */
  steps?: number[];
  /** Formats a time. */
  when: (time: number) => string;
  /** If set, the plot shows this many seconds before the last time, with or without values. */
  recent?: number;
}

const COLOURS = 6;
/** Possible distances between grid lines of integer axes. */
const WHOLE = [1, 10, 100, 1_000, 10_000, 100_000].flatMap((ten) => [ten, 2 * ten, 5 * ten]);
/** Maximum number of table rows. Older values are left out. */
const ROWS = 30;

function rows(times: readonly number[]): number[] {
  return [...times.keys()].slice(-ROWS);
}

/** Resolves a style sheet colour for the canvas, in the current light or dark theme. */
function colour(element: HTMLElement, name: string): string {
  element.style.color = `var(${name})`;
  const shown = getComputedStyle(element).color;
  element.style.color = "";
  return shown;
}

export function Plot({ times, series, label, height, unit, whole, steps, when, recent }: Props) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element || times.length === 0) return;
    const draw = () => {
      const [ink, line] = [colour(element, "--ink-2"), colour(element, "--line")];
      const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      const shown = series.map(({ name }, at) => {
        const stroke = colour(element, `--plot-${at % COLOURS}`);
        return { label: name, stroke, fill: `color-mix(in srgb, ${stroke} 22%, transparent)`, width: 1.5, points: { show: times.length < 3 }, paths: uPlot.paths.stepped?.({ align: 1 }) ?? null };
      });
      const values = (_: uPlot, ticks: number[]) => ticks.map(unit);
      return new uPlot(
        {
          width: element.clientWidth,
          height,
          legend: { show: false },
          cursor: { y: false },
          scales: { ...(recent ? { x: { range: (_: uPlot, _low: number, high: number): [number, number] => [high - recent, high] } } : {}), y: { range: (_: uPlot, _low: number, high: number): [number, number] => [0, high || 1] } },
          axes: [{ ...axis, values: (_: uPlot, ticks: number[]) => ticks.map(when), space: 70, ...(steps ? { incrs: steps } : {}) }, { ...axis, values, size: 56, ...(whole ? { incrs: WHOLE } : {}) }],
          series: [{}, ...shown],
        } as uPlot.Options,
        [times, ...series.map(({ values }) => values)],
        element,
      );
    };
    let plot = draw();
    const again = () => {
      plot.destroy();
      plot = draw();
    };
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    addEventListener("outlast-theme", again);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", again);
    return () => {
      watch.disconnect();
      removeEventListener("outlast-theme", again);
      dark.removeEventListener("change", again);
      plot.destroy();
    };
  }, [times, series, height]);
  return (
    <figure class="plot">
      <div ref={box} role="img" aria-label={label} />
      {series.length > 1 && <figcaption>{series.map(({ name }, at) => <span><i class={`plot-${at % COLOURS}`} aria-hidden="true" /><Text of={name} /></span>)}</figcaption>}
      <div class="sr">
        <table>
          <caption>{label}</caption>
          <thead><tr><th scope="col">When</th>{series.map(({ name }) => <th scope="col">{plain(name)}</th>)}</tr></thead>
          <tbody>{rows(times).map((at) => <tr><th scope="row">{when(times[at] ?? 0)}</th>{series.map(({ values }) => <td>{unit(values[at] ?? 0)}</td>)}</tr>)}</tbody>
        </table>
      </div>
    </figure>
  );
}
