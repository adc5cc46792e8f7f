// Groups of runs with the same values of parameters, and the mean of a metric over the runs of a group, with a band.
import { seriesLook, type Look } from "../plot/colours.ts";
import { MAX_SEGMENTS } from "../plot/curve.ts";
import type { Metric, Segment } from "../plot/logged_metrics.ts";
import { runLooks } from "./run_looks.ts";
import { cellOf } from "./run_table.ts";
import type { Run } from "./runs.ts";

/** What a band shows: the standard deviation of a sample around the mean, or all from the lowest to the highest. */
export type BandKind = "deviation" | "range";

/** In the address, before the name of a parameter: group by all others. */
const ALL_BUT = "!";
/** Steps of a mean. */
const MAX_STEPS = 1000;
/** A band around values above 0 ends at this part of the lowest of them. */
const FLOOR_PART = 10;

export interface GroupChoice {
  /** As in the address. */
  readonly value: string;
  readonly label: string;
  readonly parameters: readonly string[];
}

/** By one parameter; of three or more also by all but one, such as all but the seed. */
export function groupChoices(parameters: readonly string[]): readonly GroupChoice[] {
  const single = parameters.map((name) => ({ value: name, label: name, parameters: [name] }));
  if (parameters.length < 3) return single;
  const others = parameters.map((name) => ({
    value: `${ALL_BUT}${name}`,
    label: `all but ${name}`,
    parameters: parameters.filter((one) => one !== name),
  }));
  return [...single, ...others];
}

export interface RunGroup {
  readonly label: string;
  readonly look: Look;
  readonly runs: readonly Run[];
}

/** In the order of their first runs. */
export function runGroups(runs: readonly Run[], parameters: readonly string[]): readonly RunGroup[] {
  const groups = new Map<string, Run[]>();
  for (const run of runs) {
    const key = JSON.stringify(parameters.map((name) => run.parameters.get(name) ?? null));
    const members = groups.get(key);
    if (members) members.push(run);
    else groups.set(key, [run]);
  }
  const [only = ""] = parameters;
  const looks = runLooks(runs, parameters.length === 1 ? only : "");
  return [...groups.values()].map((members, at) => {
    const values = parameters.map((name) => `${name}=${members[0]?.parameters.get(name) ?? "none"}`).join(" ");
    const look = parameters.length === 1 && members[0] ? looks.of(members[0]) : seriesLook(at);
    return { label: values, look, runs: members };
  });
}

/** The look of the group of each run. */
export function groupLooks(runs: readonly Run[], parameters: readonly string[]): (run: Run) => Look {
  const byKey = new Map(runGroups(runs, parameters).flatMap(({ runs: members, look }) => members.map(({ key }) => [key, look] as const)));
  return ({ key }) => byKey.get(key) ?? seriesLook(0);
}

export interface MeanCurve {
  readonly mean: Metric;
  readonly low: Metric;
  readonly high: Metric;
  /** Runs that have a value, at each step. */
  readonly counts: readonly number[];
}

/** Mean over runs at each step at which one has a value: of those that are there, between their steps in proportion. */
export function meanOf(name: string, metrics: readonly Metric[], kind: BandKind): MeanCurve {
  const series = metrics.map(flat);
  const grid = gridOf(series);
  const places = series.map(() => 0);
  let floor = Infinity;
  const [means, lows, highs, counts]: [number[], number[], number[], number[]] = [[], [], [], []];
  for (const step of grid) {
    let [count, sum, low, high] = [0, 0, Infinity, -Infinity];
    const values: number[] = [];
    for (const [at, { steps, values: known }] of series.entries()) {
      let place = places[at] ?? 0;
      while (place < steps.length && (steps[place] ?? 0) < step) place += 1;
      places[at] = place;
      const value = valueAt(steps, known, place, step);
      if (!Number.isFinite(value)) continue;
      values.push(value);
      count += 1;
      sum += value;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    const mean = count ? sum / count : NaN;
    const spread = count > 1 ? Math.sqrt(values.reduce((squares, value) => squares + (value - mean) ** 2, 0) / (count - 1)) : 0;
    means.push(mean);
    counts.push(count);
    floor = Math.min(floor, low);
    lows.push(count ? (kind === "range" ? low : mean - spread) : NaN);
    highs.push(count ? (kind === "range" ? high : mean + spread) : NaN);
  }
  // Of values above 0 the band is, too: a logarithmic axis has no other place.
  if (floor > 0) for (const [at, low] of lows.entries()) lows[at] = Math.max(low, floor / FLOOR_PART);
  const metricOf = (values: number[]): Metric => ({
    name,
    count: grid.length,
    segments: [{ attempt: 1, steps: grid, times: grid.map(() => NaN), values }],
  });
  return { mean: metricOf(means), low: metricOf(lows), high: metricOf(highs), counts };
}

type Series = Pick<Segment, "steps" | "values">;

/** Values by step, in order: what a later attempt did again counts. */
function flat({ segments }: Metric): Series {
  const [steps, values]: [number[], number[]] = [[], []];
  for (const segment of segments.slice(-MAX_SEGMENTS)) {
    const [first = Infinity] = segment.steps;
    while (steps.length && (steps[steps.length - 1] ?? 0) >= first) {
      steps.pop();
      values.pop();
    }
    for (const [at, step] of segment.steps.entries()) {
      if (steps[steps.length - 1] === step) {
        values[values.length - 1] = segment.values[at] ?? NaN;
        continue;
      }
      steps.push(step);
      values.push(segment.values[at] ?? NaN);
    }
  }
  return { steps, values };
}

/** All steps, or as many of them as a plot can show. */
function gridOf(series: readonly Series[]): number[] {
  const all = new Set<number>();
  for (const { steps } of series) for (const step of steps) all.add(step);
  const sorted = [...all].sort((one, other) => one - other);
  if (sorted.length <= MAX_STEPS) return sorted;
  const part = (sorted.length - 1) / (MAX_STEPS - 1);
  return Array.from({ length: MAX_STEPS }, (_, at) => sorted[Math.round(at * part)] ?? 0);
}

/** NaN before the first step, after the last one, and beside a value that is no number. */
function valueAt(steps: readonly number[], values: readonly number[], place: number, step: number): number {
  const [next, value] = [steps[place], values[place] ?? NaN];
  if (next === step) return value;
  const [before, earlier] = [steps[place - 1], values[place - 1] ?? NaN];
  if (next === undefined || before === undefined) return NaN;
  return earlier + ((value - earlier) * (step - before)) / (next - before);
}

/** The values of groups: a line for each step of each. */
export function groupCsv(groups: readonly RunGroup[], parameters: readonly string[], curves: readonly MeanCurve[]): string {
  const lines: (string | number)[][] = [[...parameters, "step", "runs", "mean", "low", "high"]];
  for (const [at, { mean, low, high, counts }] of curves.entries()) {
    const values = parameters.map((name) => groups[at]?.runs[0]?.parameters.get(name) ?? "");
    const [means, lows, highs] = [mean, low, high].map(({ segments }) => segments[0]?.values ?? []);
    for (const [place, step] of (mean.segments[0]?.steps ?? []).entries()) {
      lines.push([...values, step, counts[place] ?? 0, means?.[place] ?? NaN, lows?.[place] ?? NaN, highs?.[place] ?? NaN]);
    }
  }
  return lines.map((line) => line.map(cellOf).join(",") + "\n").join("");
}
