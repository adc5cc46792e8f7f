// Axes of plots of runs: places of values between 0 and 1, and labels. Numbers are to scale, texts are categories.
import { tickLabels } from "../plot/curve.ts";
import type { Value } from "./run_table.ts";

export interface Tick {
  readonly place: number;
  readonly label: string;
}

export interface Scale<V> {
  readonly placeOf: (value: V) => number;
  readonly ticks: readonly Tick[];
}

const MAX_VALUE_TICKS = 6;
const MAX_TICKS = 6;
/** Positive values whose largest is so many times the smallest are on a logarithmic axis. */
const LOG_RATIO = 50;
const LABEL_CHARACTERS = 14;

/** Of values of a parameter, none of which is missing. */
export function valueScale(values: readonly Value[]): Scale<Value> {
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length === values.length) {
    const scale = numberScale(numbers);
    return { ...scale, placeOf: (value) => scale.placeOf(Number(value)) };
  }
  const texts = [...new Set(values.map(String))].sort();
  const scale = textScale(texts);
  return { ...scale, placeOf: (value) => scale.placeOf(texts.indexOf(String(value))) };
}

function numberScale(values: readonly number[]): Scale<number> {
  const distinct = [...new Set(values)].sort((one, other) => one - other);
  const [low = 0] = distinct;
  const high = distinct[distinct.length - 1] ?? 0;
  // The values of a grid are the labels.
  return spanScale(distinct, low > 0 && high / low >= LOG_RATIO, distinct.length <= MAX_VALUE_TICKS ? distinct : undefined);
}

function textScale(texts: readonly string[]): Scale<number> {
  const placeOf = (at: number) => (at + 0.5) / Math.max(1, texts.length);
  const step = Math.ceil(texts.length / MAX_VALUE_TICKS);
  const ticks = texts.flatMap((text, at) => {
    const label = text.length > LABEL_CHARACTERS ? `${text.slice(0, LABEL_CHARACTERS)}…` : text;
    return at % step ? [] : [{ place: placeOf(at), label }];
  });
  return { placeOf, ticks };
}

/** From the lowest to the highest value, with a margin. */
export function spanScale(values: readonly number[], isLog: boolean, ticks?: readonly number[]): Scale<number> {
  const position = isLog ? Math.log10 : (value: number) => value;
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    low = Math.min(low, position(value));
    high = Math.max(high, position(value));
  }
  if (low > high) return { placeOf: () => 0.5, ticks: [] };
  const margin = (high - low) * 0.06 || (isLog ? 0.5 : Math.abs(high) * 0.1) || 1;
  [low, high] = [low - margin, high + margin];
  const placeOf = (value: number) => (position(value) - low) / (high - low);
  const marks = ticks ?? (isLog && high - low >= 2 ? powers(low, high) : steps(isLog ? 10 ** low : low, isLog ? 10 ** high : high));
  const labels = ticks || isLog ? marks.map(shortNumber) : tickLabels(marks);
  return { placeOf, ticks: marks.map((mark, at) => ({ place: placeOf(mark), label: labels[at] ?? "" })) };
}

function shortNumber(value: number): string {
  return tickLabels([Number(value.toPrecision(6))])[0] ?? "";
}

function powers(low: number, high: number): number[] {
  const [first, last] = [Math.ceil(low), Math.floor(high)];
  const step = Math.max(1, Math.ceil((last - first + 1) / MAX_TICKS));
  return range(first, last, step).map((power) => 10 ** power);
}

/** Round numbers between two. */
function steps(low: number, high: number): number[] {
  const raw = (high - low) / (MAX_TICKS - 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10) * power;
  return range(Math.ceil(low / step), Math.floor(high / step), 1).map((at) => at * step);
}

function range(first: number, last: number, step: number): number[] {
  const count = Math.max(0, Math.floor((last - first) / step) + 1);
  return Array.from({ length: Math.min(count, 2 * MAX_TICKS) }, (_, at) => first + at * step);
}
