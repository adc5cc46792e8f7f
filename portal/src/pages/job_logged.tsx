// What the program of a task logged, as plots; their settings are in the address.
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { metricSeries } from "../api.ts";
import { MetricPlot } from "../components/metric_plot.tsx";
import { ErrorNotice, Loading } from "../components/notices.tsx";
import { PlotFields } from "../components/plot_fields.tsx";
import { grouped } from "../format.ts";
import { usePolled, type Polled } from "../live.ts";
import { groupsOf, LoggedMetrics, TENSORBOARD, type Metric, type MetricGroup } from "../plot/logged_metrics.ts";
import {
  ALL_PLOTS,
  differing,
  formatSettings,
  parseSettings,
  plotKey,
  settingsOf,
  type PlotSettings,
  type SomeSettings,
} from "../plot/plot_settings.ts";
import { address, setQuery } from "../router.ts";

/** Plots that are shown at first; a program may make up any number of names. */
const MAX_SHOWN = 24;
/** From so many metrics on they can be filtered by name. */
const MIN_FILTERED = 7;
/** Values of each metric that are requested: so many that a part of it can be looked at, too. */
const POINTS = 8192;

interface TaskChoice {
  readonly role: string;
  readonly index: number;
}

export function useLogged(framework: string, task: TaskChoice | undefined, tries: number, refreshMs: number): Polled<readonly Metric[]> {
  // Only what is new is loaded: a long training logs megabytes.
  const known = useRef({ key: "", logged: new LoggedMetrics(), events: new LoggedMetrics() });
  const key = `logged ${framework} ${task?.role ?? ""} ${task?.index ?? ""} ${tries}`;
  if (known.current.key !== key) known.current = { key, logged: new LoggedMetrics(), events: new LoggedMetrics() };
  const { logged, events } = known.current;
  return usePolled(
    `${key} ${refreshMs}`,
    async (signal) => {
      if (task) {
        let hasMore = true;
        while (hasMore) {
          const part = await metricSeries(framework, task, { start: logged.next, points: POINTS }, signal);
          logged.add(part);
          hasMore = part.hasMore;
        }
        events.add(await metricSeries(framework, task, { start: events.next, points: POINTS, source: TENSORBOARD }, signal));
      }
      return [...logged.metrics, ...events.metrics];
    },
    refreshMs,
  );
}

/** `by`: name of the task that logged this, where the job has others. */
export function LoggedPlots({ logged, by }: { logged: Polled<readonly Metric[]>; by: string }) {
  const most = useSignal(MAX_SHOWN);
  const preview = useSignal<number | null>(null);
  if (logged.error) return <ErrorNotice error={logged.error} />;
  if (!logged.value) return <Loading what="what the program logged" />;
  const { query } = address.value;
  const filter = query.get("metric") ?? "";
  const metrics = logged.value.filter(({ name }) => name.toLowerCase().includes(filter.toLowerCase()));
  const common = parseSettings(query.get(ALL_PLOTS) ?? "");
  const ofAll = { ...common, ...(preview.value === null ? {} : { smoothing: preview.value }) };
  const changeAll = (changes: SomeSettings) => {
    preview.value = null;
    const ofPlots = changes.isTime === undefined ? {} : withoutParts(query);
    setQuery({ ...ofPlots, [ALL_PLOTS]: formatSettings(differing(settingsOf(""), { ...common, ...changes })) }, { replace: true });
  };
  return (
    <section class="stack" aria-labelledby="logged">
      <h2 id="logged">Logged by {by || "the program"}</h2>
      {!logged.value.length && (
        <p class="quiet">
          Nothing yet. A program logs what should be plotted with <code>openpaisdk.runtime.log_metrics(step, loss=0.3)</code>.
        </p>
      )}
      {logged.value.length > 0 && (
        <div class="plot-tools" role="group" aria-label="Settings of all plots">
          {(logged.value.length >= MIN_FILTERED || filter) && (
            <input
              type="search"
              placeholder="Filter by name"
              aria-label="Filter metrics by name"
              value={filter}
              onInput={({ currentTarget }) => setQuery({ metric: currentTarget.value || undefined }, { replace: filter !== "" })}
            />
          )}
          <PlotFields settings={settingsOf("", ofAll)} onChange={changeAll} onPreview={(smoothing) => (preview.value = smoothing)} />
        </div>
      )}
      {logged.value.length > 0 && !metrics.length && <p class="quiet">No metric has “{filter}” in its name.</p>}
      {groupsOf(metrics.slice(0, most.value)).map((group) => (
        <Group key={group.name} group={group} ofAll={ofAll} />
      ))}
      {metrics.length > most.value && (
        <p class="quiet">
          {grouped(most.value)} of {grouped(metrics.length)} metrics are shown.{" "}
          <button class="link" type="button" onClick={() => (most.value += MAX_SHOWN)}>
            Show more
          </button>
        </p>
      )}
    </section>
  );
}

function Group({ group: { name, metrics }, ofAll }: { group: MetricGroup; ofAll: SomeSettings }) {
  const key = `${name}/`;
  const { settings, isOwn, change, reset } = useSettings(key, ofAll);
  return (
    <section class="stack" aria-label={name || "Metrics without a group"}>
      {name && (
        <div class="group-head">
          <h3>{name}</h3>
          {name === TENSORBOARD && <span class="quiet">Scalars of event files in the outputs of the task</span>}
          {metrics.length > 1 && (
            <label class="check">
              <input
                type="checkbox"
                checked={settings.isTogether}
                onChange={({ currentTarget }) => change({ isTogether: currentTarget.checked })}
              />
              In one plot
            </label>
          )}
        </div>
      )}
      {settings.isTogether && metrics.length > 1 ? (
        <MetricPlot
          title={name}
          metrics={metrics}
          settings={settings}
          bests={metrics.map((metric) => settingsOf(metric.name, ownOf(metric.name)).best)}
          isOwn={isOwn}
          onChange={change}
          onReset={reset}
        />
      ) : (
        metrics.map((metric) => <SinglePlot key={metric.name} metric={metric} ofAll={ofAll} />)
      )}
    </section>
  );
}

function SinglePlot({ metric, ofAll }: { metric: Metric; ofAll: SomeSettings }) {
  const { settings, isOwn, change, reset } = useSettings(metric.name, ofAll);
  return (
    <MetricPlot
      title={metric.name}
      metrics={[metric]}
      settings={settings}
      bests={[settings.best]}
      isOwn={isOwn}
      onChange={change}
      onReset={reset}
    />
  );
}

/** The settings of single plots without a part of the axis: a part of the steps is no part of the time. */
function withoutParts(query: URLSearchParams): Record<string, string> {
  const keys = [...query.keys()].filter((key) => key.startsWith(plotKey("")));
  return Object.fromEntries(keys.map((key) => [key, formatSettings({ ...parseSettings(query.get(key) ?? ""), from: NaN, to: NaN })]));
}

function ownOf(name: string): SomeSettings {
  return parseSettings(address.value.query.get(plotKey(name)) ?? "");
}

/** Settings of a plot: those of all plots, and its own, which are in the address. */
function useSettings(name: string, ofAll: SomeSettings) {
  const own = ownOf(name);
  const inherited = settingsOf(name, ofAll);
  const write = (wanted: SomeSettings) => setQuery({ [plotKey(name)]: formatSettings(differing(inherited, wanted)) }, { replace: true });
  const settings: PlotSettings = { ...inherited, ...own };
  return {
    settings,
    // A part of the axis, and a group in one plot, have buttons of their own.
    isOwn: Object.keys(own).some((one) => !["from", "to", "isTogether"].includes(one)),
    change: (changes: SomeSettings) => write({ ...own, ...changes }),
    reset: () => write(own.isTogether === undefined ? {} : { isTogether: own.isTogether }),
  };
}
