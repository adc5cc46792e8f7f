// Metrics of a job: what its tasks used over time, and what its program logged.
import { useRef } from "preact/hooks";
import { jobUsage, loggedMetrics, type LoggedMetrics, type UsageTotals } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { Empty, ErrorNotice, Loading } from "../components/notices.tsx";
import { Plot } from "../components/plot.tsx";
import { UsagePlots } from "../components/usage_plots.tsx";
import { isFinished } from "../format.ts";
import { usePolled } from "../live.ts";
import { address, setQuery } from "../router.ts";
import { tasksOf } from "./job_tasks.tsx";

const REFRESH_MS = 5000;
const FINISHED_REFRESH_MS = 60_000;
/** Tasks in the list; the log names others by their address. */
const MAX_LISTED_TASKS = 200;
/** Plots of logged metrics; a program may make up any number of names. */
const MAX_LOGGED = 24;
const ALL_TASKS = "all";

export function JobMetrics({ framework, job }: { framework: string; job: JobDetail }) {
  const tasks = tasksOf(job);
  const { query } = address.value;
  const role = query.get("role");
  const index = Number(query.get("index") ?? 0);
  const refreshMs = isFinished(job.jobStatus.state) ? FINISHED_REFRESH_MS : REFRESH_MS;
  const task = role === null ? undefined : { role, index };
  const key = `${framework} ${role ?? ""} ${index} ${refreshMs}`;
  const usage = usePolled(`usage ${key}`, (signal) => jobUsage(framework, task, signal), refreshMs);
  const first = tasks[0] && { role: tasks[0].role, index: tasks[0].taskIndex };
  return (
    <div class="stack">
      {tasks.length > 1 && (
        <label class="choice">
          <span>Task</span>
          <select
            value={role === null ? ALL_TASKS : `${role} ${index}`}
            onChange={({ currentTarget }) => {
              const [chosen, number] = currentTarget.value.split(" ");
              setQuery(number === undefined ? { role: undefined, index: undefined } : { role: chosen, index: number });
            }}
          >
            <option value={ALL_TASKS}>All tasks together</option>
            {tasks.slice(0, MAX_LISTED_TASKS).map(({ role: name, taskIndex }) => (
              <option key={`${name} ${taskIndex}`} value={`${name} ${taskIndex}`}>
                {name}[{taskIndex}]
              </option>
            ))}
          </select>
        </label>
      )}
      {usage.error && <ErrorNotice error={usage.error} />}
      {!usage.value && !usage.error && <Loading what="the samples" />}
      {usage.value &&
        (usage.value.series.times.length ? (
          <UsagePlots
            series={usage.value.series}
            totals={totalsOf(usage.value.tasks.filter((one) => !task || (one.role === role && one.index === index)))}
          />
        ) : (
          <div class="card">
            <Empty title="No samples">
              <p>{emptyReason(job, usage.value.interval)}</p>
            </Empty>
          </div>
        ))}
      <LoggedPlots key={key} framework={framework} task={task ?? first} refreshMs={refreshMs} />
    </div>
  );
}

function emptyReason(job: JobDetail, interval: number | null): string {
  if (interval === null) return "This cluster is set not to measure what tasks use.";
  if (isFinished(job.jobStatus.state)) return "The job ended before it was measured, or its samples are deleted.";
  return `Running tasks are measured every ${interval} s.`;
}

function totalsOf(tasks: readonly UsageTotals[]): UsageTotals {
  const sum = (of: (task: UsageTotals) => number) => tasks.reduce((total, task) => total + of(task), 0);
  return {
    cpuTotal: sum((task) => task.cpuTotal),
    memoryTotal: sum((task) => task.memoryTotal),
    gpuTotal: sum((task) => task.gpuTotal),
  };
}

interface LoggedProps {
  readonly framework: string;
  readonly task: { readonly role: string; readonly index: number } | undefined;
  readonly refreshMs: number;
}

function LoggedPlots({ framework, task, refreshMs }: LoggedProps) {
  // Only what is new is loaded: a long training logs megabytes.
  const known = useRef<LoggedMetrics>({ next: 0, byName: new Map() });
  const logged = usePolled(
    `logged ${framework} ${task?.role ?? ""} ${task?.index ?? ""}`,
    async (signal) => {
      if (task) known.current = await loggedMetrics(framework, task, known.current, signal);
      return [...known.current.byName];
    },
    refreshMs,
  );
  if (!logged.value) return null;
  return (
    <section class="stack" aria-labelledby="logged">
      <h2 id="logged">Logged by the program</h2>
      {!logged.value.length && (
        <p class="quiet">
          Nothing yet. A program logs what should be plotted with <code>openpaisdk.runtime.log_metrics(step, loss=0.3)</code>.
        </p>
      )}
      <div class="plots">
        {logged.value.slice(0, MAX_LOGGED).map(([name, { steps, values }]) => (
          <Plot key={name} title={name} x={steps} values={values} format={significant} />
        ))}
      </div>
      {logged.value.length > MAX_LOGGED && (
        <p class="quiet">The program logged {logged.value.length} metrics; the first {MAX_LOGGED} are shown.</p>
      )}
    </section>
  );
}

const significant = (value: number) => String(Number(value.toPrecision(4)));
