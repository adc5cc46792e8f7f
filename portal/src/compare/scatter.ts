// A metric of runs against a parameter: places of points between 0 and 1, and labels of both axes.
import { plain } from "./run_table.ts";
import type { Run } from "./runs.ts";
import { spanScale, valueScale, type Tick } from "./scales.ts";

export interface ScatterPoint {
  readonly run: Run;
  readonly x: number;
  readonly y: number;
  readonly value: number;
}

export interface Scatter {
  readonly points: readonly ScatterPoint[];
  readonly xTicks: readonly Tick[];
  readonly yTicks: readonly Tick[];
  /** Runs without a value of the parameter, or without one of the metric that the axis has. */
  readonly leftOut: number;
}

export function scatterOf(runs: readonly Run[], parameter: string, metric: string, isLogY: boolean): Scatter {
  const known = runs.flatMap((run) => {
    const value = run.metrics.get(metric)?.last ?? NaN;
    const x = plain(run.parameters.get(parameter));
    return x === null || x === "" || !Number.isFinite(value) || (isLogY && value <= 0) ? [] : [{ run, x, value }];
  });
  const xScale = valueScale(known.map(({ x }) => x));
  const yScale = spanScale(
    known.map(({ value }) => value),
    isLogY,
  );
  return {
    points: known.map(({ run, x, value }) => ({ run, value, x: xScale.placeOf(x), y: yScale.placeOf(value) })),
    xTicks: xScale.ticks,
    yTicks: yScale.ticks,
    leftOut: runs.length - known.length,
  };
}
