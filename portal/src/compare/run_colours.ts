// Colours of runs: one each, or by the values of a parameter.
import { COLOURS, seriesColour } from "../plot/colours.ts";
import { plain, type Value } from "./run_table.ts";
import type { Run } from "./runs.ts";

export interface RunColours {
  readonly of: (run: Run) => string;
  /** The values of the parameter with their colours; none without a parameter. */
  readonly legend: readonly { readonly text: string; readonly colour: string }[];
}

/** Colours as CSS. Many numbers are a scale from the first colour to the second. */
export function runColours(runs: readonly Run[], parameter: string): RunColours {
  if (!parameter) {
    // By the place among all runs, so that an order or a filter of the rows changes no colour.
    const order = [...runs].sort((one, other) => one.number - other.number);
    const byKey = new Map(order.map(({ key }, at) => [key, seriesColour(at)]));
    return { of: ({ key }) => byKey.get(key) ?? seriesColour(0), legend: [] };
  }
  const texts = [...new Set(runs.map(({ parameters }) => parameters.get(parameter) ?? ""))].sort(byValue);
  const isScale = texts.length > COLOURS && texts.every((text) => !text || typeof plain(text) === "number");
  const colourOf = (at: number) => {
    if (!isScale) return seriesColour(at);
    const percent = Math.round((100 * at) / (texts.length - 1));
    return `color-mix(in oklab, var(--series-2) ${percent}%, var(--series-1))`;
  };
  const byText = new Map(texts.map((text, at) => [text, colourOf(at)]));
  return {
    of: ({ parameters }) => byText.get(parameters.get(parameter) ?? "") ?? seriesColour(0),
    legend: [...byText].map(([text, colour]) => ({ text: text || "none", colour })),
  };
}

function byValue(one: string, other: string): number {
  const [first, second]: [Value, Value] = [plain(one), plain(other)];
  if (typeof first === "number" && typeof second === "number") return first - second;
  if (typeof first !== typeof second) return typeof first === "number" ? -1 : 1;
  return one < other ? -1 : Number(one > other);
}
