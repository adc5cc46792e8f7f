// Plot of the runs that are compared: lines over steps, means of groups, or the last values against parameters.
import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { metricSeries } from "../api.ts";
import type { LoadedRuns } from "../compare/load_runs.ts";
import { MAX_AXES, parallelOf } from "../compare/parallel.ts";
import { groupChoices, groupCsv, meanOf, runGroups, type BandKind, type GroupChoice } from "../compare/run_groups.ts";
import type { RunLooks } from "../compare/run_looks.ts";
import { RunSeries, seriesOf } from "../compare/run_series.ts";
import { scatterOf } from "../compare/scatter.ts";
import type { Run } from "../compare/runs.ts";
import { MetricPlot, Swatch } from "../components/metric_plot.tsx";
import { ParallelPlot } from "../components/parallel_plot.tsx";
import { PointSwatch, ScatterPlot } from "../components/scatter_plot.tsx";
import { counted, grouped } from "../format.ts";
import type { Look } from "../plot/colours.ts";
import { isOfTensorBoard, TENSORBOARD, type Metric } from "../plot/logged_metrics.ts";
import { ALL_PLOTS, differing, formatSettings, parseSettings, settingsOf, type SomeSettings } from "../plot/plot_settings.ts";
import { setQuery } from "../router.ts";

/** Series that arrive within this time are drawn together, the last one at once. */
const DRAW_MS = 500;
/** While series arrive, drawing takes about a fifth of the time, also where all lines take seconds. */
const PAUSE_PER_DRAW = 4;
/** More lines cannot be distinguished, and are drawn slowly. */
export const MAX_DRAWN = 50;
/** Values of a run that are requested: of each metric so many that a part of it can be looked at, too. */
const RUN_POINTS = 2048;
/** Runs whose mean is drawn. */
const MAX_GROUPED = 200;
/** Runs in a plot of last values. */
const MAX_POINTS = 1000;
/** In the address: against all parameters, each on an axis. */
export const PARALLEL = "*";

/** What the address says of the plot. */
export interface PlotChoice {
  /** Empty: over steps or time. */
  readonly against: string;
  readonly group: GroupChoice | undefined;
  readonly band: BandKind;
  /** Runs that are drawn at most. */
  readonly most: number;
}

export function plotChoice(query: URLSearchParams, differingParameters: readonly string[]): PlotChoice {
  const text = query.get("against") ?? "";
  const isAgainst = differingParameters.includes(text) || (text === PARALLEL && differingParameters.length > 0);
  const group = isAgainst ? undefined : groupChoices(differingParameters).find(({ value }) => value === query.get("group"));
  return {
    against: isAgainst ? text : "",
    group,
    band: query.get("band") === "range" ? "range" : "deviation",
    most: isAgainst ? MAX_POINTS : group ? MAX_GROUPED : MAX_DRAWN,
  };
}

/** How a legend or a table shows the look of a run: as a line, or as the point that the plot has. */
export function swatchOf(against: string): (look: Look) => VNode {
  return against && against !== PARALLEL ? PointSwatch : Swatch;
}

interface PlotProps {
  readonly metric: string;
  readonly metrics: readonly string[];
  readonly parameters: readonly string[];
  readonly choice: PlotChoice;
  /** Selected runs, in the order of the table; the first of them are drawn. */
  readonly chosen: readonly Run[];
  readonly drawn: readonly Run[];
  readonly colour: string;
  readonly looks: RunLooks;
  readonly labels: ReadonlyMap<string, string>;
  readonly loaded: LoadedRuns;
  readonly query: URLSearchParams;
}

export function RunPlot({ metric, metrics, parameters, choice, chosen, drawn, colour, looks, labels, loaded, query }: PlotProps) {
  const { against, group, band, most } = choice;
  const common = { metric, drawn, labels, query };
  const LegendSwatch = swatchOf(against);
  return (
    <section class="stack" aria-labelledby="plot">
      <h2 id="plot" class="sr">
        Plot
      </h2>
      <div class="plot-tools">
        <Choice
          label="Metric"
          value={metric}
          choices={metrics}
          onChange={(name) => setQuery({ metric: name, [ALL_PLOTS]: withoutPart(query) })}
        />
        {parameters.length > 0 && !group && (
          <Choice
            label="Colour by"
            value={colour}
            none={against === PARALLEL ? "metric" : "run"}
            choices={parameters}
            onChange={(name) => setQuery({ colour: name })}
          />
        )}
        {parameters.length > 0 && (
          <Choice
            label="X axis"
            value={against}
            none="steps or time"
            choices={parameters}
            more={[{ value: PARALLEL, label: "all parameters (parallel coordinates)" }]}
            onChange={(name) => setQuery({ against: name })}
          />
        )}
        {parameters.length > 0 && !against && (
          <Choice
            label="Group by"
            value={group?.value ?? ""}
            none="nothing"
            choices={[]}
            more={groupChoices(parameters)}
            onChange={(name) => setQuery({ group: name })}
          />
        )}
        {group && (
          <Choice
            label="Band"
            value={band === "range" ? "range" : ""}
            none="standard deviation"
            choices={[]}
            more={[{ value: "range", label: "lowest to highest" }]}
            onChange={(name) => setQuery({ band: name })}
          />
        )}
        {against && (
          <LogAxis metric={metric} query={query} label={against === PARALLEL ? "Logarithmic axis of the metric" : "Logarithmic y axis"} />
        )}
        {!group && looks.legend.length > 0 && (
          <span class="legend">
            {looks.legend.map(({ text, look }) => (
              <span key={text}>
                <LegendSwatch {...look} />
                {text}
              </span>
            ))}
          </span>
        )}
      </div>
      {against === PARALLEL && <RunParallel {...common} parameters={parameters} lookOf={colour ? looks.of : undefined} />}
      {against && against !== PARALLEL && <RunScatter {...common} parameter={against} lookOf={looks.of} />}
      {!against && <Overlay {...common} lookOf={looks.of} loaded={loaded} group={group} band={band} />}
      {chosen.length > drawn.length && (
        <p class="quiet">
          The plot has the first {grouped(most)} of {grouped(chosen.length)} selected runs, in the order of the table.
        </p>
      )}
    </section>
  );
}

function withoutPart(query: URLSearchParams): string {
  return formatSettings({ ...parseSettings(query.get(ALL_PLOTS) ?? ""), from: NaN, to: NaN });
}

interface ChoiceProps {
  readonly label: string;
  readonly value: string;
  readonly choices: readonly string[];
  /** What no choice is called. */
  readonly none?: string;
  /** Further ones, with a label of their own. */
  readonly more?: readonly { readonly value: string; readonly label: string }[];
  readonly onChange: (value: string) => void;
}

function Choice({ label, value, choices, none, more = [], onChange }: ChoiceProps) {
  return (
    <label class="choice">
      <span>{label}</span>
      <select value={value} onChange={({ currentTarget }) => onChange(currentTarget.value)}>
        {none !== undefined && <option value="">{none}</option>}
        {choices.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
        {more.map(({ value: one, label: text }) => (
          <option key={one} value={one}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

// -- plots over steps ------------------------------------------------------------------------------

interface OverlayProps {
  readonly metric: string;
  readonly drawn: readonly Run[];
  readonly labels: ReadonlyMap<string, string>;
  readonly lookOf: (run: Run) => Look;
  readonly loaded: LoadedRuns;
  readonly query: URLSearchParams;
  readonly group: GroupChoice | undefined;
  readonly band: BandKind;
}

function Overlay({ metric, drawn, labels, lookOf, loaded, query, group, band }: OverlayProps) {
  const withMetric = drawn.flatMap((run) => {
    const wanted = seriesOf(run, metric);
    return wanted ? [{ run, wanted }] : [];
  });
  const { series, version } = useSeries();
  const key = withMetric.map(({ run }) => run.key).join();
  // oxlint-disable-next-line react/exhaustive-deps -- `key` names the runs of `withMetric`, which is a new list in each render
  useEffect(() => series.want(withMetric.map(({ wanted }) => wanted)), [series, metric, key, loaded]);
  const lines = useMemo(
    () =>
      withMetric.flatMap(({ run, wanted }) => {
        const found = series.metric(wanted);
        return found ? [{ run, line: { ...found, name: labels.get(run.key) ?? "" } satisfies Metric }] : [];
      }),
    // oxlint-disable-next-line react/exhaustive-deps -- `key` names the runs of `withMetric`; `version` changes with the series
    [series, version, metric, key, labels],
  );
  // oxlint-disable-next-line react/exhaustive-deps -- a group is a new object in each render: its value names it
  const means = useMemo(() => (group ? meansOf(lines, group.parameters, metric, band) : []), [lines, group?.value, band]);
  const own = parseSettings(query.get(ALL_PLOTS) ?? "");
  const settings = { ...settingsOf(metric, own), best: "none" as const, ...(group ? { isTime: false } : {}) };
  const change = (changes: SomeSettings) =>
    setQuery({ [ALL_PLOTS]: formatSettings(differing(settingsOf(metric), { ...own, ...changes })) }, { replace: true });
  const missing = drawn.length - withMetric.length;
  const pending = withMetric.filter(({ wanted }) => !series.metric(wanted)).length;
  return (
    <>
      {group ? (
        <MetricPlot
          key={`${metric} by group`}
          title={`Mean of ${metric}`}
          metrics={means.map(({ curve }) => curve.mean)}
          bands={means.map(({ curve }) => curve)}
          settings={settings}
          bests={means.map(() => "none")}
          looks={means.map(({ group: { look } }) => look)}
          csvOf={() =>
            groupCsv(
              means.map((one) => one.group),
              group.parameters,
              means.map(({ curve }) => curve),
            )
          }
          onChange={change}
        />
      ) : (
        <MetricPlot
          key={metric}
          title={metric}
          metrics={lines.map(({ line }) => line)}
          settings={settings}
          bests={lines.map(() => "none")}
          looks={lines.map(({ run }) => lookOf(run))}
          onChange={change}
        />
      )}
      <div class="quiet">
        {drawn.length === 0 && <p>No run is selected: select some in the table.</p>}
        {missing > 0 && (
          <p>
            {missing === 1 ? "One selected run has" : `${grouped(missing)} selected runs have`} no value of {metric}.
          </p>
        )}
        {pending > 0 && !series.problem && <p role="status">Loading the values of {counted(pending, "run")} …</p>}
        {pending > 0 && series.problem && (
          <p role="status">
            The values of {counted(pending, "run")} are not loaded: {series.problem} The page tries again.
          </p>
        )}
      </div>
    </>
  );
}

interface RunLine {
  readonly run: Run;
  readonly line: Metric;
}

/** Each group, and the mean of its runs; the name of a line says how many these are. */
function meansOf(lines: readonly RunLine[], parameters: readonly string[], metric: string, band: BandKind) {
  const byRun = new Map(lines.map(({ run, line }) => [run, line]));
  return runGroups(
    lines.map(({ run }) => run),
    parameters,
  ).map((group) => {
    const known = group.runs.flatMap((run) => byRun.get(run) ?? []);
    return { group, curve: meanOf(`${group.label || metric} (${counted(group.runs.length, "run")})`, known, band) };
  });
}

interface LastValuesProps extends Pick<OverlayProps, "metric" | "drawn" | "labels" | "query"> {
  readonly lookOf: ((run: Run) => Look) | undefined;
}

interface RunParallelProps extends LastValuesProps {
  readonly parameters: readonly string[];
}

function RunParallel({ metric, drawn, labels, lookOf, query, parameters }: RunParallelProps) {
  const isLog = hasLogAxis(metric, query);
  const parallel = useMemo(() => parallelOf(drawn, parameters, metric, isLog), [drawn, parameters, metric, isLog]);
  return (
    <>
      <ParallelPlot metric={metric} parallel={parallel} labels={labels} lookOf={lookOf} />
      {parallel.leftOut > 0 && (
        <p class="quiet">
          {counted(parallel.leftOut, "selected run")} {parallel.leftOut === 1 ? "is" : "are"} left out: without a value of {metric} that the
          axis has.
        </p>
      )}
      {parameters.length > MAX_AXES && (
        <p class="quiet">
          The plot has the first {MAX_AXES} of {grouped(parameters.length)} parameters that differ.
        </p>
      )}
    </>
  );
}

interface RunScatterProps extends LastValuesProps {
  readonly parameter: string;
  readonly lookOf: (run: Run) => Look;
}

function RunScatter({ parameter, metric, drawn, labels, lookOf, query }: RunScatterProps) {
  const isLog = hasLogAxis(metric, query);
  const scatter = scatterOf(drawn, parameter, metric, isLog);
  return (
    <>
      <ScatterPlot parameter={parameter} metric={metric} scatter={scatter} labels={labels} lookOf={lookOf} />
      {scatter.leftOut > 0 && (
        <p class="quiet">
          {counted(scatter.leftOut, "selected run")} {scatter.leftOut === 1 ? "is" : "are"} left out: without a value of {parameter}, or
          without one of {metric} that the axis has.
        </p>
      )}
    </>
  );
}

function hasLogAxis(metric: string, query: URLSearchParams): boolean {
  return settingsOf(metric, parseSettings(query.get(ALL_PLOTS) ?? "")).isLogY;
}

/** Whether the axis of the metric is logarithmic. */
function LogAxis({ metric, query, label }: { metric: string; query: URLSearchParams; label: string }) {
  const own = parseSettings(query.get(ALL_PLOTS) ?? "");
  const change = (isLog: boolean) =>
    setQuery({ [ALL_PLOTS]: formatSettings(differing(settingsOf(metric), { ...own, isLogY: isLog })) }, { replace: true });
  return (
    <label class="check">
      <input type="checkbox" checked={hasLogAxis(metric, query)} onChange={({ currentTarget }) => change(currentTarget.checked)} />
      {label}
    </label>
  );
}

/** Series that were read stay while the page is open; `version` changes with them. */
function useSeries(): { readonly series: RunSeries; readonly version: number } {
  const version = useSignal(0);
  const series = useMemo(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isPainting = false;
    let pause = DRAW_MS;
    const draw = () => {
      const began = performance.now();
      timer = undefined;
      isPainting = true;
      version.value += 1;
      // The second frame begins when the browser has caught up with the first.
      requestAnimationFrame(() =>
        requestAnimationFrame(() => {
          isPainting = false;
          pause = Math.max(DRAW_MS, PAUSE_PER_DRAW * (performance.now() - began));
        }),
      );
    };
    return new RunSeries(
      ({ framework, role, index, metric }, start, signal) =>
        metricSeries(
          framework,
          { role, index },
          { start, points: RUN_POINTS, metric, source: isOfTensorBoard(metric) ? TENSORBOARD : undefined },
          signal,
        ),
      (isLast) => {
        if (isLast) {
          clearTimeout(timer);
          timer = setTimeout(draw);
        } else if (!isPainting) timer ??= setTimeout(draw, pause);
      },
    );
  }, [version]);
  useEffect(() => () => series.close(), [series]);
  return { series, version: version.value };
}
