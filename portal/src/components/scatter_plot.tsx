// Scatter plot of runs: a parameter against a metric. Each point names its run; the table of runs has the same values.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Scatter } from "../compare/scatter.ts";
import type { Run } from "../compare/runs.ts";
import { saveFile } from "../files/save_file.ts";
import { counted } from "../format.ts";
import { significant } from "../plot/curve.ts";

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
  const host = useRef<HTMLDivElement>(null);
  const size = useSignal({ width: 0, height: 0 });
  useEffect(() => {
    const box = host.current;
    if (!box) return;
    const observer = new ResizeObserver(() => (size.value = { width: box.clientWidth, height: box.clientHeight }));
    observer.observe(box);
    return () => observer.disconnect();
  }, []);
  const { width, height } = size.value;
  const title = `${metric} against ${parameter}`;
  const { points, xTicks, yTicks } = scatter;
  const xOf = (place: number) => LEFT + place * Math.max(1, width - LEFT - RIGHT);
  const yOf = (place: number) => height - BOTTOM - place * (height - TOP - BOTTOM);
  const save = () => {
    const drawing = host.current?.querySelector("svg");
    if (drawing) saveFile(standalone(drawing), `${title.replace(/[^\w.-]+/g, "-")}.svg`, "image/svg+xml");
  };
  return (
    <figure class="card padded plot metric" aria-label={title}>
      <figcaption>
        <strong>{title}</strong>
        <span class="actions">
          <button class="link" type="button" onClick={save}>
            Download SVG
          </button>
        </span>
      </figcaption>
      <div class="plot-area tall scatter" ref={host}>
        {width > 0 && (
          <svg
            width={width}
            height={height}
            viewBox={`0 0 ${width} ${height}`}
            role="img"
            aria-label={`${title}: ${counted(points.length, "run")}, which the table lists`}
          >
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
          </svg>
        )}
      </div>
    </figure>
  );
}

/** An SVG file: with the colours that the theme has now, on its background. */
function standalone(drawing: SVGSVGElement): string {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const [shown, copied] = [drawing, copy].map((one) => [...one.querySelectorAll("line, text, circle")]);
  for (const [at, element] of (copied ?? []).entries()) {
    const original = shown?.[at];
    if (!original) continue;
    const { fill, stroke } = getComputedStyle(original);
    element.removeAttribute("style");
    element.removeAttribute("class");
    element.setAttribute("fill", fill);
    element.setAttribute("stroke", stroke);
    if (element instanceof SVGTextElement) element.setAttribute("font-family", "system-ui, sans-serif");
    if (element instanceof SVGTextElement) element.setAttribute("font-size", "12");
  }
  const { backgroundColor } = getComputedStyle(drawing.closest("figure") ?? drawing);
  const background = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of [["width", "100%"], ["height", "100%"], ["fill", backgroundColor]] as const) background.setAttribute(name, value);
  copy.prepend(background);
  return new XMLSerializer().serializeToString(copy);
}
