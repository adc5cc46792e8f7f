// Failed tasks of a job by their cause, as `pai job-status` has them: of thousands a few lines.
import type { TaskDetail } from "./api_types.ts";
import { counted } from "./format.ts";
import type { TaskValues } from "./job_array.ts";

type FailedTask = Pick<TaskDetail, "taskIndex" | "taskState" | "containerExitCode" | "originUserExitCode" | "cause"> & {
  readonly role: string;
};

export interface FailureGroup<T extends FailedTask> {
  readonly exitCode: number | null;
  /** Of the first of its tasks. */
  readonly cause: string;
  readonly tasks: readonly [T, ...T[]];
}

export const MAX_FAILURE_GROUPS = 5;
const MAX_CAUSE_CHARS = 300;
const MAX_VALUE_CHARS = 40;
/** A step, a size or an address differs with every task. */
const NUMBERS = /0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?/gi;

/** The failed tasks by cause, the largest group first. */
export function failureGroups<T extends FailedTask>(tasks: readonly T[]): readonly FailureGroup<T>[] {
  const groups = new Map<string, { exitCode: number | null; cause: string; tasks: [T, ...T[]] }>();
  for (const task of tasks) {
    if (task.taskState !== "FAILED") continue;
    const exitCode = exitCodeOf(task);
    const cause = withoutCode(firstChars(task.cause ?? "", MAX_CAUSE_CHARS), exitCode);
    const key = `${exitCode} ${cause.replace(NUMBERS, "0")}`;
    const group = groups.get(key);
    if (group) group.tasks.push(task);
    else groups.set(key, { exitCode, cause, tasks: [task] });
  }
  return [...groups.values()].sort((one, other) => other.tasks.length - one.tasks.length);
}

const exitCodeOf = (task: FailedTask): number | null => task.originUserExitCode ?? task.containerExitCode;

/** Beside the exit code. */
export function causeWithoutCode(task: FailedTask): string {
  return withoutCode(task.cause ?? "", exitCodeOf(task));
}

function withoutCode(cause: string, exitCode: number | null): string {
  const start = `Exit code ${exitCode}`;
  return (cause.startsWith(start) ? cause.slice(start.length) : cause).replace(/^:/, "").trim();
}

/** "3 tasks exited with 1 (lr=5)": with the values that all of them have, and not all tasks of the job. */
export function groupTitle({ exitCode, tasks }: FailureGroup<FailedTask>, values: TaskValues | null, all: readonly FailedTask[]): string {
  const title = `${counted(tasks.length, "task")} ${exitCode === null ? "failed" : `exited with ${exitCode}`}`;
  const common = values
    ? commonValues(tasks, values, all)
        .map(([name, value]) => `${name}=${shortened(value)}`)
        .join(" ")
    : "";
  return common ? `${title} (${common})` : title;
}

/** Names and values that all these tasks have, and not all tasks of the job. */
export function commonValues(
  tasks: readonly FailedTask[],
  values: TaskValues,
  all: readonly FailedTask[],
): readonly (readonly [string, string])[] {
  const first = values.of(tasks[0]?.taskIndex ?? 0);
  const isShared = (some: readonly FailedTask[], at: number) => some.every(({ taskIndex }) => values.of(taskIndex)[at] === first[at]);
  return values.names.flatMap((name, at) => (isShared(tasks, at) && !isShared(all, at) ? [[name, first[at] ?? ""] as const] : []));
}

function shortened(value: string): string {
  const start = firstChars(value, MAX_VALUE_CHARS);
  return start === value ? value : `${start}...`;
}

/** At most this many characters, also of those that are two units of a text. */
function firstChars(text: string, count: number): string {
  if (text.length <= count) return text;
  const start = text.slice(0, 2 * count);
  return [...start].slice(0, count).join("");
}
