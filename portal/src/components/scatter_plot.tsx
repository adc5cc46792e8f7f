// Scatter plot of runs: a parameter against a metric. Each point names its run; the table of runs has the same values.
import type { Scatter } from "../compare/scatter.ts";
import type { Run } from "../compare/runs.ts";
import { counted } from "../format.ts";
import type { Look } from "../plot/colours.ts";
import { significant } from "../plot/curve.ts";
import { RunFigure } from "./run_figure.tsx";

interface Props {
  readonly parameter: string;
  readonly metric: string;
  readonly scatter: Scatter;
  readonly labels: ReadonlyMap<string, string>;
  readonly lookOf: (run: Run) => Look;
}

const [LEFT, RIGHT, TOP, BOTTOM] = [76, 24, 14, 46];
const RADIUS = 5;
/** Shapes instead of dashes, after the circle: square, triangle, diamond; about as large as the circle. */
const CORNERS = [[], [-4.5, -4.5, 4.5, -4.5, 4.5, 4.5, -4.5, 4.5], [0, -6.5, 6, 4.5, -6, 4.5], [0, -6.5, 6.5, 0, 0, 6.5, -6.5, 0]] as const;

export function ScatterPlot({ parameter, metric, scatter, labels, lookOf }: Props) {
  const title = `${metric} against ${parameter}`;
  const { points, xTicks, yTicks } = scatter;
  return (
    <RunFigure title={title} kind="scatter" description={`${title}: ${counted(points.length, "run")}, which the table lists`}>
      {(width, height) => {
        const xOf = (place: number) => LEFT + place * Math.max(1, width - LEFT - RIGHT);
        const yOf = (place: number) => height - BOTTOM - place * (height - TOP - BOTTOM);
        return (
          <>
            {xTicks.map(({ place, label }) => (
              <g key={place}>
                <line x1={xOf(place)} x2={xOf(place)} y1={TOP} y2={height - BOTTOM} />
                <text x={xOf(place)} y={height - BOTTOM + 16} text-anchor="middle">
                  {label}
                </text>
              </g>
            ))}
            {yTicks.map(({ place, label }) => (
              <g key={place}>
                <line x1={LEFT} x2={width - RIGHT} y1={yOf(place)} y2={yOf(place)} />
                <text x={LEFT - 8} y={yOf(place) + 4} text-anchor="end">
                  {label}
                </text>
              </g>
            ))}
            <text x={(LEFT + width - RIGHT) / 2} y={height - 8} text-anchor="middle">
              {parameter}
            </text>
            {points.map(({ run, x, y, value }) => (
              <Mark key={run.key} x={xOf(x)} y={yOf(y)} look={lookOf(run)} title={`${labels.get(run.key) ?? ""}: ${significant(value)}`} />
            ))}
          </>
        );
      }}
    </RunFigure>
  );
}

interface MarkProps {
  readonly x: number;
  readonly y: number;
  readonly look: Look;
  readonly title: string;
}

function Mark({ x, y, look, title }: MarkProps) {
  const corners = CORNERS[look.round] ?? [];
  const style = { fill: look.colour };
  const name = title && <title>{title}</title>;
  if (!corners.length) {
    return (
      <circle cx={x} cy={y} r={RADIUS} style={style}>
        {name}
      </circle>
    );
  }
  return (
    <polygon points={corners.map((by, at) => (at % 2 ? y : x) + by).join(" ")} style={style}>
      {name}
    </polygon>
  );
}

/** A point as the plot has it, for a legend or a table. */
export function PointSwatch(look: Look) {
  return (
    <svg class="point-swatch" aria-hidden="true" viewBox="-7 -7 14 14">
      <Mark x={0} y={0} look={look} title="" />
    </svg>
  );
}
