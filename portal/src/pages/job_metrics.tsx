// Metrics of a job: what its program logged, and what its tasks used over time.
import { jobUsage, type UsageTotals } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { Empty, ErrorNotice, Loading } from "../components/notices.tsx";
import { UsagePlots } from "../components/usage_plots.tsx";
import { isFinished } from "../format.ts";
import { usePolled } from "../live.ts";
import { address, setQuery } from "../router.ts";
import { LoggedPlots, useLogged } from "./job_logged.tsx";
import { tasksOf } from "./job_tasks.tsx";

const REFRESH_MS = 5000;
const FINISHED_REFRESH_MS = 60_000;
/** Tasks in the list; the log names others by their address. */
const MAX_LISTED_TASKS = 200;
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
  const loggedBy = tasks.find((one) => !task || (one.role === role && one.taskIndex === index));
  const logged = useLogged(framework, loggedBy && { role: loggedBy.role, index: loggedBy.taskIndex }, triesOf(job, loggedBy), refreshMs);
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
      <LoggedPlots logged={logged} by={loggedBy && tasks.length > 1 ? `${loggedBy.role}[${loggedBy.taskIndex}]` : ""} />
      {/* After the plots that are above it, so that nothing moves. */}
      {(logged.value || logged.error) && (
        <section class="stack" aria-labelledby="used">
          <h2 id="used">Used by {task ? "the task" : "all tasks"}</h2>
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
        </section>
      )}
    </div>
  );
}

/** How often the task was started: a new attempt has a file of its own. */
function triesOf(job: JobDetail, task: ReturnType<typeof tasksOf>[number] | undefined): number {
  return job.jobStatus.attemptId + (task?.attemptId ?? 0);
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
