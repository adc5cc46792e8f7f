// Runs side by side: a plot of one metric, and a table of parameters and metrics. What is shown is in the address.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { metricLines } from "../api.ts";
import { loadRuns, type LoadedRuns } from "../compare/load_runs.ts";
import { runColours } from "../compare/run_colours.ts";
import { RunSeries, seriesOf } from "../compare/run_series.ts";
import { columnsOf, csvOf, filtered, formatOrder, parseOrder, sorted, type Order, type RunColumn } from "../compare/run_table.ts";
import { scatterOf } from "../compare/scatter.ts";
import { areActive, compareParameters, labelsOf, metricNames, runsOf, type Run } from "../compare/runs.ts";
import { MetricPlot, Swatch } from "../components/metric_plot.tsx";
import { Empty, ErrorNotice, Loading, State } from "../components/notices.tsx";
import { ScatterPlot } from "../components/scatter_plot.tsx";
import { useNow } from "../components/use_now.ts";
import { VirtualRows } from "../components/virtual_rows.tsx";
import { saveFile } from "../files/save_file.ts";
import { counted, grouped, isFinished, runTime } from "../format.ts";
import { usePolled } from "../live.ts";
import { significant } from "../plot/curve.ts";
import type { Metric } from "../plot/logged_metrics.ts";
import { ALL_PLOTS, differing, formatSettings, parseSettings, settingsOf, type SomeSettings } from "../plot/plot_settings.ts";
import { href, jobHref, setQuery } from "../router.ts";

const REFRESH_MS = 5000;
// The metrics of thousands of runs are megabytes.
const REFRESH_LARGE_MS = 30_000;
const LARGE_RUNS = 300;
const FINISHED_REFRESH_MS = 60_000;
/** More lines cannot be distinguished, and are drawn slowly. */
const MAX_DRAWN = 50;
/** Points of a scatter plot. */
const MAX_POINTS = 1000;
/** Metrics that have columns in the table. */
const MAX_TABLE_METRICS = 12;
/** Series that arrive within this time are drawn together. */
const DRAW_MS = 500;
/** In the address: no run is drawn. */
const NONE = "none";

export function ComparePage({ query }: { query: URLSearchParams }) {
  const names = useMemo(() => [...new Set((query.get("jobs") ?? "").split(",").filter(Boolean))], [query.get("jobs")]);
  const known = useRef({ key: "", missing: [] as readonly string[] });
  const key = names.join(",");
  if (known.current.key !== key) known.current = { key, missing: [] };
  const loaded = usePolled(
    key ? `runs ${key}` : null,
    async (signal) => {
      const { current } = known;
      const found = await loadRuns(names, current.missing, signal);
      current.missing = found.missing;
      return found;
    },
    refreshOf,
  );
  useEffect(() => {
    document.title = "Compare · OpenPAI";
  }, []);
  // Of other jobs is no answer yet.
  const value = loaded.value && isOf(loaded.value, names) ? loaded.value : undefined;
  return (
    <>
      {!names.length && <Nothing title="No jobs are selected" />}
      {loaded.error && <ErrorNotice error={loaded.error} />}
      {names.length > 0 && !loaded.error && !value && <Loading what="the runs" />}
      {value && value.missing.length > 0 && <Missing missing={value.missing} names={names} />}
      {value && value.jobs.length === 0 && <Nothing title="There is nothing to compare" />}
      {value && value.jobs.length > 0 && <Comparison key={key} loaded={value} query={query} />}
    </>
  );
}

function refreshOf({ jobs }: LoadedRuns): number {
  if (!areActive(jobs)) return FINISHED_REFRESH_MS;
  return jobs.reduce((sum, { tasks }) => sum + tasks.length, 0) > LARGE_RUNS ? REFRESH_LARGE_MS : REFRESH_MS;
}

function isOf({ jobs, missing }: LoadedRuns, names: readonly string[]): boolean {
  return jobs.length + missing.length === names.length && jobs.every(({ username, name, place }) => names[place] === `${username}~${name}`);
}

function Nothing({ title }: { title: string }) {
  return (
    <>
      <div class="head">
        <h1>Compare</h1>
      </div>
      <div class="card">
        <Empty title={title}>
          <p>Select jobs in the list and choose Compare, or open a job that is a sweep.</p>
          <a class="button primary" href={href("/jobs")}>
            Jobs
          </a>
        </Empty>
      </div>
    </>
  );
}

function Missing({ missing, names }: { missing: readonly string[]; names: readonly string[] }) {
  const rest = names.filter((name) => !missing.includes(name));
  const shown = missing.slice(0, 5).join(", ") + (missing.length > 5 ? ", …" : "");
  return (
    <div class="notice wait compare-missing">
      <p>
        {missing.length === 1 ? `Job ${shown} does not exist any more.` : `${grouped(missing.length)} jobs do not exist any more: ${shown}.`}{" "}
        {rest.length > 0 && (
          <button class="link" type="button" onClick={() => setQuery({ jobs: rest.join(","), show: undefined }, { replace: true })}>
            Leave {missing.length === 1 ? "it" : "them"} out
          </button>
        )}
      </p>
    </div>
  );
}

// -- the comparison --------------------------------------------------------------------------------

function Comparison({ loaded, query }: { loaded: LoadedRuns; query: URLSearchParams }) {
  const { jobs } = loaded;
  const runs = useMemo(() => runsOf(jobs), [loaded]);
  const now = useNow(runs.some(({ state }) => !isFinished(state)));
  const parameters = useMemo(() => compareParameters(runs), [runs]);
  const metrics = useMemo(() => metricNames(runs), [runs]);
  const labels = useMemo(() => labelsOf(runs, parameters.differing), [runs]);
  const columns = useMemo(() => columnsOf(runs, parameters.differing, metrics.slice(0, MAX_TABLE_METRICS)), [runs]);
  const filter = query.get("filter") ?? "";
  const order = parseOrder(query.get("order") ?? "");
  const column = columns.find(({ id }) => id === order?.column);
  const rows = useMemo(
    () => sorted(filtered(runs, filter), column, order?.isDescending ?? false, now),
    [runs, filter, query.get("order"), column?.kind === "duration" ? now : 0],
  );
  const metric = metrics.find((name) => name === query.get("metric")) ?? metrics[0];
  const colour = parameters.differing.find((name) => name === query.get("colour")) ?? "";
  const shown = useMemo(() => shownKeys(query.get("show")), [query.get("show")]);
  const chosen = shown ? rows.filter(({ key }) => shown.has(key)) : rows;
  const against = parameters.differing.find((name) => name === query.get("against")) ?? "";
  const most = against ? MAX_POINTS : MAX_DRAWN;
  const drawn = chosen.slice(0, most);
  const colours = runColours(drawn, colour);
  const title = jobs.length === 1 ? `Compare runs of ${jobs[0]?.name ?? ""}` : "Compare";
  const show = (keys: readonly string[] | undefined) =>
    setQuery({ show: keys === undefined ? undefined : keys.join(",") || NONE }, { replace: true });
  return (
    <div class="stack compare">
      <div class="head">
        <h1>{title}</h1>
        <div class="actions">
          <button class="button" type="button" onClick={() => saveFile(csvOf(rows, runs, now), "runs.csv", "text/csv")}>
            Download CSV
          </button>
        </div>
      </div>
      {parameters.equal.length > 0 && (
        <p class="same">
          <span class="quiet">The same for all runs:</span>{" "}
          {parameters.equal.map(([name, value]) => (
            <span key={name} class="mono">
              {name}={value}
            </span>
          ))}
        </p>
      )}
      {jobs.some(({ hasUnreadMetrics }) => hasUnreadMetrics) && (
        <p class="quiet">The cluster still reads metrics; the page shows more of them by and by.</p>
      )}
      {jobs.some(({ hasOmittedMetrics }) => hasOmittedMetrics) && (
        <p class="quiet">A job has more metrics than the cluster keeps summaries of; the page of the job plots all of them.</p>
      )}
      {metric === undefined ? (
        <p class="notice">
          No run has logged a metric yet. A program logs what should be compared with <code>openpaisdk.runtime.log_metrics(step, loss=0.3)</code>.
        </p>
      ) : (
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
            {parameters.differing.length > 0 && (
              <Choice
                label="Colour by"
                value={colour}
                none="run"
                choices={parameters.differing}
                onChange={(name) => setQuery({ colour: name })}
              />
            )}
            {parameters.differing.length > 0 && (
              <Choice
                label="Against"
                value={against}
                none="steps or time"
                choices={parameters.differing}
                onChange={(name) => setQuery({ against: name })}
              />
            )}
            {colours.legend.length > 0 && (
              <span class="legend">
                {colours.legend.map(({ text, colour: ofText }) => (
                  <span key={text}>
                    <Swatch colour={ofText} />
                    {text}
                  </span>
                ))}
              </span>
            )}
          </div>
          {against ? (
            <RunScatter parameter={against} metric={metric} drawn={drawn} labels={labels} colourOf={colours.of} query={query} />
          ) : (
            <Overlay metric={metric} drawn={drawn} labels={labels} colourOf={colours.of} loaded={loaded} query={query} />
          )}
          {chosen.length > drawn.length && (
            <p class="quiet">
              The plot has the first {grouped(most)} of {grouped(chosen.length)} selected runs, in the order of the table.
            </p>
          )}
        </section>
      )}
      <section class="stack" aria-labelledby="runs">
        <h2 id="runs" class="sr">
          Runs
        </h2>
        <div class="filters" role="search" aria-label="Filter of the runs">
          <input
            type="search"
            placeholder="Filter: words, or lr=0.1"
            aria-label="Filter runs"
            value={filter}
            onInput={({ currentTarget }) => setQuery({ filter: currentTarget.value || undefined }, { replace: filter !== "" })}
          />
          <span class="quiet count" role="status">
            {rows.length === runs.length ? counted(runs.length, "run") : `${grouped(rows.length)} of ${counted(runs.length, "run")}`}
          </span>
        </div>
        {metrics.length > MAX_TABLE_METRICS && (
          <p class="quiet">
            The table has {MAX_TABLE_METRICS} of {grouped(metrics.length)} metrics; the CSV file has all.
          </p>
        )}
        {rows.length ? (
          <RunTable
            rows={rows}
            columns={columns}
            order={order}
            now={now}
            labels={labels}
            drawn={new Set(drawn.map(({ key }) => key))}
            isAll={chosen.length === rows.length}
            isChosen={({ key }) => !shown || shown.has(key)}
            colourOf={colours.of}
            onAll={(isOn) => show(isOn ? undefined : [])}
            onChoose={({ key }, isOn) => show(isOn ? [...(shown ?? []), key] : keysOf(shown, runs, drawn).filter((one) => one !== key))}
          />
        ) : (
          <div class="card">
            <Empty title="No run matches">
              <button class="link" type="button" onClick={() => setQuery({ filter: undefined })}>
                Show all runs
              </button>
            </Empty>
          </div>
        )}
      </section>
    </div>
  );
}

/** Keys of the runs that are selected; undefined: all, until some are chosen. */
function shownKeys(text: string | null): ReadonlySet<string> | undefined {
  return text === null ? undefined : new Set(text.split(",").filter((key) => key !== NONE));
}

/** What is selected, to leave a run out; of more runs than can be drawn those that are: the address stays short. */
function keysOf(shown: ReadonlySet<string> | undefined, runs: readonly Run[], drawn: readonly Run[]): readonly string[] {
  return shown ? [...shown] : (runs.length > MAX_DRAWN ? drawn : runs).map(({ key }) => key);
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
  readonly onChange: (value: string) => void;
}

function Choice({ label, value, choices, none, onChange }: ChoiceProps) {
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
      </select>
    </label>
  );
}

// -- plot ------------------------------------------------------------------------------------------

interface OverlayProps {
  readonly metric: string;
  readonly drawn: readonly Run[];
  readonly labels: ReadonlyMap<string, string>;
  readonly colourOf: (run: Run) => string;
  readonly loaded: LoadedRuns;
  readonly query: URLSearchParams;
}

function Overlay({ metric, drawn, labels, colourOf, loaded, query }: OverlayProps) {
  const withMetric = drawn.flatMap((run) => {
    const wanted = seriesOf(run, metric);
    return wanted ? [{ run, wanted }] : [];
  });
  const { series, version } = useSeries();
  const key = withMetric.map(({ run }) => run.key).join();
  useEffect(() => series.want(withMetric.map(({ wanted }) => wanted)), [series, metric, key, loaded]);
  const lines = useMemo(
    () =>
      withMetric.flatMap(({ run, wanted }) => {
        const found = series.metric(wanted);
        return found ? [{ run, line: { ...found, name: labels.get(run.key) ?? "" } satisfies Metric }] : [];
      }),
    [series, version, metric, key, labels],
  );
  const own = parseSettings(query.get(ALL_PLOTS) ?? "");
  const settings = { ...settingsOf(metric, own), best: "none" as const };
  const change = (changes: SomeSettings) =>
    setQuery({ [ALL_PLOTS]: formatSettings(differing(settingsOf(metric), { ...own, ...changes })) }, { replace: true });
  const missing = drawn.length - withMetric.length;
  const pending = withMetric.filter(({ wanted }) => !series.metric(wanted)).length;
  return (
    <>
      <MetricPlot
        key={metric}
        title={metric}
        metrics={lines.map(({ line }) => line)}
        settings={settings}
        bests={lines.map(() => "none")}
        colours={lines.map(({ run }) => colourOf(run))}
        onChange={change}
      />
      <div class="quiet">
        {drawn.length === 0 && <p>No run is selected: select some in the table.</p>}
        {missing > 0 && <p>{missing === 1 ? "One selected run has" : `${grouped(missing)} selected runs have`} no value of {metric}.</p>}
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

interface RunScatterProps extends Omit<OverlayProps, "loaded"> {
  readonly parameter: string;
}

function RunScatter({ parameter, metric, drawn, labels, colourOf, query }: RunScatterProps) {
  const own = parseSettings(query.get(ALL_PLOTS) ?? "");
  const { isLogY } = settingsOf(metric, own);
  const scatter = scatterOf(drawn, parameter, metric, isLogY);
  const change = (isLog: boolean) =>
    setQuery({ [ALL_PLOTS]: formatSettings(differing(settingsOf(metric), { ...own, isLogY: isLog })) }, { replace: true });
  return (
    <>
      <label class="check">
        <input type="checkbox" checked={isLogY} onChange={({ currentTarget }) => change(currentTarget.checked)} />
        Log y
      </label>
      <ScatterPlot parameter={parameter} metric={metric} scatter={scatter} labels={labels} colourOf={colourOf} />
      {scatter.leftOut > 0 && (
        <p class="quiet">
          {counted(scatter.leftOut, "selected run")} {scatter.leftOut === 1 ? "is" : "are"} left out: without a value of {parameter}, or
          without one of {metric} that the axis has.
        </p>
      )}
    </>
  );
}

/** Series that were read stay while the page is open; `version` changes with them. */
function useSeries(): { readonly series: RunSeries; readonly version: number } {
  const version = useSignal(0);
  const series = useMemo(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = () => {
      timer = undefined;
      version.value += 1;
    };
    return new RunSeries(
      ({ framework, role, index }, start, signal) => metricLines(framework, { role, index }, start, signal),
      () => (timer ??= setTimeout(draw, DRAW_MS)),
    );
  }, []);
  useEffect(() => () => series.close(), [series]);
  return { series, version: version.value };
}

// -- table -----------------------------------------------------------------------------------------

interface RunTableProps {
  readonly rows: readonly Run[];
  readonly columns: readonly RunColumn[];
  readonly order: Order | undefined;
  readonly now: number;
  readonly labels: ReadonlyMap<string, string>;
  readonly drawn: ReadonlySet<string>;
  readonly isAll: boolean;
  readonly isChosen: (run: Run) => boolean;
  readonly colourOf: (run: Run) => string;
  readonly onAll: (isOn: boolean) => void;
  readonly onChoose: (run: Run, isOn: boolean) => void;
}

function RunTable({ rows, columns, order, now, labels, drawn, isAll, isChosen, colourOf, onAll, onChoose }: RunTableProps) {
  const numbers = useMemo(() => new Set(columns.filter((column) => isNumber(column, rows)).map(({ id }) => id)), [columns, rows]);
  const head = (
    <tr>
      <th class="c-draw">
        <input type="checkbox" aria-label="Draw all runs" checked={isAll} onChange={() => onAll(!isAll)} />
      </th>
      {columns.map((column) => (
        <ColumnHead key={column.id} column={column} order={order} isNumber={numbers.has(column.id)} />
      ))}
    </tr>
  );
  return (
    <VirtualRows rows={rows} columns={columns.length + 1} head={head} label="Runs">
      {(run) => (
        <tr key={run.key}>
          <td class="c-draw">
            <input
              type="checkbox"
              aria-label={`Draw ${labels.get(run.key) ?? ""}`}
              checked={isChosen(run)}
              onChange={({ currentTarget }) => onChoose(run, currentTarget.checked)}
            />
            {drawn.has(run.key) && <Swatch colour={colourOf(run)} />}
          </td>
          {columns.map((column) => (
            <Cell key={column.id} column={column} run={run} now={now} isNumber={numbers.has(column.id)} />
          ))}
        </tr>
      )}
    </VirtualRows>
  );
}

function isNumber({ kind, valueOf }: RunColumn, rows: readonly Run[]): boolean {
  return kind === "metric" || (kind === "parameter" && rows.every((run) => typeof (valueOf(run, 0) ?? 0) === "number"));
}

function ColumnHead({ column, order, isNumber: isRight }: { column: RunColumn; order: Order | undefined; isNumber: boolean }) {
  const isSorted = order?.column === column.id;
  // A second click turns the order, a third one ends it.
  const next: Order | undefined = !isSorted ? { column: column.id, isDescending: false } : order.isDescending ? undefined : { ...order, isDescending: true };
  return (
    <th class={isRight ? "number" : ""} aria-sort={isSorted ? (order.isDescending ? "descending" : "ascending") : undefined}>
      <button type="button" onClick={() => setQuery({ order: next && formatOrder(next) })}>
        {column.label}
        {isSorted && <span aria-hidden="true">{order.isDescending ? " ↓" : " ↑"}</span>}
      </button>
    </th>
  );
}

interface CellProps {
  readonly column: RunColumn;
  readonly run: Run;
  readonly now: number;
  readonly isNumber: boolean;
}

function Cell({ column, run, now, isNumber: isRight }: CellProps) {
  const { framework, job, task, role, index, state } = run;
  switch (column.kind) {
    case "job":
      return (
        <td class="c-value">
          <a href={jobHref(framework)} title={framework}>
            {job}
          </a>
        </td>
      );
    case "task":
      return <td>{index !== null && <a href={jobHref(framework, { tab: "metrics", role, index: String(index) })}>{task}</a>}</td>;
    case "state":
      return (
        <td>
          <State state={state} />
        </td>
      );
    case "duration":
      return <td>{runTime(run.launchedTime, run.completedTime, now)}</td>;
    case "parameter": {
      const text = run.parameters.get(column.name) ?? "";
      return (
        <td class={`c-value mono${isRight ? " number" : ""}`} title={text}>
          {text}
        </td>
      );
    }
    case "metric": {
      const value = column.valueOf(run, now);
      return (
        <td class="number" title={value === null ? "" : String(value)}>
          {typeof value === "number" ? significant(value) : ""}
        </td>
      );
    }
  }
}
