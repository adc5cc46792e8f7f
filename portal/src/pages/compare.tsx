// Runs side by side: a plot of one metric, and a table of parameters and metrics. What is shown is in the address.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { loadRuns, type LoadedRuns } from "../compare/load_runs.ts";
import { groupLooks } from "../compare/run_groups.ts";
import { runLooks } from "../compare/run_looks.ts";
import { chosenColumns, columnsOf, csvOf, filtered, MAX_TABLE_METRICS, parseOrder, sorted } from "../compare/run_table.ts";
import { areActive, compareParameters, labelsOf, metricNames, runsOf, usualMetric, type Run } from "../compare/runs.ts";
import { Empty, ErrorNotice, Loading } from "../components/notices.tsx";
import { useNow } from "../components/use_now.ts";
import { saveFile } from "../files/save_file.ts";
import { counted, grouped, isFinished } from "../format.ts";
import { usePolled } from "../live.ts";
import { href, setQuery } from "../router.ts";
import { ColumnChoice } from "./compare_columns.tsx";
import { MAX_DRAWN, PARALLEL, plotChoice, RunPlot, swatchOf } from "./compare_plot.tsx";
import { RunTable } from "./compare_table.tsx";

const REFRESH_MS = 5000;
// The metrics of thousands of runs are megabytes.
const REFRESH_LARGE_MS = 30_000;
const LARGE_RUNS = 300;
const FINISHED_REFRESH_MS = 60_000;
/** In the address: no run is drawn. */
const NONE = "none";

export function ComparePage({ query }: { query: URLSearchParams }) {
  const listed = query.get("jobs") ?? "";
  const names = useMemo(() => [...new Set(listed.split(",").filter(Boolean))], [listed]);
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
        {missing.length === 1
          ? `Job ${shown} does not exist any more.`
          : `${grouped(missing.length)} jobs do not exist any more: ${shown}.`}{" "}
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
  const runs = useMemo(() => runsOf(jobs), [jobs]);
  const now = useNow(runs.some(({ state }) => !isFinished(state)));
  const parameters = useMemo(() => compareParameters(runs), [runs]);
  const metrics = useMemo(() => metricNames(runs), [runs]);
  const labels = useMemo(() => labelsOf(runs, parameters.differing), [runs, parameters]);
  const allColumns = useMemo(() => columnsOf(runs, parameters.differing, metrics), [runs, parameters, metrics]);
  const ids = query.get("columns");
  const columns = useMemo(() => chosenColumns(allColumns, ids), [allColumns, ids]);
  const filter = query.get("filter") ?? "";
  const order = parseOrder(query.get("order") ?? "");
  const column = allColumns.find(({ id }) => id === order?.column);
  const isDescending = order?.isDescending ?? false;
  // Only the order of durations changes with the time.
  const sortedAt = column?.kind === "duration" ? now : 0;
  const rows = useMemo(
    () => sorted(filtered(runs, filter), column, isDescending, sortedAt),
    [runs, filter, column, isDescending, sortedAt],
  );
  const metric = metrics.find((name) => name === query.get("metric")) ?? usualMetric(metrics);
  const colour = parameters.differing.find((name) => name === query.get("colour")) ?? "";
  const listedKeys = query.get("show");
  const shown = useMemo(() => shownKeys(listedKeys), [listedKeys]);
  const chosen = useMemo(() => (shown ? rows.filter(({ key }) => shown.has(key)) : rows), [rows, shown]);
  const choice = plotChoice(query, parameters.differing);
  const drawn = useMemo(() => chosen.slice(0, choice.most), [chosen, choice.most]);
  const looks = runLooks(drawn, colour);
  const lookOf = choice.group ? groupLooks(drawn, choice.group.parameters) : looks.of;
  // The colours of parallel axes are those of the metric.
  const hasSwatches = choice.against !== PARALLEL || colour !== "";
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
          No run has logged a metric yet. A program logs what should be compared with{" "}
          <code>openpaisdk.runtime.log_metrics(step, loss=0.3)</code>.
        </p>
      ) : (
        <RunPlot
          metric={metric}
          metrics={metrics}
          parameters={parameters.differing}
          choice={choice}
          chosen={chosen}
          drawn={drawn}
          colour={colour}
          looks={looks}
          labels={labels}
          loaded={loaded}
          query={query}
        />
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
          <ColumnChoice columns={allColumns} shown={columns} isOwn={query.get("columns") !== null} />
        </div>
        {metrics.length > MAX_TABLE_METRICS && !query.get("columns") && (
          <p class="quiet">
            The table has {MAX_TABLE_METRICS} of {grouped(metrics.length)} metrics: choose others under Columns. The CSV file has all.
          </p>
        )}
        {rows.length ? (
          <RunTable
            rows={rows}
            columns={columns}
            order={order}
            now={now}
            labels={labels}
            drawn={new Set(hasSwatches ? drawn.map(({ key }) => key) : [])}
            isAll={chosen.length === rows.length}
            isChosen={({ key }) => !shown || shown.has(key)}
            lookOf={lookOf}
            Swatch={swatchOf(choice.against)}
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
