// The table of runs: its columns, their order, the filter of rows, and the same as CSV.
import { stateName } from "../format.ts";
import { metricNames, parameterNames, type Run } from "./runs.ts";

export type Value = number | string | null;

export interface RunColumn {
  /** In the address: of a parameter `parameter.lr`, of a metric `metric.loss.min`. */
  readonly id: string;
  readonly label: string;
  readonly kind: "job" | "task" | "state" | "cause" | "duration" | "parameter" | "metric";
  readonly name: string;
  readonly valueOf: (run: Run, now: number) => Value;
}

export interface Order {
  readonly column: string;
  readonly isDescending: boolean;
}

/** Metrics that have columns in the table before the user chooses. */
export const MAX_TABLE_METRICS = 12;
const PARTS = ["last", "min", "max"] as const;
const NUMBER = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;

export function columnsOf(runs: readonly Run[], parameters: readonly string[], metrics: readonly string[]): readonly RunColumn[] {
  const columns: RunColumn[] = [];
  if (new Set(runs.map(({ framework }) => framework)).size > 1 || runs.some(({ task }) => !task)) {
    columns.push({ id: "job", label: "Job", kind: "job", name: "", valueOf: ({ job }) => job });
  }
  if (runs.some(({ task }) => task)) {
    columns.push({ id: "task", label: "Task", kind: "task", name: "", valueOf: ({ index }) => index });
  }
  for (const name of parameters) {
    columns.push({ id: `parameter.${name}`, label: name, kind: "parameter", name, valueOf: (run) => plain(run.parameters.get(name)) });
  }
  columns.push({ id: "state", label: "State", kind: "state", name: "", valueOf: ({ state }) => stateName(state) });
  if (runs.some(({ cause }) => cause)) {
    columns.push({ id: "cause", label: "Cause", kind: "cause", name: "", valueOf: ({ cause }) => cause || null });
  }
  columns.push({ id: "duration", label: "Duration", kind: "duration", name: "", valueOf: durationOf });
  for (const name of metrics) {
    for (const part of PARTS) {
      columns.push({
        id: `metric.${name}.${part}`,
        label: part === "last" ? name : `${name} ${part}`,
        kind: "metric",
        name,
        valueOf: (run) => run.metrics.get(name)?.[part] ?? null,
      });
    }
  }
  return columns;
}

/** Columns that the address names; those that name a run are always there. Without a choice the first metrics are. */
export function chosenColumns(all: readonly RunColumn[], text: string | null): readonly RunColumn[] {
  if (text === null) {
    const metrics = new Set([...new Set(all.filter(({ kind }) => kind === "metric").map(({ name }) => name))].slice(0, MAX_TABLE_METRICS));
    return all.filter(({ kind, name }) => kind !== "metric" || metrics.has(name));
  }
  const ids = new Set(text.split(",").map(decoded));
  return all.filter(({ id, kind }) => kind === "job" || kind === "task" || ids.has(id));
}

/** As in the address; a name may have a comma. */
export function formatColumns(columns: readonly RunColumn[]): string {
  return columns.map(({ id }) => id.replace(/[%,]/g, encodeURIComponent)).join(",");
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Milliseconds; null before the start. */
export function durationOf({ launchedTime, completedTime }: Run, now: number): number | null {
  return launchedTime === null ? null : Math.max(0, (completedTime ?? now) - launchedTime);
}

/** A number for a text that is one. */
export function plain(text: string | undefined): Value {
  if (text === undefined) return null;
  return NUMBER.test(text) ? Number(text) : text;
}

/** `metric.loss,ASC`; a name may have a comma. */
export function parseOrder(text: string): Order | undefined {
  const [, column, direction] = /^(.+),(ASC|DESC)$/.exec(text) ?? [];
  return column === undefined ? undefined : { column, isDescending: direction === "DESC" };
}

export function formatOrder({ column, isDescending }: Order): string {
  return `${column},${isDescending ? "DESC" : "ASC"}`;
}

/** Numbers, then texts, then what is missing or NaN, in both directions; of equal ones the order stays. */
export function sorted(runs: readonly Run[], column: RunColumn | undefined, isDescending: boolean, now: number): readonly Run[] {
  if (!column) return runs;
  const sign = isDescending ? -1 : 1;
  const keyed = runs.map((run) => ({ run, value: column.valueOf(run, now) }));
  keyed.sort(({ value: one }, { value: other }) => {
    const [kind, otherKind] = [kindOf(one), kindOf(other)];
    if (kind !== otherKind) return kind - otherKind;
    if (kind === MISSING || one === other) return 0;
    return (one ?? 0) < (other ?? 0) ? -sign : sign;
  });
  return keyed.map(({ run }) => run);
}

const MISSING = 2;

function kindOf(value: Value): number {
  if (value === null || value === "" || Number.isNaN(value)) return MISSING;
  return typeof value === "number" ? 0 : 1;
}

/** Rows that have each of the words, in any case: in job, task, state, cause, or a parameter such as `lr=0.1`. */
export function filtered(runs: readonly Run[], text: string): readonly Run[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return runs;
  return runs.filter(({ job, user, task, state, cause, parameters }) => {
    const texts = [job, user, task, stateName(state), cause, ...[...parameters].map(([name, value]) => `${name}=${value}`)];
    const all = texts.join("\n").toLowerCase();
    return words.every((word) => all.includes(word));
  });
}

/** All parameters and metrics of the runs, with all digits: the columns of `pai runs -o csv`. */
export function csvOf(rows: readonly Run[], all: readonly Run[], now: number): string {
  const [parameters, metrics] = [parameterNames(all), metricNames(all)];
  const fields = ["job", "user", "task", "index", "state", "duration", "exit", "cause"];
  const isTaken = (name: string) => fields.includes(name) || metrics.includes(name);
  const head = [
    ...fields.slice(0, 4),
    ...parameters.map((name) => (isTaken(name) ? `parameters.${name}` : name)),
    ...fields.slice(4),
    ...metrics.flatMap((name) => [fields.includes(name) ? `${name}.last` : name, `${name}.min`, `${name}.max`]),
  ];
  const lines = rows.map((run) => {
    const duration = durationOf(run, now);
    return [
      run.job,
      run.user,
      run.task,
      run.index,
      ...parameters.map((name) => run.parameters.get(name)),
      run.state,
      duration === null ? null : duration / 1000,
      run.exitCode,
      run.cause,
      ...metrics.flatMap((name) => PARTS.map((part) => run.metrics.get(name)?.[part])),
    ];
  });
  return [head, ...lines].map((line) => line.map(cellOf).join(",") + "\n").join("");
}

/** A cell of a CSV file. */
export function cellOf(value: Value | undefined): string {
  const text = String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
