// What is drawn of a metric: smoothed, thinned to what a screen can show, with its gaps and marks.
import type { Metric, Segment } from "./logged_metrics.ts";
import type { Best, PlotSettings } from "./plot_settings.ts";

export { significant } from "../format.ts";

export interface Curve {
  readonly x: readonly number[];
  /** null: a gap. */
  readonly y: readonly (number | null)[];
}

/** A value that is no number, at the place where it was logged. */
export interface OddValue {
  readonly x: number;
  readonly value: number;
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

/** What is drawn of a segment. */
export interface SegmentCurve {
  readonly attempt: number;
  readonly start: number;
  readonly raw: Curve;
  /** The same as `raw` without smoothing. */
  readonly line: Curve;
}

export interface MetricCurve {
  readonly name: string;
  readonly segments: readonly SegmentCurve[];
  readonly odd: readonly OddValue[];
  readonly best: (Point & { readonly kind: Best }) | undefined;
  readonly last: Point | undefined;
  readonly oddCount: number;
  readonly firstOdd: OddValue | undefined;
  /** Values that a logarithmic axis does not have. */
  readonly hiddenCount: number;
}

export interface Span {
  readonly low: number;
  readonly high: number;
}

/** Columns of pixels into which values are thinned, as many as wide windows have. */
export const MAX_COLUMNS = 2048;
/** Attempts that are drawn; a job may be retried without end. */
export const MAX_SEGMENTS = 12;

/** Exponential moving average whose first values are not pulled to 0; others than finite ones are left out. */
export function smoothed(values: readonly number[], weight: number): number[] {
  let sum = 0;
  let weights = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return NaN;
    sum = sum * weight + value * (1 - weight);
    weights = weights * weight + (1 - weight);
    return sum / weights;
  });
}

/** Of each column the first, the lowest, the highest and the last value, in their order, and one gap if it has any. */
export function thinned(x: readonly number[], y: readonly (number | null)[], columnOf: (x: number) => number): Curve {
  const kept: { x: number[]; y: (number | null)[] } = { x: [], y: [] };
  const keep = (at: number) => {
    kept.x.push(x[at] ?? 0);
    kept.y.push(y[at] ?? null);
  };
  for (let from = 0; from < x.length;) {
    const column = columnOf(x[from] ?? 0);
    let to = from + 1;
    while (to < x.length && columnOf(x[to] ?? 0) === column) to += 1;
    if (to - from <= 4) for (let at = from; at < to; at += 1) keep(at);
    else for (const at of outline(y, from, to)) keep(at);
    from = to;
  }
  return kept;
}

function outline(y: readonly (number | null)[], from: number, to: number): number[] {
  let [low, high, gap] = [-1, -1, -1];
  for (let at = from; at < to; at += 1) {
    const value = y[at] ?? null;
    if (value === null) gap = at;
    else {
      if (low < 0 || value < (y[low] ?? 0)) low = at;
      if (high < 0 || value > (y[high] ?? 0)) high = at;
    }
  }
  return [...new Set([from, low, high, gap, to - 1])].filter((at) => at >= 0).sort((one, other) => one - other);
}

/** First and last place on the horizontal axis of all metrics; undefined if there is none. */
export function spanOf(metrics: readonly Metric[], { isTime, isLogX }: PlotSettings): Span | undefined {
  let [low, high] = [Infinity, -Infinity];
  for (const segment of metrics.flatMap(({ segments }) => segments.slice(-MAX_SEGMENTS))) {
    for (const x of isTime ? segment.times : segment.steps) {
      // Also false for NaN.
      if (x < low && (isTime || !isLogX || x > 0)) low = x;
      if (x > high) high = x;
    }
  }
  return low <= high ? { low, high } : undefined;
}

/** The part of the axis that the settings show. */
export function shownSpan(whole: Span, { from, to, isLogX, isTime }: PlotSettings): Span {
  const low = Number.isNaN(from) || (isLogX && !isTime && from <= 0) ? whole.low : from;
  const high = Number.isNaN(to) ? whole.high : to;
  if (low < high) return { low, high };
  return isLogX && !isTime ? { low: low / 2, high: low * 2 } : { low: low - 1, high: low + 1 };
}

/** `columns`: fewer than there can be, where there are many lines. */
export function curveOf(metric: Metric, settings: PlotSettings, shown: Span, columns = MAX_COLUMNS): MetricCurve {
  const isLogX = settings.isLogX && !settings.isTime;
  const position = isLogX ? Math.log : (x: number) => x;
  const width = position(shown.high) - position(shown.low);
  const columnOf = (x: number) => Math.floor(((position(x) - position(shown.low)) / width) * columns);
  const state = { odd: [] as OddValue[], hidden: 0, oddCount: 0, last: undefined as Point | undefined };
  let best: Point | undefined;
  let firstOdd: OddValue | undefined;
  const segments: SegmentCurve[] = [];
  for (const segment of metric.segments.slice(-MAX_SEGMENTS)) {
    const { x, values } = ordered(segment, settings.isTime);
    const from = Math.max(0, firstAtOrAfter(x, shown.low) - 1);
    const to = Math.min(x.length, firstAtOrAfter(x, shown.high, true) + 1);
    const averages = settings.smoothing > 0 ? smoothed(values, settings.smoothing) : values;
    let oddColumn = NaN;
    for (const [at, value] of values.entries()) {
      const place = x[at] ?? 0;
      if (isLogX && place <= 0) {
        state.hidden += 1;
        continue;
      }
      if (Number.isFinite(value)) {
        state.last = { x: place, y: value };
        if (isBetter(value, best, settings.best)) best = state.last;
        if (settings.isLogY && value <= 0) state.hidden += 1;
        continue;
      }
      state.oddCount += 1;
      firstOdd ??= { x: place, value };
      if (place < shown.low || place > shown.high || columnOf(place) === oddColumn) continue;
      oddColumn = columnOf(place);
      state.odd.push({ x: place, value });
    }
    const start = x[0];
    if (start === undefined) continue;
    const part = (of: readonly number[]) => drawn(x, of, from, to, isLogX, settings.isLogY, columnOf);
    const raw = part(values);
    segments.push({ attempt: segment.attempt, start, raw, line: averages === values ? raw : part(averages) });
  }
  return {
    name: metric.name,
    segments,
    odd: state.odd,
    best: best && { ...best, kind: settings.best },
    last: state.last,
    oddCount: Math.max(state.oddCount, state.oddCount && (metric.notFinite ?? 0)),
    firstOdd,
    hiddenCount: state.hidden,
  };
}

function isBetter(value: number, best: Point | undefined, wanted: PlotSettings["best"]): boolean {
  if (wanted === "none") return false;
  return best === undefined || (wanted === "lowest" ? value < best.y : value > best.y);
}

/** Values by step, or by time where they have one. */
function ordered({ steps, times, values }: Segment, isTime: boolean): { x: readonly number[]; values: readonly number[] } {
  if (!isTime) return { x: steps, values };
  const isAscending = times.every((time, at) => at === 0 || time >= (times[at - 1] ?? NaN)) && !Number.isNaN(times[0]);
  if (isAscending) return { x: times, values };
  const places = times.map((_, at) => at).filter((at) => !Number.isNaN(times[at]));
  places.sort((one, other) => (times[one] ?? 0) - (times[other] ?? 0));
  return { x: places.map((at) => times[at] ?? 0), values: places.map((at) => values[at] ?? NaN) };
}

/** Index of the first place that is at least (or, with `isAfter`, more than) `wanted`. */
export function firstAtOrAfter(x: readonly number[], wanted: number, isAfter = false): number {
  let [low, high] = [0, x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const value = x[middle] ?? 0;
    if (isAfter ? value <= wanted : value < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawn(
  x: readonly number[],
  values: readonly number[],
  from: number,
  to: number,
  isLogX: boolean,
  isLogY: boolean,
  columnOf: (x: number) => number,
): Curve {
  const first = isLogX ? Math.max(from, firstAtOrAfter(x, 0, true)) : from;
  const y = values.slice(first, to).map((value) => (Number.isFinite(value) && !(isLogY && value <= 0) ? value : null));
  return thinned(x.slice(first, to), y, columnOf);
}

/** A curve up to a place, and from the last point before it on. */
export function splitAt({ x, y }: Curve, place: number): [Curve, Curve] {
  const at = firstAtOrAfter(x, place);
  const from = Math.max(0, at - 1);
  return [
    { x: x.slice(0, at), y: y.slice(0, at) },
    { x: x.slice(from), y: y.slice(from) },
  ];
}

/** Indexes of points without a neighbour, which no line shows; undefined is no gap. */
export function lonePoints(y: readonly (number | null | undefined)[]): number[] {
  const known = y.flatMap((value, at) => (value === undefined ? [] : [at]));
  const isGap = (place: number) => (y[known[place] ?? -1] ?? null) === null;
  return known.filter((_, place) => !isGap(place) && isGap(place - 1) && isGap(place + 1));
}

/** Labels with as many digits as tell them apart. */
export function tickLabels(values: readonly (number | null)[]): string[] {
  const known = values.filter((value) => value !== null);
  const step = Math.min(...known.slice(1).map((value, at) => Math.abs(value - (known[at] ?? 0))));
  return values.map((value) => (value === null ? "" : tickLabel(value, step)));
}

function tickLabel(value: number, step: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  // The digits down to that of the distance.
  const digits = Number.isFinite(step) && step > 0 ? Math.ceil(Math.log10(size / step)) + 2 : 4;
  const number = Number(value.toPrecision(Math.min(15, Math.max(1, digits))));
  return size >= 1e6 || size < 1e-4 ? number.toExponential().replace("e+", "e") : String(number);
}
