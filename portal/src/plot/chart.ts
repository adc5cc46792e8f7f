// Draws a line over time or steps on a canvas: uPlot. Loaded by the first plot.
import uPlot from "uplot";
import rules from "uplot/dist/uPlot.min.css" with { type: "text" };

export interface ChartOptions {
  /** Whether the horizontal axis is a time in milliseconds. */
  readonly isTime: boolean;
  /** Whether values are bytes, whose axis has powers of two. */
  readonly isBytes: boolean;
  readonly format: (value: number) => string;
  readonly colours: ChartColours;
}

export interface ChartColours {
  readonly text: string;
  readonly grid: string;
  readonly line: string;
}

/** Times or steps, and a value for each of them. */
export type ChartData = readonly [readonly number[], readonly (number | null)[]];

export interface Chart {
  readonly update: (data: ChartData) => void;
  readonly destroy: () => void;
}

const POWERS_OF_TWO = Array.from({ length: 60 }, (_, power) => 2 ** power);
const DAY_MS = 86_400_000;
const time = (options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat(undefined, { hour12: false, ...options });
const dayLabel = time({ month: "short", day: "numeric" });
const minuteLabel = time({ hour: "2-digit", minute: "2-digit" });
const secondLabel = time({ hour: "2-digit", minute: "2-digit", second: "2-digit" });

const sheet = new CSSStyleSheet();

/** Give the page the rules of uPlot, once. */
export function addRules(): void {
  if (document.adoptedStyleSheets.includes(sheet)) return;
  sheet.replaceSync(rules);
  document.adoptedStyleSheets.push(sheet);
}

export function drawChart(host: HTMLElement, data: ChartData, options: ChartOptions): Chart {
  addRules();
  const { colours, format, isTime, isBytes } = options;
  const axis = { stroke: colours.text, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid, width: 1 } };
  const size = () => ({ width: Math.max(1, host.clientWidth), height: Math.max(1, host.clientHeight) });
  const chart = new uPlot(
    {
      ...size(),
      ms: 1,
      legend: { show: false },
      // Half of the last label, which would be cut off.
      padding: [8, 30, 0, 0],
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: isTime }, y: { range: (_, low, high) => rangeOf(low, high) } },
      axes: [
        { ...axis, space: 72, size: 30, ...(isTime ? { values: (_, times) => timeLabels(times) } : {}) },
        { ...axis, size: 72, values: (_, values) => values.map(format), ...(isBytes ? { incrs: POWERS_OF_TWO } : {}) },
      ],
      // Points only where there is no line yet.
      series: [{}, { stroke: colours.line, width: 1.5, points: { show: (_, __, first, last) => last - first < 2 } }],
    },
    copy(data),
    host,
  );
  const observer = new ResizeObserver(() => {
    if (host.clientWidth) chart.setSize(size());
  });
  observer.observe(host);
  return {
    update: (changed) => chart.setData(copy(changed)),
    destroy() {
      observer.disconnect();
      chart.destroy();
    },
  };
}

/** As fine as the distance of the labels; the day where it changes. */
export function timeLabels(times: readonly number[]): string[] {
  const step = (times[1] ?? 0) - (times[0] ?? 0);
  const label = step >= DAY_MS ? dayLabel : step >= 60_000 ? minuteLabel : secondLabel;
  return times.map((at, number) => {
    const day = dayLabel.format(at);
    const isNewDay = number > 0 && day !== dayLabel.format(times[number - 1]);
    return isNewDay ? day : label.format(at);
  });
}

/** From 0 where nothing is negative: what is used is seen as a part of the height. */
function rangeOf(low: number | null, high: number | null): [number, number] {
  const least = Math.min(0, low ?? 0);
  const most = Math.max(least, high ?? 0);
  return [least, most > least ? most + (most - least) * 0.08 : least + 1];
}

function copy(data: ChartData): uPlot.AlignedData {
  return [[...data[0]], [...data[1]]];
}
