// Looks of runs in plots: one each, or by the values of a parameter.
import { COLOURS, seriesLook, type Look } from "../plot/colours.ts";
import { plain, type Value } from "./run_table.ts";
import type { Run } from "./runs.ts";

export interface RunLooks {
  readonly of: (run: Run) => Look;
  /** The values of the parameter with their looks; none without a parameter. */
  readonly legend: readonly { readonly text: string; readonly look: Look }[];
}

/** Many numbers are a scale from the first colour to the second. */
export function runLooks(runs: readonly Run[], parameter: string): RunLooks {
  if (!parameter) {
    // By the place among all runs, so that an order or a filter of the rows changes no colour.
    const order = [...runs].sort((one, other) => one.number - other.number);
    const byKey = new Map(order.map(({ key }, at) => [key, seriesLook(at)]));
    return { of: ({ key }) => byKey.get(key) ?? seriesLook(0), legend: [] };
  }
  const texts = [...new Set(runs.map(({ parameters }) => parameters.get(parameter) ?? ""))].sort(byValue);
  const isScale = texts.length > COLOURS && texts.every((text) => !text || typeof plain(text) === "number");
  const lookOf = (at: number): Look => {
    if (!isScale) return seriesLook(at);
    const percent = Math.round((100 * at) / (texts.length - 1));
    return { colour: `color-mix(in oklab, var(--series-2) ${percent}%, var(--series-1))`, round: 0 };
  };
  const byText = new Map(texts.map((text, at) => [text, lookOf(at)]));
  return {
    of: ({ parameters }) => byText.get(parameters.get(parameter) ?? "") ?? seriesLook(0),
    legend: [...byText].map(([text, look]) => ({ text: text || "none", look })),
  };
}

function byValue(one: string, other: string): number {
  const [first, second]: [Value, Value] = [plain(one), plain(other)];
  if (typeof first === "number" && typeof second === "number") return first - second;
  if (typeof first !== typeof second) return typeof first === "number" ? -1 : 1;
  return one < other ? -1 : Number(one > other);
}
