// Runs: tasks of arrays and other jobs, each with its parameters and the summaries of its metrics.
import type { JobRuns, MetricSummary, TaskRun } from "../api_types.ts";
import { isFinished } from "../format.ts";
import { TASK_INDEX, taskValues } from "../job_array.ts";
import { bestOf } from "../plot/plot_settings.ts";

export interface Run {
  /** Place of the job in the comparison, and of the task in the job: "0.3"; of a whole job "0". */
  readonly key: string;
  /** Place among all runs. */
  readonly number: number;
  readonly framework: string;
  readonly job: string;
  readonly user: string;
  /** "main[3]"; empty for a whole job. */
  readonly task: string;
  readonly role: string;
  /** null for a whole job. */
  readonly index: number | null;
  readonly state: TaskRun["state"];
  readonly launchedTime: number | null;
  readonly completedTime: number | null;
  readonly exitCode: number | null;
  /** Why it failed; empty if it did not. */
  readonly cause: string;
  readonly parameters: ReadonlyMap<string, string>;
  readonly metrics: ReadonlyMap<string, RunMetric>;
}

export interface RunMetric {
  readonly count: number;
  readonly last: number;
  readonly min: number | null;
  readonly max: number | null;
  /** The task that logged it, and when its last attempt began. */
  readonly role: string;
  readonly index: number;
  readonly launchedTime: number | null;
}

/** Runs of jobs. A job without an array is one run; a metric is then that of its first task that logged it. */
export function runsOf(jobs: readonly (JobRuns & { readonly place: number })[]): readonly Run[] {
  const runs: Omit<Run, "number">[] = [];
  for (const job of jobs) {
    const common = { framework: `${job.username}~${job.name}`, job: job.name, user: job.username };
    const own = Object.entries(job.parameters).map(([name, value]) => [name, textOf(value)] as const);
    const values = taskValues({ extras: { openpaisdk: { array: job.array, arrayRows: job.arrayRows } } });
    const isArray = values !== null || (job.isArray && job.tasks.length > 1);
    if (!isArray || !job.tasks.length) {
      runs.push({
        ...common,
        key: String(job.place),
        task: "",
        role: job.tasks[0]?.role ?? "",
        index: null,
        state: job.state,
        launchedTime: job.launchedTime,
        completedTime: job.completedTime,
        exitCode: job.tasks[0]?.exitCode ?? null,
        cause: job.tasks.find(({ cause }) => cause)?.cause ?? "",
        parameters: new Map(own),
        metrics: new Map([...job.tasks].reverse().flatMap(metricsOf)),
      });
      continue;
    }
    for (const [at, task] of job.tasks.entries()) {
      const ofTask = values?.of(task.index) ?? [];
      const named = (values?.names ?? []).map((name, place) => [name, ofTask[place] ?? ""] as const);
      const ownValues = named.filter(([name]) => name !== TASK_INDEX);
      runs.push({
        ...common,
        key: `${job.place}.${at}`,
        task: `${task.role}[${task.index}]`,
        role: task.role,
        index: task.index,
        state: task.state,
        launchedTime: task.launchedTime,
        completedTime: task.completedTime,
        exitCode: task.exitCode,
        cause: task.cause ?? "",
        parameters: new Map([...own, ...ownValues]),
        metrics: new Map(metricsOf(task)),
      });
    }
  }
  return runs.map((run, number) => ({ ...run, number }));
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

function metricsOf({ role, index, launchedTime, metrics }: TaskRun): [string, RunMetric][] {
  return Object.entries(metrics).map(([name, { count, last, min, max }]) => [
    name,
    { count, last: Number(last), min: boundOf(min), max: boundOf(max), role, index, launchedTime },
  ]);
}

function boundOf(value: MetricSummary["min"]): number | null {
  return value === null ? null : Number(value);
}

/** Names in the order in which the runs have them. */
export function parameterNames(runs: readonly Run[]): readonly string[] {
  return [...new Set(runs.flatMap(({ parameters }) => [...parameters.keys()]))];
}

export function metricNames(runs: readonly Run[]): readonly string[] {
  return [...new Set(runs.flatMap(({ metrics }) => [...metrics.keys()]))];
}

/** What is plotted before the user chooses: the first metric that says how good a run is, such as a loss. */
export function usualMetric(metrics: readonly string[]): string | undefined {
  return metrics.find((name) => bestOf(name) !== "none") ?? metrics[0];
}

export interface Parameters {
  /** Names of those whose values differ, or that only some runs have. */
  readonly differing: readonly string[];
  /** Those that are the same for all runs, with their value. */
  readonly equal: readonly (readonly [name: string, value: string])[];
}

export function compareParameters(runs: readonly Run[]): Parameters {
  const differing: string[] = [];
  const equal: [string, string][] = [];
  for (const name of parameterNames(runs)) {
    const first = runs[0]?.parameters.get(name);
    if (first !== undefined && runs.every(({ parameters }) => parameters.get(name) === first)) equal.push([name, first]);
    else differing.push(name);
  }
  return { differing, equal };
}

/** A name of each run for a legend: its differing parameters; where these are not unique, or none, its job and task, too. */
export function labelsOf(runs: readonly Run[], differing: readonly string[]): ReadonlyMap<string, string> {
  const texts = runs.map((run) =>
    differing
      .filter((name) => run.parameters.has(name))
      .map((name) => `${name}=${run.parameters.get(name) ?? ""}`)
      .join(" "),
  );
  const times = new Map<string, number>();
  for (const text of texts) times.set(text, (times.get(text) ?? 0) + 1);
  const jobs = new Set(runs.map(({ framework }) => framework)).size;
  const users = new Set(runs.map(({ user }) => user)).size;
  return new Map(
    runs.map((run, at) => {
      const text = texts[at] ?? "";
      if (text && times.get(text) === 1) return [run.key, text];
      const job = users > 1 ? run.framework : run.job;
      const name = jobs > 1 || !run.task ? [job, run.task].filter(Boolean).join(" ") : run.task;
      return [run.key, [name, text].filter(Boolean).join(" ")];
    }),
  );
}

/** Whether anything of the runs can still change. */
export function areActive(jobs: readonly JobRuns[]): boolean {
  return jobs.some(({ state, hasUnreadMetrics }) => !isFinished(state) || hasUnreadMetrics);
}
