// Tasks of an array that did not succeed, and the job that runs only them again: what `pai resubmit --failed` does.
import type { TaskDetail } from "../api_types.ts";
import { isFinished } from "../format.ts";
import { TASK_INDEX, taskValues, type TaskValues } from "../job_array.ts";
import { rowsCommand, type ValueColumn } from "./array_rows.ts";
import type { JobConfig } from "./job_copy.ts";
import { quote } from "./shell_words.ts";

type State = TaskDetail["taskState"];
type Values = Readonly<Record<string, unknown>>;

/** Of commands that `pai sub` adds to a job. */
const DEPLOYMENT = "sdk_deployment";

/** Indexes of the tasks that did not succeed; of a job that has not finished those that have failed until now. */
export function failedTasks(
  jobState: State,
  tasks: readonly { readonly taskIndex: number; readonly taskState: State }[],
): readonly number[] {
  const hasFailed = isFinished(jobState)
    ? (state: State) => state !== "SUCCEEDED"
    : (state: State) => state === "FAILED" || state === "STOPPED";
  return tasks
    .filter(({ taskState }) => hasFailed(taskState))
    .map(({ taskIndex }) => taskIndex)
    .sort((one, other) => one - other);
}

/** The job as one that runs only these of its tasks, with the values and the indexes that they had. */
export function repeatTasks(config: JobConfig, indexes: readonly number[]): Record<string, unknown> {
  const values = taskValues(config);
  const rows = indexes.map((index) => values?.of(index) ?? []);
  const names = values?.names ?? [];
  const firstAt = names.indexOf(TASK_INDEX);
  // Of a job that repeats tasks already, the first indexes count.
  const first = indexes.map((index, row) => rows[row]?.[firstAt] || String(index));
  const columns: ValueColumn[] = [{ name: TASK_INDEX, values: first }];
  for (const [at, name] of names.entries()) {
    if (at !== firstAt) columns.push({ name, values: rows.map((row) => row[at] ?? "") });
  }
  const extras = record(config["extras"]);
  const { array: combinations, ...additions } = record(extras["openpaisdk"]);
  const replaced = combinations === undefined ? rowsOf(values, record(additions["arrayRows"])) : combinationCommands(record(combinations));
  const change = (commands: readonly string[]) => {
    // Commands that the job does not have as they were made compute their values from the first index.
    const old = replaced.every((command) => commands.includes(command)) ? replaced : [];
    const at = old.length ? commands.indexOf(old[0] ?? "") : 0;
    const kept = commands.filter((command) => !old.includes(command));
    return [...kept.slice(0, at), rowsCommand(columns), ...kept.slice(at)];
  };
  const roles = Object.entries(record(config["taskRoles"])).map(([name, role]) => [name, { ...record(role), instances: indexes.length }]);
  const arrayRows = Object.fromEntries(columns.map((column) => [column.name, column.values]));
  return {
    ...withPreCommands(config, change),
    taskRoles: Object.fromEntries(roles) as unknown,
    extras: { ...extras, openpaisdk: { ...additions, arrayRows } },
  };
}

function rowsOf(values: TaskValues | null, rows: Values): readonly string[] {
  return values ? [rowsCommand(values.names.map((name) => ({ name, values: (rows[name] as unknown[]).map(String) })))] : [];
}

/** One command for each variable; the last variable changes fastest. */
function combinationCommands(lists: Values): readonly string[] {
  const commands: string[] = [];
  let stride = 1;
  for (const [name, list] of Object.entries(lists).reverse()) {
    const values = (list as unknown[]).map(String);
    const cases = values.map((value, at) => `\n${at}) export ${name}=${quote(value)} ;;`).join("");
    commands.unshift(`case $((PAI_TASK_INDEX / ${stride} % ${values.length})) in${cases}\nesac`);
    stride *= values.length;
  }
  return commands;
}

/** The job with other commands before those of its roles; it uses a deployment then, if it used none. */
function withPreCommands(config: JobConfig, change: (commands: readonly string[]) => readonly string[]): Record<string, unknown> {
  const defaults = record(config["defaults"]);
  const name = typeof defaults["deployment"] === "string" ? defaults["deployment"] : DEPLOYMENT;
  const deployments = Array.isArray(config["deployments"]) ? config["deployments"].map(record) : [];
  const used = deployments.find((one) => one["name"] === name) ?? { name };
  const ofRoles = record(used["taskRoles"]);
  const changed = Object.keys(record(config["taskRoles"])).map((role) => {
    const commands = record(ofRoles[role])["preCommands"];
    const before = Array.isArray(commands) ? commands.map(String) : [];
    return [role, { ...record(ofRoles[role]), preCommands: change(before) }] as const;
  });
  const deployment = { ...used, taskRoles: { ...ofRoles, ...Object.fromEntries(changed) } };
  const others = deployments.includes(used) ? deployments.map((one) => (one === used ? deployment : one)) : [...deployments, deployment];
  return { ...config, deployments: others, defaults: { ...defaults, deployment: name } };
}

function record(value: unknown): Values {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Values) : {};
}
