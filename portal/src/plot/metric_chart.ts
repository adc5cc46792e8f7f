// Draws metrics over steps or time on a canvas: uPlot. Loaded by the first plot of a metric.
import uPlot from "uplot";
import { dashOf, type Look } from "./colours.ts";
import { lonePoints, tickLabels, type Curve, type OddValue, type Point, type Span } from "./curve.ts";
import { addRules, timeLabels } from "./chart.ts";

export interface ChartLine extends Curve, Look {
  /** Behind the others: what is smoothed, and earlier attempts. */
  readonly isPale: boolean;
  /** Edge of a band, which is filled up to the edge before or after it, and is no line. */
  readonly edge?: "low" | "high";
}

export interface ChartMark {
  readonly x: number;
  readonly label: string;
}

export interface MetricView {
  readonly lines: readonly ChartLine[];
  readonly shown: Span;
  readonly isTime: boolean;
  readonly isLogX: boolean;
  readonly isLogY: boolean;
  readonly isFromZero: boolean;
  /** Where an attempt begins. */
  readonly starts: readonly ChartMark[];
  readonly odd: readonly OddValue[];
  readonly best: readonly (Point & { readonly colour: string })[];
  readonly colours: MetricColours;
}

export interface MetricColours {
  readonly text: string;
  readonly grid: string;
  readonly surface: string;
  readonly bad: string;
}

/** Of each line the point at the cursor; null where the line has none. */
export interface Hovered {
  readonly x: number;
  readonly points: readonly (Point | null)[];
}

export interface MetricChart {
  readonly update: (view: MetricView) => void;
  /** Move the cursor by so many points; 0 takes it away. */
  readonly moveCursor: (by: number) => void;
  readonly destroy: () => void;
}

interface Listeners {
  /** A part of the horizontal axis was dragged over; undefined: a double click asks for all of it. */
  readonly onZoom: (part: Span | undefined) => void;
  readonly onHover: (hovered: Hovered | null) => void;
}

const PALE = 0.3;
const BAND_PERCENT = 20;
const LOG_BASE = 10;
const MARK_PX = 5;
const LABEL_PX = 76;
const MIN_DRAG_PX = 4;
/** Of more lines the points at the cursor are not marked: each is an element that moves. */
const MAX_POINTED = 16;

export function drawMetrics(host: HTMLElement, first: MetricView, listeners: Listeners): MetricChart {
  addRules();
  let view = first;
  let chart = build();
  const observer = new ResizeObserver(() => {
    if (host.clientWidth) chart.setSize(sizeOf(host));
  });
  observer.observe(host);

  function build(): uPlot {
    const { colours, isTime, isLogX, isLogY } = view;
    const axis = { stroke: colours.text, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid, width: 1 } };
    return new uPlot(
      {
        ...sizeOf(host),
        ms: 1,
        legend: { show: false },
        padding: [14, 24, 0, 0],
        cursor: {
          y: false,
          drag: { x: true, y: false, setScale: false, dist: MIN_DRAG_PX },
          hover: { skip: [null, undefined] },
          points: {
            show: view.lines.length <= MAX_POINTED,
            size: 7,
            width: 1.5,
            stroke: colours.surface,
            fill: (_, line) => view.lines[line - 1]?.colour ?? "",
          },
          sync: {
            key: isTime ? "metrics over time" : "metrics over steps",
            setSeries: false,
            filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
          },
          bind: {
            dblclick: () => () => {
              listeners.onZoom(undefined);
              return null;
            },
          },
        },
        scales: {
          x: { time: isTime, ...(isLogX ? { distr: 3 } : {}), range: () => [view.shown.low, view.shown.high] },
          y: { ...(isLogY ? { distr: 3 } : {}), range: (_, low, high) => rangeOf(view, low, high) },
        },
        axes: [
          { ...axis, space: 72, size: 30, values: (_, values) => (isTime ? timeLabels(values) : tickLabels(values)) },
          { ...axis, size: 76, values: (_, values) => tickLabels(values) },
        ],
        series: [{}, ...view.lines.map(lineOf)],
        bands: bandsOf(view.lines),
        hooks: {
          drawAxes: [(drawing) => drawStarts(drawing, view)],
          draw: [(drawing) => drawMarks(drawing, view)],
          setCursor: [(drawing) => listeners.onHover(hoveredOf(drawing))],
          setSelect: [
            (drawing) => {
              const { left, width } = drawing.select;
              drawing.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              if (width < MIN_DRAG_PX) return;
              listeners.onZoom({ low: drawing.posToVal(left, "x"), high: drawing.posToVal(left + width, "x") });
            },
          ],
        },
      },
      dataOf(view),
      host,
    );
  }

  return {
    update(changed) {
      const isSame = structureOf(changed) === structureOf(view);
      view = changed;
      if (isSame) {
        chart.setData(dataOf(view));
        return;
      }
      chart.destroy();
      chart = build();
    },
    moveCursor(by) {
      const [x] = chart.data;
      const at = chart.cursor.idx;
      const start = at ?? (by > 0 ? -1 : x.length);
      const place = by === 0 ? undefined : x[Math.max(0, Math.min(x.length - 1, start + by))];
      chart.setCursor({ left: place === undefined ? -1 : chart.valToPos(place, "x"), top: place === undefined ? -1 : 1 });
    },
    destroy() {
      observer.disconnect();
      chart.destroy();
    },
  };
}

function sizeOf(host: HTMLElement) {
  return { width: Math.max(1, host.clientWidth), height: Math.max(1, host.clientHeight) };
}

/** What a chart is built for; anything else it can take over. */
function structureOf({ lines, isTime, isLogX, isLogY, colours }: MetricView): string {
  return JSON.stringify([lines.map(({ colour, round, isPale, edge }) => [colour, round, isPale, edge]), isTime, isLogX, isLogY, colours]);
}

/** A low edge is followed by its high one. */
function bandsOf(lines: readonly ChartLine[]): uPlot.Band[] {
  return lines.flatMap(({ colour, edge }, at) =>
    edge === "high"
      ? [{ series: [at + 1, at] as [number, number], fill: `color-mix(in srgb, ${colour} ${BAND_PERCENT}%, transparent)` }]
      : [],
  );
}

function lineOf({ colour, round, isPale, edge }: ChartLine): uPlot.Series {
  return {
    dash: [...dashOf({ round })],
    stroke: edge ? "transparent" : colour,
    width: 1.5,
    // Between pixels, so that a straight line has no steps.
    pxAlign: 0,
    ...(isPale && !edge ? { alpha: PALE } : {}),
    points: {
      show: false,
      size: 5,
      fill: colour,
      filter: (drawing, line) => lonePoints([...(drawing.data[line] ?? [])]),
    },
  };
}

function dataOf({ lines }: MetricView): uPlot.AlignedData {
  if (!lines.length) return [[]];
  return uPlot.join(lines.map(({ x, y }) => [[...x], [...y]]));
}

function rangeOf({ isLogY, isFromZero }: MetricView, low: number | null, high: number | null): uPlot.Range.MinMax {
  if (low === null || high === null) return isLogY ? [1, LOG_BASE] : [0, 1];
  if (isLogY) return uPlot.rangeLog(low, high, LOG_BASE, false);
  const least = isFromZero ? Math.min(0, low) : low;
  const most = isFromZero ? Math.max(0, high) : high;
  const margin = (most - least) * 0.06 || Math.abs(most) * 0.1 || 1;
  return [isFromZero && least === 0 ? 0 : least - margin, isFromZero && most === 0 ? 0 : most + margin];
}

function hoveredOf({ cursor, data }: uPlot): Hovered | null {
  const { idx, idxs } = cursor;
  const x = idx === null || idx === undefined || (cursor.left ?? -1) < 0 ? undefined : data[0][idx];
  if (x === undefined) return null;
  const points = data.slice(1).map((values, line) => {
    const at = idxs?.[line + 1];
    const [place, value] = at === null || at === undefined ? [] : [data[0][at], values[at]];
    return place === undefined || value === null || value === undefined ? null : { x: place, y: value };
  });
  return { x, points };
}

// -- marks -----------------------------------------------------------------------------------------

function drawStarts({ ctx, bbox, valToPos }: uPlot, { starts, colours, shown }: MetricView): void {
  const scale = uPlot.pxRatio;
  ctx.save();
  ctx.strokeStyle = colours.text;
  ctx.fillStyle = colours.text;
  ctx.font = `${12 * scale}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  ctx.setLineDash([4 * scale, 4 * scale]);
  let labelled = -Infinity;
  for (const { x, label } of [...starts].sort((one, other) => one.x - other.x)) {
    if (x < shown.low || x > shown.high) continue;
    const left = Math.round(valToPos(x, "x", true));
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    if (left - labelled < LABEL_PX * scale || left + LABEL_PX * scale > ctx.canvas.width) continue;
    ctx.fillText(label, left, bbox.top - 1);
    labelled = left;
  }
  ctx.restore();
}

/** The best values as rings; what is no number at the edge of the plot: infinity above, the others below. */
function drawMarks({ ctx, bbox, valToPos }: uPlot, { odd, best, colours, shown }: MetricView): void {
  const size = MARK_PX * uPlot.pxRatio;
  ctx.save();
  ctx.lineWidth = 2 * uPlot.pxRatio;
  ctx.strokeStyle = colours.bad;
  ctx.beginPath();
  for (const { x, value } of odd) {
    const left = valToPos(x, "x", true);
    const bottom = bbox.top + bbox.height;
    if (Number.isNaN(value)) {
      ctx.moveTo(left - size, bottom - 3 * size);
      ctx.lineTo(left + size, bottom - size);
      ctx.moveTo(left + size, bottom - 3 * size);
      ctx.lineTo(left - size, bottom - size);
      continue;
    }
    const [tip, base] = value > 0 ? [bbox.top + size, bbox.top + 3 * size] : [bottom - size, bottom - 3 * size];
    ctx.moveTo(left - size, base);
    ctx.lineTo(left, tip);
    ctx.lineTo(left + size, base);
  }
  ctx.stroke();
  for (const { x, y, colour } of best) {
    if (x < shown.low || x > shown.high) continue;
    ctx.beginPath();
    ctx.arc(valToPos(x, "x", true), valToPos(y, "y", true), size, 0, 2 * Math.PI);
    ctx.fillStyle = colours.surface;
    ctx.strokeStyle = colour;
    ctx.fill();
    ctx.stroke();
  }
  ctx.restore();
}
