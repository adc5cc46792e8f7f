// Columns of the list of jobs: those that there are, which are shown in which order, and their values.
import type { JobSummary, ListedMetric } from "../api_types.ts";
import { exactTime, grouped, runTime, shortTime, significant } from "../format.ts";

export interface JobColumn {
  /** `state`; of a parameter `parameter.lr`, of a metric `metric.loss.min`. */
  readonly id: string;
  readonly label: string;
  readonly kind: "job" | "parameter" | "metric";
  /** Of a parameter or a metric. */
  readonly name: string;
  /** The API's name of the order by this column. */
  readonly order?: string;
  readonly isNumber?: boolean;
  readonly cellOf: (job: JobSummary, now: number) => Cell;
}

export interface Cell {
  readonly text: string;
  readonly title?: string | undefined;
  readonly isQuiet?: boolean;
}

type Part = "last" | "min" | "max";

const PARTS: readonly Part[] = ["last", "min", "max"];
/** More columns are no help. The API reads fifty values of each job. */
export const MAX_COLUMNS = 30;
const TOO_MANY_TASKS = "The jobs of this page have too many tasks for a list. Compare shows their metrics.";

function column(id: string, label: string, cellOf: JobColumn["cellOf"], more: Partial<JobColumn> = {}): JobColumn {
  return { id, label, kind: "job", name: "", cellOf, ...more };
}

const time = (ms: number | null, now: number): Cell => ({ text: shortTime(ms, now), title: exactTime(ms) });
const number = { isNumber: true };

/** The name of a job is the first column in any case. */
export const NAME = column("name", "Name", ({ name }) => ({ text: name }), { order: "jobName" });

/** Columns that all jobs have. */
export const JOB_COLUMNS: readonly JobColumn[] = [
  column("state", "State", ({ state }) => ({ text: state }), { order: "state" }),
  column("user", "User", ({ username }) => ({ text: username, title: username }), { order: "username" }),
  column("vc", "Virtual cluster", ({ virtualCluster }) => ({ text: virtualCluster, title: virtualCluster }), { order: "vc" }),
  column("priority", "Priority", ({ jobPriority }) => ({ text: jobPriority ?? "default", isQuiet: jobPriority === null }), {
    order: "jobPriority",
  }),
  column("tasks", "Tasks", ({ totalTaskNumber }) => ({ text: grouped(totalTaskNumber) }), { ...number, order: "totalTaskNumber" }),
  column("gpus", "GPUs", ({ totalGpuNumber }) => ({ text: grouped(totalGpuNumber), isQuiet: !totalGpuNumber }), {
    ...number,
    order: "totalGpuNumber",
  }),
  column("submitted", "Submitted", ({ submissionTime }, now) => time(submissionTime, now), { order: "submissionTime" }),
  column("started", "Started", ({ launchedTime }, now) => time(launchedTime, now)),
  column("ended", "Ended", ({ completedTime }, now) => time(completedTime, now), { order: "completionTime" }),
  column("duration", "Duration", (job, now) => ({ text: runTime(job.launchedTime, job.completedTime, now) }), { order: "duration" }),
  column(
    "exit",
    "Exit code",
    ({ appExitCode }) => ({ text: appExitCode === null ? "" : String(appExitCode), isQuiet: !appExitCode }),
    number,
  ),
  column("retries", "Retries", ({ retries }) => ({ text: String(retries), isQuiet: !retries }), { ...number, order: "retries" }),
];

export const DEFAULT_COLUMNS: readonly string[] = ["state", "user", "vc", "priority", "tasks", "gpus", "submitted", "duration", "retries"];

const BY_ID = new Map(JOB_COLUMNS.map((one) => [one.id, one]));

/** The column with this id; undefined for what is none, as another version of the portal may have kept it. */
export function columnOf(id: string): JobColumn | undefined {
  const known = BY_ID.get(id);
  if (known) return known;
  const [, parameter] = /^parameter\.(.+)$/s.exec(id) ?? [];
  if (parameter !== undefined) {
    return column(id, parameter, (job) => parameterCell(job.parameters?.[parameter]), { kind: "parameter", name: parameter, order: id });
  }
  const [, metric, part] = /^metric\.(.+)\.(last|min|max)$/s.exec(id) ?? [];
  if (metric === undefined) return undefined;
  const label = part === "last" ? metric : `${metric} ${part}`;
  const cellOf = ({ metrics }: JobSummary) =>
    metrics === null ? { text: "–", title: TOO_MANY_TASKS, isQuiet: true } : metricCell(metrics?.[metric], part as Part);
  return column(id, label, cellOf, { ...number, kind: "metric", name: metric, order: id });
}

/** The columns of these ids, each once, without what is none. */
export function columnsOf(ids: readonly string[]): readonly JobColumn[] {
  const found = [...new Set(ids)].map(columnOf).filter((one) => one !== undefined);
  return found.slice(0, MAX_COLUMNS);
}

/** Ids of the columns of a parameter or a metric. */
export const parameterId = (name: string) => `parameter.${name}`;
export const metricIds = (name: string) => PARTS.map((part) => `metric.${name}.${part}`);

/** What the list has to be asked for. */
export function askedValues(columns: readonly JobColumn[]): readonly (readonly [kind: "parameter" | "metric", name: string])[] {
  const asked = new Map<string, readonly ["parameter" | "metric", string]>();
  for (const { kind, name } of columns) if (kind !== "job") asked.set(`${kind} ${name}`, [kind, name]);
  return [...asked.values()];
}

function parameterCell(values: readonly string[] | undefined): Cell {
  if (!values) return { text: "" };
  const text = values.join(", ");
  return { text, title: text };
}

/** Of an array, which has no last value, the range of its runs. */
function metricCell(metric: ListedMetric | undefined, part: Part): Cell {
  if (!metric) return { text: "" };
  const value = metric[part];
  if (value !== null) return numberCell(value);
  if (part !== "last") return { text: "NaN" };
  const { min, max } = metric;
  if (min === null || max === null) return { text: "NaN" };
  if (min === max) return numberCell(min);
  return { text: `${short(min)} … ${short(max)}`, title: `The runs of this array are between ${min} and ${max}` };
}

function numberCell(value: number | string): Cell {
  return { text: short(value), title: String(value) };
}

function short(value: number | string): string {
  return typeof value === "number" ? significant(value) : value;
}
