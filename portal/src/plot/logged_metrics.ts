// What the program of a task logged: metrics with their values by step, as the server thins them for plots.
import type { MetricSeriesPart } from "../api_types.ts";

/** Values whose steps ascend: of one attempt of a task, or of one of several runs within it. */
export interface Segment {
  /** Attempt of the task, from 1. */
  readonly attempt: number;
  readonly steps: number[];
  /** Milliseconds since 1970; NaN where the line has no time. */
  readonly times: number[];
  /** Infinity and NaN among them. */
  readonly values: number[];
}

export interface Metric {
  readonly name: string;
  /** In the order in which they were logged. */
  readonly segments: readonly Segment[];
  /** Values that were logged; the segments have as many as a plot needs. */
  readonly count: number;
  /** How many of them are NaN or infinite. */
  readonly notFinite?: number;
}

export interface MetricGroup {
  /** What is before the first slash of the names; empty for names without one. */
  readonly name: string;
  readonly metrics: readonly Metric[];
}

interface GrowingSegment extends Segment {
  first: number;
  latest: number;
  isOrdered: boolean;
}

interface GrowingMetric extends Metric {
  readonly segments: GrowingSegment[];
  count: number;
  notFinite: number;
}

/** Points of a segment that are kept, and of all metrics together: further parts of a long series make it coarser. */
const MAX_SEGMENT_POINTS = 20_000;
const MAX_ALL_POINTS = 1_000_000;
const MIN_SEGMENT_POINTS = 256;
/** Of so many points four are kept: the first, the lowest, the highest and the last. */
const THINNED_WIDTH = 8;

/** Names of metrics of event files begin with it. */
export const TENSORBOARD = "tensorboard" as const;

export function isOfTensorBoard(name: string): boolean {
  return name.startsWith(`${TENSORBOARD}/`);
}

export class LoggedMetrics {
  /** What the next request begins with: the byte from which on nothing was read. */
  next = 0;
  private readonly byName = new Map<string, GrowingMetric>();

  get metrics(): readonly Metric[] {
    return [...this.byName.values()];
  }

  /** Add what follows the part before. */
  add({ segments, counts, next, isWhole }: MetricSeriesPart): void {
    this.next = next;
    if (isWhole) this.byName.clear();
    const changed = new Set<GrowingSegment>();
    for (const { name, attempt, steps, times, values } of segments) {
      const metric = this.metricOf(name);
      for (const [at, step] of steps.entries()) {
        changed.add(addValue(metric, attempt, step, times[at] ?? NaN, Number(values[at])));
      }
    }
    for (const { name, count, notFinite } of counts) {
      const metric = this.metricOf(name);
      metric.count += count;
      metric.notFinite += notFinite;
    }
    for (const segment of changed) sortBySteps(segment);
    this.thin();
  }

  private metricOf(name: string): GrowingMetric {
    let metric = this.byName.get(name);
    if (!metric) this.byName.set(name, (metric = { name, segments: [], count: 0, notFinite: 0 }));
    return metric;
  }

  private thin(): void {
    const all = [...this.byName.values()].flatMap(({ segments }) => segments);
    const most = Math.max(MIN_SEGMENT_POINTS, Math.min(MAX_SEGMENT_POINTS, Math.floor(MAX_ALL_POINTS / Math.max(1, all.length))));
    for (const segment of all) while (segment.steps.length > most) thinSegment(segment);
  }
}

/** The segment of the value; a program that counts its steps from the beginning again gets a new one. */
function addValue(metric: GrowingMetric, attempt: number, step: number, time: number, value: number): GrowingSegment {
  let segment = metric.segments[metric.segments.length - 1];
  if (segment?.attempt !== attempt || (step <= segment.first && step < segment.latest)) {
    segment = { attempt, steps: [], times: [], values: [], first: step, latest: step, isOrdered: true };
    metric.segments.push(segment);
  }
  if (step < segment.latest) segment.isOrdered = false;
  segment.first = Math.min(segment.first, step);
  segment.latest = Math.max(segment.latest, step);
  segment.steps.push(step);
  segment.times.push(time);
  segment.values.push(value);
  return segment;
}

/** Several processes of a task may log the same steps, one a little later than the other. */
function sortBySteps(segment: GrowingSegment): void {
  if (segment.isOrdered) return;
  const { steps } = segment;
  keep(
    segment,
    steps.map((_, at) => at).sort((one, other) => (steps[one] ?? 0) - (steps[other] ?? 0)),
  );
  segment.isOrdered = true;
}

function thinSegment(segment: GrowingSegment): void {
  const { values } = segment;
  const kept: number[] = [];
  for (let from = 0; from < values.length; from += THINNED_WIDTH)
    kept.push(...outline(values, from, Math.min(values.length, from + THINNED_WIDTH)));
  keep(segment, kept);
}

/** Of a part the first, the lowest, the highest and the last value, and one that is no number if it has any. */
function outline(values: readonly number[], from: number, to: number): number[] {
  let [low, high, odd] = [-1, -1, -1];
  for (let at = from; at < to; at += 1) {
    const value = values[at] ?? NaN;
    if (!Number.isFinite(value)) odd = at;
    else {
      if (low < 0 || value < (values[low] ?? 0)) low = at;
      if (high < 0 || value > (values[high] ?? 0)) high = at;
    }
  }
  return [...new Set([from, low, high, odd, to - 1])].filter((at) => at >= 0).sort((one, other) => one - other);
}

function keep({ steps, times, values }: GrowingSegment, places: readonly number[]): void {
  for (const column of [steps, times, values]) {
    const kept = places.map((at) => column[at] ?? NaN);
    column.length = 0;
    for (const value of kept) column.push(value);
  }
}

/** Metrics without a slash first, then each group in the order in which it was logged. */
export function groupsOf(metrics: readonly Metric[]): MetricGroup[] {
  const groups = new Map<string, Metric[]>([["", []]]);
  for (const metric of metrics) {
    const slash = metric.name.indexOf("/");
    const name = slash > 0 ? metric.name.slice(0, slash) : "";
    const group = groups.get(name);
    if (group) group.push(metric);
    else groups.set(name, [metric]);
  }
  return [...groups].filter(([, members]) => members.length).map(([name, members]) => ({ name, metrics: members }));
}
