// Parallel coordinates of runs: an axis for each parameter and one for the metric, and a line for each run.
import { plain } from "./run_table.ts";
import type { Run } from "./runs.ts";
import { spanScale, valueScale, type Tick } from "./scales.ts";

/** Axes of parameters; of more, the first ones are drawn. */
export const MAX_AXES = 8;
/** Part of an axis below its scale: for runs without the parameter. */
const NONE_PART = 0.12;

export interface ParallelAxis {
  readonly name: string;
  readonly ticks: readonly Tick[];
}

export interface ParallelLine {
  readonly run: Run;
  /** On each axis. */
  readonly places: readonly number[];
  readonly value: number;
}

export interface Parallel {
  readonly axes: readonly ParallelAxis[];
  /** The lowest value of the metric first. */
  readonly lines: readonly ParallelLine[];
  /** Runs without a value of the metric that its axis has. */
  readonly leftOut: number;
}

export function parallelOf(runs: readonly Run[], parameters: readonly string[], metric: string, isLog: boolean): Parallel {
  const known = runs.flatMap((run) => {
    const value = run.metrics.get(metric)?.last ?? NaN;
    return !Number.isFinite(value) || (isLog && value <= 0) ? [] : [{ run, value }];
  });
  known.sort((one, other) => one.value - other.value);
  const columns = parameters.slice(0, MAX_AXES).map((name) =>
    axisOf(
      name,
      known.map(({ run }) => run),
    ),
  );
  const last = spanScale(
    known.map(({ value }) => value),
    isLog,
  );
  return {
    axes: [...columns.map(({ name, ticks }) => ({ name, ticks })), { name: metric, ticks: last.ticks }],
    lines: known.map(({ run, value }, at) => ({
      run,
      value,
      places: [...columns.map(({ places }) => places[at] ?? 0), last.placeOf(value)],
    })),
    leftOut: runs.length - known.length,
  };
}

function axisOf(name: string, runs: readonly Run[]): ParallelAxis & { readonly places: readonly number[] } {
  const values = runs.map(({ parameters }) => plain(parameters.get(name)));
  const present = values.filter((value) => value !== null && value !== "");
  const scale = valueScale(present);
  const isAll = present.length === values.length;
  const shifted = (place: number) => (isAll ? place : NONE_PART + (1 - NONE_PART) * place);
  const ticks = scale.ticks.map(({ place, label }) => ({ place: shifted(place), label }));
  return {
    name,
    ticks: isAll ? ticks : [{ place: NONE_PART / 3, label: "none" }, ...ticks],
    places: values.map((value) => (value === null || value === "" ? NONE_PART / 3 : shifted(scale.placeOf(value)))),
  };
}

/** The line that is nearest to a point: `x` in axes, `y` as a place; undefined if none is within `reach`. */
export function nearestLine(lines: readonly ParallelLine[], x: number, y: number, reach: number): ParallelLine | undefined {
  let [found, distance]: [ParallelLine | undefined, number] = [undefined, reach];
  for (const line of lines) {
    const axis = Math.max(0, Math.min(line.places.length - 2, Math.floor(x)));
    const [from = 0, to = from] = line.places.slice(axis, axis + 2);
    const away = Math.abs(from + (to - from) * Math.max(0, Math.min(1, x - axis)) - y);
    if (away < distance) [found, distance] = [line, away];
  }
  return found;
}
