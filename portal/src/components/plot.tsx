// A plot with its text: what it shows now, and all of it as a table for those who do not see it.
import { useEffect, useRef } from "preact/hooks";
import { exactTime } from "../format.ts";
import type { Chart, ChartColours, ChartData } from "../plot/chart.ts";
import { theme } from "../theme.ts";

interface Props {
  readonly title: string;
  /** Times in milliseconds, or steps. */
  readonly x: readonly number[];
  readonly values: readonly (number | null)[];
  readonly format: (value: number) => string;
  readonly isTime?: boolean;
  readonly isBytes?: boolean;
  /** What there is of it; shown beside what is used. */
  readonly total?: string;
}

/** Rows of the table, spread evenly over all values. */
const MAX_ROWS = 30;

export function Plot({ title, x, values, format, isTime = false, isBytes = false, total = "" }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<Chart | null>(null);
  const latest = useRef<ChartData>([x, values]);
  latest.current = [x, values];
  useEffect(() => {
    const box = host.current;
    if (!box) return;
    let isGone = false;
    void import("../plot/chart.ts").then(({ drawChart }) => {
      if (isGone) return;
      chart.current = drawChart(box, latest.current, { isTime, isBytes, format, colours: coloursOf(box) });
    });
    return () => {
      isGone = true;
      chart.current?.destroy();
      chart.current = null;
    };
    // oxlint-disable-next-line react/exhaustive-deps -- the theme is a signal of its module; `format` is a new function in each render
  }, [theme.value, isTime, isBytes]);
  const [first, last] = [x[0], x[x.length - 1]];
  useEffect(() => chart.current?.update(latest.current), [first, x.length, last]);

  const summary = summaryOf(values, format, total);
  return (
    <figure class="card padded plot">
      <figcaption>
        <strong>{title}</strong>
        <span class="quiet">{summary}</span>
      </figcaption>
      <div class="plot-area" ref={host} role="img" aria-label={`${title}: ${summary}`} />
      <details>
        <summary>{title} as a table</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label={`Values of ${title}`}>
          <table>
            <thead>
              <tr>
                <th>{isTime ? "Time" : "Step"}</th>
                <th>{title}</th>
              </tr>
            </thead>
            <tbody>
              {rowsOf(x).map((at) => (
                <tr key={x[at]}>
                  <td>{isTime ? exactTime(x[at] ?? null) : x[at]}</td>
                  <td>{shown(values[at], format)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

/** Indexes of the rows of the table; the last value is one of them. */
function rowsOf(x: readonly number[]): number[] {
  const step = Math.max(1, Math.ceil(x.length / MAX_ROWS));
  return x.map((_, at) => at).filter((at) => (x.length - 1 - at) % step === 0);
}

function summaryOf(values: readonly (number | null)[], format: (value: number) => string, total: string): string {
  const known = values.filter((value): value is number => value !== null);
  const last = known[known.length - 1];
  if (last === undefined) return "not measured";
  const highest = known.reduce((one, other) => Math.max(one, other));
  return `${format(last)}${total ? ` of ${total}` : ""}, at most ${format(highest)}`;
}

function shown(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "–" : format(value);
}

/** Colours of the theme as the browser computes them: a canvas knows no variables. */
function coloursOf(box: HTMLElement): ChartColours {
  const { color, borderTopColor, caretColor } = getComputedStyle(box);
  return { text: color, grid: borderTopColor, line: caretColor };
}
