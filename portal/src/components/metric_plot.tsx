// Plot of a metric, or of a group of them: values at the cursor, zoom, axes, smoothing, and the same as a table.
import { signal, useSignal } from "@preact/signals";
import { useEffect, useId, useMemo, useRef } from "preact/hooks";
import { saveFile } from "../files/save_file.ts";
import { exactTime, grouped } from "../format.ts";
import {
  curveOf,
  MAX_COLUMNS,
  MAX_SEGMENTS,
  shownSpan,
  significant,
  spanOf,
  splitAt,
  type Curve,
  type MetricCurve,
  type Point,
} from "../plot/curve.ts";
import { dashOf, seriesLook, type Look } from "../plot/colours.ts";
import type { Metric } from "../plot/logged_metrics.ts";
import type { ChartLine, Hovered, MetricChart, MetricView } from "../plot/metric_chart.ts";
import { savePicture } from "../plot/picture.ts";
import type { Best, PlotSettings, SomeSettings } from "../plot/plot_settings.ts";
import { fileName } from "../plot/svg_picture.ts";
import { theme } from "../theme.ts";
import { PlotFields } from "./plot_fields.tsx";

interface Props {
  readonly title: string;
  readonly metrics: readonly Metric[];
  readonly settings: PlotSettings;
  /** Which value of each metric is marked. */
  readonly bests: readonly Best[];
  /** Whether the plot has settings of its own. */
  readonly isOwn?: boolean;
  readonly onChange: (changes: SomeSettings) => void;
  /** Take the settings of all plots again. */
  readonly onReset?: () => void;
  /** Of runs that are compared: the look of each. `metrics` is then one metric, named by its run. */
  readonly looks?: readonly Look[];
  /** Of groups of runs: what is around each of `metrics`, at the same steps. */
  readonly bands?: readonly MetricBand[];
  /** The values as a file, if it can be saved. */
  readonly csvOf?: () => string;
}

export interface MetricBand {
  readonly low: Metric;
  readonly high: Metric;
}

/** Plots are drawn when they are this near to the window. */
const NEAR = "400px";
/** Rows of the table for a metric, spread evenly over its values. */
const MAX_ROWS = 30;
const PAGE_OF_POINTS = 20;
/** Lines that are named before the text for them is a scrolled list, or is cut. */
const MAX_NAMED = 8;

/** Which line of a chart is what. */
interface LinePart {
  readonly metric: number;
  readonly attempt: number;
  readonly isRaw: boolean;
  /** Of a band, which has no value of its own. */
  readonly edge?: "low" | "high";
  readonly low: number;
  readonly high: number;
}

export function MetricPlot({ title, metrics, settings, bests, isOwn = false, onChange, onReset, looks, bands, csvOf }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const figure = useRef<HTMLElement>(null);
  const chart = useRef<MetricChart | null>(null);
  const isNear = useSignal(false);
  const isSetting = useSignal(false);
  const hovered = useMemo(() => signal<Hovered | null>(null), []);
  const fieldsId = useId();
  const isComparison = looks !== undefined;
  const lookOf = (at: number) => looks?.[at] ?? seriesLook(at);
  const count = metrics.reduce((sum, metric) => sum + metric.count, 0);
  const names = metrics.map(({ name }) => name).join("\n");
  const look = JSON.stringify([settings, bests, looks]);
  const [firstMetric, firstBand] = [metrics[0], bands?.[0]];
  const { curves, parts, lines, shown } = useMemo(
    () => drawingOf(isNear.value ? metrics : [], settings, bests, lookOf, bands),
    // oxlint-disable-next-line react/exhaustive-deps -- lists and settings are new objects in each render: what they contain says when they change
    [isNear.value, count, firstMetric, names, look, firstBand],
  );
  const onZoom = useRef<(part: { low: number; high: number } | undefined) => void>(() => undefined);
  onZoom.current = (part) => onChange(part ? zoomTo(part, settings) : { from: NaN, to: NaN });

  useEffect(() => {
    if (!figure.current) return;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) isNear.value = true;
      },
      { rootMargin: NEAR },
    );
    observer.observe(figure.current);
    return () => observer.disconnect();
  }, [isNear]);

  const view = useRef<Omit<MetricView, "colours"> | null>(null);
  view.current =
    shown === undefined
      ? null
      : { ...settings, isLogX: settings.isLogX && !settings.isTime, lines, shown, ...marksOf(curves, lookOf, !isComparison) };
  const withColours = (box: HTMLElement): MetricView | null => {
    if (!view.current) return null;
    const { lines: named, best } = view.current;
    const inTheme = (colour: string) => computed(box, colour);
    return {
      ...view.current,
      lines: named.map((line) => ({ ...line, colour: inTheme(line.colour) })),
      best: best.map((point) => ({ ...point, colour: inTheme(point.colour) })),
      colours: {
        text: inTheme("var(--quiet)"),
        grid: inTheme("var(--line)"),
        surface: inTheme("var(--surface)"),
        bad: inTheme("var(--bad)"),
      },
    };
  };
  const isDrawn = isNear.value && shown !== undefined;
  useEffect(() => {
    const box = host.current;
    if (!box || !isDrawn) return;
    let isGone = false;
    void import("../plot/metric_chart.ts").then(({ drawMetrics }) => {
      const first = withColours(box);
      if (isGone || !first) return;
      chart.current = drawMetrics(box, first, {
        onZoom: (part) => onZoom.current(part),
        onHover: (at) => (hovered.value = at),
      });
    });
    return () => {
      isGone = true;
      chart.current?.destroy();
      chart.current = null;
    };
    // oxlint-disable-next-line react/exhaustive-deps -- the theme is a signal of its module
  }, [isDrawn, hovered, theme.value]);
  useEffect(() => {
    const changed = host.current && withColours(host.current);
    if (changed) chart.current?.update(changed);
  }, [curves]);

  const save = () => {
    const box = host.current;
    if (!box) return;
    const named = metrics.map(({ name }, at) => ({ ...lookOf(at), name, colour: computed(box, lookOf(at).colour) }));
    savePicture(box, title, named, { text: computed(box, "var(--text)"), surface: computed(box, "var(--surface)") });
  };
  const isZoomed = !Number.isNaN(settings.from) || !Number.isNaN(settings.to);
  const onKeyDown = (event: KeyboardEvent) => {
    const by = event.shiftKey ? PAGE_OF_POINTS : 1;
    const steps: Readonly<Record<string, number>> = {
      ArrowLeft: -by,
      ArrowRight: by,
      Home: -Infinity,
      End: Infinity,
      Escape: 0,
    };
    const step = steps[event.key];
    if (step === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    chart.current?.moveCursor(step);
  };
  return (
    <figure class="card padded plot metric" ref={figure} aria-label={title}>
      <figcaption>
        <strong>{title}</strong>
        <span class="actions">
          {isZoomed && (
            <button class="link" type="button" onClick={() => onChange({ from: NaN, to: NaN })}>
              Show all of it
            </button>
          )}
          {isOwn && (
            <button class="link" type="button" onClick={onReset}>
              As all plots
            </button>
          )}
          {csvOf && (
            <button class="link" type="button" onClick={() => saveFile(csvOf(), `${fileName(title)}.csv`, "text/csv")}>
              Download CSV
            </button>
          )}
          {isComparison && (
            <button class="link" type="button" onClick={save}>
              Download PNG
            </button>
          )}
          <button
            class="link"
            type="button"
            aria-expanded={isSetting.value}
            aria-controls={fieldsId}
            aria-label={`Settings of ${title}`}
            onClick={() => (isSetting.value = !isSetting.value)}
          >
            Settings
          </button>
        </span>
      </figcaption>
      <div id={fieldsId} hidden={!isSetting.value}>
        {isSetting.value && <PlotFields settings={settings} onChange={onChange} hasRange hasBest={metrics.length === 1 && !isComparison} />}
      </div>
      <Readout
        title={title}
        curves={curves}
        parts={parts}
        settings={settings}
        hovered={hovered}
        hasNames={metrics.length > 1 || isComparison}
        lookOf={lookOf}
      />
      <div
        class="plot-area tall"
        ref={host}
        role="img"
        tabIndex={0}
        aria-label={`${title}: ${summariesOf(curves, settings)}`}
        onKeyDown={onKeyDown}
      />
      {notesOf(curves, metrics, settings).map((note) => (
        <p class="quiet" key={note}>
          {note}
        </p>
      ))}
      <ValueTable title={title} metrics={metrics} nameOf={bands ? "Group" : isComparison ? "Run" : "Metric"} bands={bands} />
    </figure>
  );
}

// -- what is drawn ---------------------------------------------------------------------------------

type LookOf = (metric: number) => Look;

function drawingOf(
  metrics: readonly Metric[],
  settings: PlotSettings,
  bests: readonly Best[],
  lookOf: LookOf,
  bands: readonly MetricBand[] = [],
) {
  const whole = spanOf(metrics, settings);
  const shown = whole && shownSpan(whole, settings);
  const columns = Math.ceil(MAX_COLUMNS / Math.max(1, metrics.length / MAX_NAMED));
  const curves = shown ? metrics.map((metric, at) => curveOf(metric, { ...settings, best: bests[at] ?? "none" }, shown, columns)) : [];
  const drawn: { line: ChartLine; part: LinePart }[] = [];
  for (const [metric, { segments }] of curves.entries()) {
    const look = lookOf(metric);
    for (const [at, { attempt, raw, line }] of segments.entries()) {
      const add = (curve: Curve, isRaw: boolean, isPale: boolean) => {
        if (!curve.x.length) return;
        const [low = 0, high = low] = [curve.x[0], curve.x[curve.x.length - 1]];
        drawn.push({ line: { ...curve, ...look, isPale }, part: { metric, attempt, isRaw, low, high } });
      };
      if (raw !== line) add(raw, true, true);
      // What a later attempt did again is behind it.
      const again = Math.min(...segments.slice(at + 1).map(({ start }) => start));
      const [own, repeated] = splitAt(line, again);
      add(own, false, false);
      if (own.x.length < line.x.length) add(repeated, false, true);
    }
  }
  for (const [metric, band] of bands.entries()) {
    if (!shown) break;
    for (const edge of ["low", "high"] as const) {
      for (const { attempt, line } of curveOf(band[edge], { ...settings, best: "none" }, shown, columns).segments) {
        if (!line.x.length) continue;
        const [low = 0, high = low] = [line.x[0], line.x[line.x.length - 1]];
        drawn.push({
          line: { ...line, ...lookOf(metric), isPale: true, edge },
          part: { metric, attempt, isRaw: false, edge, low, high },
        });
      }
    }
  }
  // Behind the others; a band behind all lines, its high edge after its low one.
  const layer = ({ isPale, edge }: ChartLine) => (edge ? 0 : isPale ? 1 : 2);
  drawn.sort((one, other) => layer(one.line) - layer(other.line));
  return { curves, shown, lines: drawn.map(({ line }) => line), parts: drawn.map(({ part }) => part) };
}

function marksOf(curves: readonly MetricCurve[], lookOf: LookOf, hasStarts: boolean) {
  const starts = new Map<string, { x: number; label: string }>();
  for (const { segments } of hasStarts ? curves : []) {
    for (const [at, { attempt, start }] of segments.entries()) {
      const isSame = segments[at - 1]?.attempt === attempt;
      // Metrics of a group begin at about the same place.
      const key = `${attempt} ${isSame ? at : ""}`;
      if (at > 0 && !starts.has(key)) starts.set(key, { x: start, label: isSame ? "again" : `attempt ${attempt}` });
    }
  }
  const best = curves.flatMap((curve, at) => (curve.best ? [{ ...curve.best, colour: lookOf(at).colour }] : []));
  return { starts: [...starts.values()], odd: curves.flatMap((curve) => curve.odd), best };
}

/** From where to where, without digits that no one can see. */
function zoomTo({ low, high }: { low: number; high: number }, { isTime, isLogX }: PlotSettings): SomeSettings {
  if (isTime) return { from: Math.round(low), to: Math.round(high) };
  const digits = Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low))) + 3;
  const rounded = (value: number) => Number(value.toPrecision(Math.min(15, Math.max(3, digits))));
  const from = rounded(low);
  return { from: isLogX && from <= 0 ? NaN : from, to: rounded(high) };
}

/** A colour of the theme as the browser computes it: a canvas knows no variables. */
function computed(box: HTMLElement, colour: string): string {
  box.style.color = colour;
  const { color } = getComputedStyle(box);
  box.style.color = "";
  return color;
}

// -- what it says ----------------------------------------------------------------------------------

interface ReadoutProps {
  readonly title: string;
  readonly curves: readonly MetricCurve[];
  readonly parts: readonly LinePart[];
  readonly settings: PlotSettings;
  readonly hovered: { readonly value: Hovered | null };
  readonly hasNames: boolean;
  readonly lookOf: LookOf;
}

/** The values at the cursor; without one the last. Its cells stay where they are. */
function Readout({ title, curves, parts, settings, hovered, hasNames, lookOf }: ReadoutProps) {
  const at = hovered.value;
  const last = curves.reduce((latest, curve) => Math.max(latest, curve.last?.x ?? -Infinity), -Infinity);
  const x = at?.x ?? last;
  // Many scroll, and by keyboard.
  const many = curves.length > MAX_NAMED ? { tabIndex: 0, role: "group" as const, "aria-label": `Lines of ${title}` } : {};
  return (
    <div class={`readout${curves.length > MAX_NAMED ? " many" : ""}`} {...many}>
      <span>{Number.isFinite(x) ? capital(placeOf(x, settings)) : "…"}</span>
      {curves.map((curve, metric) => (
        <span key={curve.name}>
          {hasNames && <Swatch {...lookOf(metric)} />}
          {hasNames && <span class="quiet">{curve.name} </span>}
          <b>{at ? valuesAt(at, metric, parts) : curve.last ? significant(curve.last.y) : "no value"}</b>
          {curve.best && (
            <span class="quiet">
              {" "}
              {curve.best.kind} {significant(curve.best.y)} at {placeOf(curve.best.x, settings)}
            </span>
          )}
        </span>
      ))}
    </div>
  );
}

export function Swatch({ colour, round = 0 }: { readonly colour: string; readonly round?: number }) {
  return (
    <svg class="swatch" aria-hidden="true" viewBox="0 0 22 4">
      <line x1="0" x2="22" y1="2" y2="2" style={{ stroke: colour }} stroke-dasharray={dashOf({ round }).join(" ")} />
    </svg>
  );
}

/** Values of a metric at the cursor: of each attempt that was there, and before and after it was smoothed. */
function valuesAt(at: Hovered, metric: number, parts: readonly LinePart[]): string {
  const found = new Map<number, { raw?: Point; line?: Point }>();
  const places: { attempt: number; isRaw: boolean; point: Point }[] = [];
  const band: { low?: number; high?: number } = {};
  for (const [line, part] of parts.entries()) {
    const point = at.points[line];
    if (part.metric === metric && point && part.low <= at.x && at.x <= part.high) {
      if (part.edge) band[part.edge] = point.y;
      else places.push({ attempt: part.attempt, isRaw: part.isRaw, point });
    }
  }
  for (const { attempt, isRaw, point } of places) {
    found.set(attempt, { ...found.get(attempt), [isRaw ? "raw" : "line"]: point });
  }
  if (!found.size) return "no value";
  return [...found]
    .sort(([one], [other]) => other - one)
    .map(([attempt, { raw, line }]) => {
      const value = significant((raw ?? line)?.y ?? NaN);
      const average = raw && line ? ` (smoothed ${significant(line.y)})` : "";
      return `${found.size > 1 ? `attempt ${attempt}: ` : ""}${value}${average}${bandText(band)}`;
    })
    .join(", ");
}

function bandText({ low, high }: { readonly low?: number; readonly high?: number }): string {
  return low === undefined || high === undefined ? "" : ` (${significant(low)} to ${significant(high)})`;
}

function placeOf(x: number, { isTime }: PlotSettings): string {
  return isTime ? exactTime(x) : `step ${Number.isInteger(x) ? grouped(x) : x}`;
}

const capital = (text: string) => text.slice(0, 1).toUpperCase() + text.slice(1);

function summariesOf(curves: readonly MetricCurve[], settings: PlotSettings): string {
  const named = curves.slice(0, MAX_NAMED).map((curve) => summaryOf(curve, settings));
  const more = curves.length > MAX_NAMED ? `; and ${curves.length - MAX_NAMED} more` : "";
  return named.length ? `${named.join("; ")}${more}` : "loading";
}

function summaryOf({ name, last, best }: MetricCurve, settings: PlotSettings): string {
  if (!last) return `${name} has no value`;
  const mark = best ? `, ${best.kind} ${significant(best.y)} at ${placeOf(best.x, settings)}` : "";
  return `${name} ${significant(last.y)} at ${placeOf(last.x, settings)}${mark}`;
}

function notesOf(curves: readonly MetricCurve[], metrics: readonly Metric[], settings: PlotSettings): string[] {
  const notes: string[] = [];
  for (const { name, oddCount, firstOdd, hiddenCount } of curves) {
    const of = curves.length > 1 ? ` of ${name}` : "";
    if (firstOdd) {
      const first = `${firstOdd.value} at ${placeOf(firstOdd.x, settings)}`;
      notes.push(
        oddCount === 1
          ? `One value${of} is not finite: ${first}.`
          : `${grouped(oddCount)} values${of} are not finite; the first is ${first}.`,
      );
    }
    if (hiddenCount) {
      notes.push(
        `A logarithmic axis has no place for ${hiddenCount === 1 ? "one value" : `${grouped(hiddenCount)} values`}${of}: ${hiddenCount === 1 ? "it is" : "they are"} not above 0.`,
      );
    }
  }
  if (notes.length > MAX_NAMED) {
    const more = notes.splice(MAX_NAMED).length;
    notes.push(`The same is so of ${more === 1 ? "one more line" : `${grouped(more)} more lines`}.`);
  }
  if (metrics.some(({ segments }) => segments.length > MAX_SEGMENTS)) {
    notes.push(`Only the last ${MAX_SEGMENTS} attempts are drawn.`);
  }
  return notes;
}

interface ValueTableProps {
  readonly title: string;
  readonly metrics: readonly Metric[];
  /** What each of several metrics is. */
  readonly nameOf: string;
  readonly bands: readonly MetricBand[] | undefined;
}

function ValueTable({ title, metrics, nameOf, bands }: ValueTableProps) {
  const isOpen = useSignal(false);
  return (
    <details onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
      <summary>{title} as a table</summary>
      {isOpen.value && <Rows title={title} metrics={metrics} nameOf={nameOf} bands={bands} />}
    </details>
  );
}

function Rows({ title, metrics, nameOf, bands }: ValueTableProps) {
  const isNamed = metrics.length > 1 || bands !== undefined;
  const edgeAt = (metric: number, edge: "low" | "high", at: number) => bands?.[metric]?.[edge].segments[0]?.values[at] ?? NaN;
  const hasAttempts = metrics.some(({ segments }) => segments.length > 1);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`Values of ${title}`}>
      <table>
        <thead>
          <tr>
            {hasAttempts && <th>Attempt</th>}
            <th>Step</th>
            {!bands && <th>Time</th>}
            <th>{isNamed ? nameOf : title}</th>
            {isNamed && <th>{bands ? "Mean" : "Value"}</th>}
            {bands && <th>From</th>}
            {bands && <th>To</th>}
          </tr>
        </thead>
        <tbody>
          {metrics.flatMap((metric, number) =>
            rowsOf(metric).map(({ attempt, step, time, value, at }) => (
              <tr key={`${metric.name} ${attempt} ${at}`}>
                {hasAttempts && <td>{attempt}</td>}
                <td>{step}</td>
                {!bands && <td>{exactTime(Number.isNaN(time) ? null : time)}</td>}
                {isNamed && <td>{metric.name}</td>}
                <td>{significant(value)}</td>
                {bands && <td>{significant(edgeAt(number, "low", at))}</td>}
                {bands && <td>{significant(edgeAt(number, "high", at))}</td>}
              </tr>
            )),
          )}
        </tbody>
      </table>
    </div>
  );
}

/** Values spread evenly over all; the last is one of them. */
function rowsOf({ segments, count }: Metric) {
  const step = Math.max(1, Math.ceil(count / MAX_ROWS));
  const rows: { attempt: number; step: number; time: number; value: number; at: number }[] = [];
  let place = 0;
  for (const { attempt, steps, times, values } of segments) {
    for (let at = 0; at < steps.length; at += 1, place += 1) {
      if ((count - 1 - place) % step !== 0) continue;
      rows.push({ attempt, step: steps[at] ?? 0, time: times[at] ?? NaN, value: values[at] ?? NaN, at });
    }
  }
  return rows;
}
