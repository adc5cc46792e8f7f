// A plot with its text: what it shows now, and all of it as a table for those who do not see it.
import { useEffect, useRef } from "preact/hooks";
import { exactTime } from "../format.ts";
import type { Chart, ChartColours, ChartData } from "../plot/chart.ts";
import { theme } from "../theme.ts";

export interface Line {
  readonly label: string;
  readonly values: readonly (number | null)[];
}

interface Props {
  readonly title: string;
  /** Times in milliseconds, or steps. */
  readonly x: readonly number[];
  readonly isTime: boolean;
  readonly lines: readonly Line[];
  readonly format: (value: number) => string;
  /** What there is of it; shown beside what is used. */
  readonly total?: string;
}

/** Rows of the table, spread evenly over all values. */
const MAX_ROWS = 30;

export function Plot({ title, x, isTime, lines, format, total }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<Chart | null>(null);
  const data: ChartData = [x, ...lines.map((line) => line.values)];
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    const box = host.current;
    if (!box) return;
    let isGone = false;
    void import("../plot/chart.ts").then(({ drawChart }) => {
      if (isGone) return;
      chart.current = drawChart(box, latest.current, { isTime, format, colours: coloursOf(box, lines.length) });
    });
    return () => {
      isGone = true;
      chart.current?.destroy();
      chart.current = null;
    };
  }, [theme.value, lines.length, isTime]);
  useEffect(() => chart.current?.update(latest.current), [x.length, x[x.length - 1]]);

  return (
    <figure class="card padded plot">
      <figcaption>
        <strong>{title}</strong>
        <span class="quiet">{summaryOf(lines, format, total)}</span>
      </figcaption>
      {lines.length > 1 && (
        <ul class="plot-legend">
          {lines.map((line, number) => (
            <li key={line.label}>
              <span class={`swatch plot-line-${number}`} aria-hidden="true" />
              {line.label}
            </li>
          ))}
        </ul>
      )}
      <div class="plot-area" ref={host} role="img" aria-label={`${title}: ${summaryOf(lines, format, total)}`} />
      <details>
        <summary>{title} as a table</summary>
        <Values title={title} x={x} isTime={isTime} lines={lines} format={format} />
      </details>
    </figure>
  );
}

function Values({ title, x, isTime, lines, format }: Omit<Props, "total">) {
  const step = Math.max(1, Math.ceil(x.length / MAX_ROWS));
  const rows = x.map((_, at) => at).filter((at) => (x.length - 1 - at) % step === 0);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`Values of ${title}`}>
      <table>
        <thead>
          <tr>
            <th>{isTime ? "Time" : "Step"}</th>
            {lines.map((line) => (
              <th key={line.label}>{line.label}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((at) => (
            <tr key={x[at]}>
              <td>{isTime ? exactTime(x[at] ?? null) : x[at]}</td>
              {lines.map((line) => (
                <td key={line.label}>{shown(line.values[at], format)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function summaryOf(lines: readonly Line[], format: (value: number) => string, total?: string): string {
  return lines
    .map(({ label, values }) => {
      const known = values.filter((value): value is number => value !== null);
      const last = known[known.length - 1];
      if (last === undefined) return "not measured";
      const highest = known.reduce((one, other) => Math.max(one, other));
      const name = lines.length > 1 ? `${label} ` : "";
      return `${name}${format(last)}${total ? ` of ${total}` : ""}, at most ${format(highest)}`;
    })
    .join("; ");
}

function shown(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "–" : format(value);
}

/** Colours of the theme as the browser computes them: a canvas knows no variables. */
function coloursOf(box: HTMLElement, lines: number): ChartColours {
  const { color, borderTopColor } = getComputedStyle(box);
  const probe = document.createElement("span");
  box.append(probe);
  const found = Array.from({ length: lines }, (_, number) => {
    probe.className = `plot-line-${number}`;
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return { text: color, grid: borderTopColor, lines: found };
}
