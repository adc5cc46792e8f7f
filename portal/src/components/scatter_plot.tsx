// Scatter plot of runs: a parameter against a metric. Each point names its run; the table of runs has the same values.
import type { Scatter } from "../compare/scatter.ts";
import type { Run } from "../compare/runs.ts";
import { counted } from "../format.ts";
import { significant } from "../plot/curve.ts";
import { RunFigure } from "./run_figure.tsx";

interface Props {
  readonly parameter: string;
  readonly metric: string;
  readonly scatter: Scatter;
  readonly labels: ReadonlyMap<string, string>;
  readonly colourOf: (run: Run) => string;
}

const [LEFT, RIGHT, TOP, BOTTOM] = [76, 24, 14, 46];
const RADIUS = 5;

export function ScatterPlot({ parameter, metric, scatter, labels, colourOf }: Props) {
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
              <circle key={run.key} cx={xOf(x)} cy={yOf(y)} r={RADIUS} style={{ fill: colourOf(run) }}>
                <title>{`${labels.get(run.key) ?? ""}: ${significant(value)}`}</title>
              </circle>
            ))}
          </>
        );
      }}
    </RunFigure>
  );
}
