// Draws lines over time or steps on a canvas: uPlot. Loaded by the first plot.
import uPlot from "uplot";
import rules from "uplot/dist/uPlot.min.css" with { type: "text" };

export interface ChartOptions {
  /** Whether the horizontal axis is a time in milliseconds. */
  readonly isTime: boolean;
  readonly format: (value: number) => string;
  readonly colours: ChartColours;
}

export interface ChartColours {
  readonly text: string;
  readonly grid: string;
  readonly lines: readonly string[];
}

export type ChartData = readonly [readonly number[], ...(readonly (number | null)[])[]];

export interface Chart {
  readonly update: (data: ChartData) => void;
  readonly destroy: () => void;
}

const sheet = new CSSStyleSheet();
sheet.replaceSync(rules);
document.adoptedStyleSheets.push(sheet);

export function drawChart(host: HTMLElement, data: ChartData, options: ChartOptions): Chart {
  const { colours, format, isTime } = options;
  const axis = { stroke: colours.text, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid, width: 1 } };
  const size = () => ({ width: Math.max(1, host.clientWidth), height: Math.max(1, host.clientHeight) });
  const chart = new uPlot(
    {
      ...size(),
      ms: 1,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: isTime }, y: { range: (_, low, high) => rangeOf(low, high) } },
      axes: [axis, { ...axis, size: 68, values: (_, values) => values.map(format) }],
      series: [
        {},
        ...colours.lines.map((stroke) => ({ stroke, width: 1.5 })),
      ],
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

/** From 0 where nothing is negative: what is used is seen as a part of the height. */
function rangeOf(low: number | null, high: number | null): [number, number] {
  const least = Math.min(0, low ?? 0);
  const most = Math.max(least, high ?? 0);
  return [least, most > least ? most + (most - least) * 0.08 : least + 1];
}

function copy(data: ChartData): uPlot.AlignedData {
  return data.map((column) => [...column]) as unknown as uPlot.AlignedData;
}
