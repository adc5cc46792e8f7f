// Parallel coordinates of runs: parameters and a metric. The run at the pointer, or chosen with the arrow keys, is named; the
// table of runs has the same values.
import { useSignal } from "@preact/signals";
import { nearestLine, type Parallel, type ParallelLine } from "../compare/parallel.ts";
import type { Run } from "../compare/runs.ts";
import { counted, shortName } from "../format.ts";
import { significant } from "../plot/curve.ts";
import { dashOf, type Look } from "../plot/colours.ts";
import { Swatch } from "./metric_plot.tsx";
import { RunFigure, type Pointer } from "./run_figure.tsx";

interface Props {
  readonly metric: string;
  readonly parallel: Parallel;
  readonly labels: ReadonlyMap<string, string>;
  /** Colours by a parameter; without it they show the metric. */
  readonly lookOf: ((run: Run) => Look) | undefined;
}

const [LEFT, RIGHT, TOP, BOTTOM] = [70, 50, 34, 18];
const MIN_AXIS_PX = 90;
/** How far from a line the pointer may be. */
const REACH_PX = 24;
const NAME_CHARACTERS = 18;
/** Of the names' font, about; two names never meet. */
const CHARACTER_PX = 8;

export function ParallelPlot({ metric, parallel, labels, lookOf }: Props) {
  const marked = useSignal<string | null>(null);
  const { axes, lines } = parallel;
  const at = lines.findIndex(({ run }) => run.key === marked.value);
  const current = lines[at];
  const title = `${metric} and parameters`;
  const [lowest, highest] = [lines[0], lines[lines.length - 1]];
  const textOf = ({ run, value }: ParallelLine) => `${labels.get(run.key) ?? ""}: ${metric} ${significant(value)}`;
  const look = (line: ParallelLine): Look =>
    lookOf?.(line.run) ?? { colour: scaleColour(line.places[line.places.length - 1] ?? 0), round: 0 };
  const onKeyDown = (event: KeyboardEvent) => {
    const last = lines.length - 1;
    const places: Readonly<Record<string, number>> = {
      ArrowUp: at < 0 ? 0 : Math.min(last, at + 1),
      ArrowRight: at < 0 ? 0 : Math.min(last, at + 1),
      ArrowDown: at < 0 ? last : Math.max(0, at - 1),
      ArrowLeft: at < 0 ? last : Math.max(0, at - 1),
      Home: 0,
      End: last,
      Escape: -1,
    };
    const next = places[event.key];
    if (next === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    marked.value = lines[next]?.run.key ?? null;
  };
  const onPointer = (pointer: Pointer | null) => {
    if (!pointer) {
      marked.value = null;
      return;
    }
    const { x, y, width, height } = pointer;
    const tall = Math.max(1, height - TOP - BOTTOM);
    const axis = ((x - LEFT) / Math.max(1, width - LEFT - RIGHT)) * (axes.length - 1);
    marked.value = nearestLine(lines, axis, (height - BOTTOM - y) / tall, REACH_PX / tall)?.run.key ?? null;
  };
  return (
    <RunFigure
      title={title}
      kind="parallel"
      minWidth={LEFT + RIGHT + (axes.length - 1) * MIN_AXIS_PX}
      onKeyDown={onKeyDown}
      onPointer={onPointer}
      description={`${title}: ${counted(lines.length, "run")}, which the table lists. Arrow keys go from run to run, from the lowest ${metric} to the highest.`}
      above={
        <div class="readout" role="status">
          {current && (
            <span>
              <Swatch {...look(current)} />
              <b>{textOf(current)}</b>
            </span>
          )}
          {!current && lowest && highest && (
            <span class="quiet">
              {counted(lines.length, "run")}, {metric} from {significant(lowest.value)} {!lookOf && <Swatch colour={scaleColour(0)} />} to{" "}
              {significant(highest.value)} {!lookOf && <Swatch colour={scaleColour(1)} />}
            </span>
          )}
        </div>
      }
    >
      {(width, height) => {
        const part = (width - LEFT - RIGHT) / Math.max(1, axes.length - 1);
        const xOf = (axis: number) => LEFT + axis * part;
        const yOf = (place: number) => height - BOTTOM - place * (height - TOP - BOTTOM);
        const most = Math.min(NAME_CHARACTERS, Math.floor(part / CHARACTER_PX));
        const nameAt = (name: string, axis: number) =>
          axis === axes.length - 1 && name.length * CHARACTER_PX > 2 * RIGHT
            ? { x: width - 2, "text-anchor": "end" as const }
            : { x: xOf(axis), "text-anchor": "middle" as const };
        return (
          <>
            {lines.map((line) => (
              <polyline
                key={line.run.key}
                class={current ? (line === current ? "marked" : "pale") : ""}
                points={line.places.map((place, axis) => `${xOf(axis)},${yOf(place)}`).join(" ")}
                style={{ stroke: look(line).colour }}
                stroke-dasharray={dashOf(look(line)).join(" ")}
              />
            ))}
            {current && (
              <polyline
                class="marked"
                points={current.places.map((place, axis) => `${xOf(axis)},${yOf(place)}`).join(" ")}
                style={{ stroke: look(current).colour }}
              />
            )}
            {axes.map(({ name, ticks }, axis) => (
              <g key={axis}>
                <line x1={xOf(axis)} x2={xOf(axis)} y1={TOP} y2={height - BOTTOM} />
                <text class="name" y={TOP - 14} {...nameAt(shortName(name, most), axis)}>
                  {shortName(name, most)}
                  <title>{name}</title>
                </text>
                {ticks.map(({ place, label }) => (
                  <text key={place} x={xOf(axis) - 6} y={yOf(place) + 4} text-anchor="end">
                    {label}
                  </text>
                ))}
              </g>
            ))}
          </>
        );
      }}
    </RunFigure>
  );
}

/** From the lowest value to the highest. */
function scaleColour(place: number): string {
  return `color-mix(in oklab, var(--series-2) ${Math.round(100 * place)}%, var(--series-1))`;
}
