// Tasks of a job, of which there may be thousands.
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { JobDetail, TaskDetail } from "../api_types.ts";
import { Empty, State } from "../components/notices.tsx";
import { lazy } from "../components/lazy.tsx";
import { useNow } from "../components/use_now.ts";
import { VirtualRows } from "../components/virtual_rows.tsx";
import { isArray, taskValuesOf, type TaskValues } from "../job_array.ts";
import { failedTasks } from "../editor/failed_tasks.ts";
import { isFunctionCall, type JobConfig } from "../editor/job_copy.ts";
import { counted, exactTime, grouped, isFinished, runTime, shortTime, stateName } from "../format.ts";
import { keepInEntry, keptInEntry } from "../history_entry.ts";
import { useRowSelection, type BoxHandlers } from "../job_list/selection.ts";
import { address, href, setQuery } from "../router.ts";
import { causeWithoutCode, failureGroups, groupTitle, MAX_FAILURE_GROUPS } from "../task_failures.ts";
import type { FailedTasks } from "./job_resubmit.tsx";

const ResubmitDialog = lazy("the dialog", async () => (await import("./job_resubmit.tsx")).ResubmitDialog);

export interface Task extends TaskDetail {
  readonly role: string;
}

export function tasksOf(job: JobDetail): readonly Task[] {
  return Object.entries(job.taskRoles).flatMap(([role, { taskStatuses }]) => taskStatuses.map((task) => ({ ...task, role })));
}

const HEADS: readonly [label: string, name: string][] = [
  ["Task", "c-task"],
  ["State", ""],
  ["IP address", "c-ip"],
  ["Node", "c-node"],
  ["Ports", "c-ports"],
  ["Exit code", "number"],
  ["Retries", "number"],
  ["Started", ""],
  ["Ended", "c-ended"],
  ["Duration", ""],
  ["Log", "c-log"],
];
const CAUSE: readonly [label: string, name: string] = ["Cause", "c-cause"];

/** The values of an array, after the first columns. */
const VALUES_AT = 2;
/** Name of the selection in the history. */
const SELECTED = "tasks";

interface Props {
  readonly job: JobDetail;
  /** The job's configuration as JSON, if it has come. */
  readonly config: string | undefined;
}

interface ResubmitProps extends Props {
  readonly onResubmit: (failed: FailedTasks) => void;
}

export function TaskTable({ job, config }: Props) {
  /** Those of the click: the dialog stays, and submits what it shows, while more tasks fail or all of them are retried. */
  const resubmitted = useSignal<FailedTasks | null>(null);
  return (
    <>
      <Tasks job={job} config={config} onResubmit={(failed) => void (resubmitted.value = failed)} />
      {resubmitted.value && (
        <ResubmitDialog
          framework={`${job.jobStatus.username}~${job.name}`}
          name={job.name}
          failed={resubmitted.value}
          onClose={() => void (resubmitted.value = null)}
        />
      )}
    </>
  );
}

function Tasks({ job, config, onResubmit }: ResubmitProps) {
  // Drawn every second while the job runs, with the same thousands of tasks.
  const tasks = useMemo(() => tasksOf(job), [job]);
  const values = useMemo(() => taskValuesOf(config ?? ""), [config]);
  const isOfArray = useMemo(() => isArray(config), [config]);
  const now = useNow(!isFinished(job.jobStatus.state));
  const wanted = address.value.query.get("tasks") ?? "";
  const counts = countStates(tasks);
  const shown = counts.has(wanted) ? tasks.filter((task) => task.taskState === wanted) : tasks;
  // Only tasks of an array are runs of their own.
  const areRuns = tasks.length > 1 && (values !== null || isOfArray);
  const { selected, select, clear } = useSelectedTasks();
  const compare = useRef<HTMLAnchorElement>(null);
  const keys = shown.map(({ taskIndex }) => String(taskIndex));
  const boxOf = useRowSelection(keys, { onSelect: select, onClear: clear, onEnter: () => compare.current?.focus() });
  if (!tasks.length) {
    return (
      <div class="card">
        <Empty title="No tasks yet">
          <p>Tasks appear when the job gets its resources.</p>
        </Empty>
      </div>
    );
  }
  // Of a single task it is above the tabs.
  const hasCauses = tasks.length > 1 && tasks.some(({ cause }) => cause);
  const heads = [
    ...HEADS.slice(0, VALUES_AT),
    ...(values?.names ?? []).map((name): [string, string] => [name, "c-value"]),
    ...(hasCauses ? [CAUSE] : []),
    ...HEADS.slice(VALUES_AT),
  ];
  const head = (
    <tr>
      {heads.map(([label, name], at) => (
        <th key={at} class={name}>
          {at === 0 && areRuns && (
            <input
              class="task-choice"
              type="checkbox"
              aria-label="Select all tasks that are shown"
              checked={keys.every((key) => selected.has(key))}
              indeterminate={keys.some((key) => selected.has(key)) && !keys.every((key) => selected.has(key))}
              onChange={(event) => select(keys, event.currentTarget.checked)}
            />
          )}
          {label}
        </th>
      ))}
    </tr>
  );
  return (
    <>
      {tasks.length > 1 && (
        <div class="task-tools">
          <StateFilter counts={counts} all={tasks.length} wanted={counts.has(wanted) ? wanted : ""} />
          {areRuns && (
            <div class="selected">
              {selected.size > 0 && (
                <>
                  <span role="status">{counted(selected.size, "task")} selected</span>
                  <button class="link" type="button" onClick={clear}>
                    Clear
                  </button>
                </>
              )}
              <ResubmitFailed job={job} tasks={tasks} config={config} onResubmit={onResubmit} />
              <a class="button" href={compareHref(job, tasks, selected)} ref={compare}>
                {selected.size ? "Compare selected" : "Compare runs"}
              </a>
            </div>
          )}
        </div>
      )}
      {tasks.length > 1 && <Causes tasks={tasks} values={values} />}
      <VirtualRows
        key={wanted}
        rows={shown}
        columns={heads.length}
        head={head}
        label="Tasks"
        kind={hasCauses ? "many-columns with-causes" : values ? "many-columns" : ""}
      >
        {(task) => {
          const key = String(task.taskIndex);
          const box = areRuns ? { isSelected: selected.has(key), handlers: boxOf(key) } : undefined;
          return <TaskRow key={`${task.role} ${task.taskIndex}`} task={task} now={now} values={values} hasCauses={hasCauses} box={box} />;
        }}
      </VirtualRows>
    </>
  );
}

/** Of an array; calls of a Python function are repeated where they were made. */
function ResubmitFailed({ job, tasks, config, onResubmit }: ResubmitProps & { tasks: readonly Task[] }) {
  const { state } = job.jobStatus;
  const indexes = useMemo(() => failedTasks(state, tasks), [state, tasks]);
  const isRepeatable = useMemo(() => isArray(config) && !isFunctionCall(JSON.parse(config ?? "{}") as JobConfig), [config]);
  if (!isRepeatable || !indexes.length || address.value.query.has("attempt")) return null;
  return (
    <button class="button" type="button" onClick={() => onResubmit({ indexes, count: tasks.length, state })}>
      Resubmit {indexes.length === 1 ? "failed task" : `${grouped(indexes.length)} failed tasks`}
    </button>
  );
}

/** Why tasks failed, in a few lines, each with the log of one of them. */
function Causes({ tasks, values }: { tasks: readonly Task[]; values: TaskValues | null }) {
  const groups = useMemo(() => failureGroups(tasks), [tasks]);
  const titles = useMemo(
    () => groups.slice(0, MAX_FAILURE_GROUPS).map((group) => groupTitle(group, values, tasks)),
    [groups, values, tasks],
  );
  if (!groups.length) return null;
  const attempt = address.value.query.get("attempt") ?? undefined;
  const rest = groups.length - MAX_FAILURE_GROUPS;
  return (
    <ul class="card task-causes" aria-label="Causes of failed tasks">
      {groups.slice(0, MAX_FAILURE_GROUPS).map((group, at) => {
        const { role, taskIndex } = group.tasks[0];
        return (
          <li key={`${role} ${taskIndex}`}>
            <span class="task-group">
              {titles[at]}
              {group.cause && ":"}
            </span>{" "}
            {group.cause && (
              <span class="task-cause mono" title={group.cause}>
                {group.cause}
              </span>
            )}
            <a href={href(address.value.path, { tab: "log", role, index: String(taskIndex), attempt })}>
              Log of {role}[{taskIndex}]
            </a>
          </li>
        );
      })}
      {rest > 0 && <li class="quiet">{counted(rest, "more cause")}: see the tasks</li>}
    </ul>
  );
}

/** Indexes of the selected tasks, as texts. Back restores them. */
function useSelectedTasks() {
  const selected = useSignal<ReadonlySet<string>>(new Set(selectedBefore()));
  useLayoutEffect(() => {
    if (selectedBefore().length || selected.value.size) keepInEntry(SELECTED, [...selected.value]);
  }, [selected.value]);
  const select = (keys: readonly string[], isOn: boolean) => {
    const all = new Set(selected.value);
    for (const key of keys) {
      if (isOn) all.add(key);
      else all.delete(key);
    }
    selected.value = all;
  };
  return { selected: selected.value, select, clear: () => void (selected.value = new Set()) };
}

function selectedBefore(): readonly string[] {
  const kept = keptInEntry(SELECTED);
  return Array.isArray(kept) ? kept.map(String) : [];
}

/** The comparison of the runs of an array, in which these are drawn; of all, if none is selected. */
function compareHref(job: JobDetail, tasks: readonly Task[], selected: ReadonlySet<string>): string {
  const chosen = tasks.filter(({ taskIndex }) => selected.has(String(taskIndex)));
  const show = chosen.map(({ taskIndex }) => `0.${taskIndex}`).join(",");
  return href("/compare", { jobs: `${job.jobStatus.username}~${job.name}`, show: show || undefined });
}

function countStates(tasks: readonly Task[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { taskState } of tasks) counts.set(taskState, (counts.get(taskState) ?? 0) + 1);
  return counts;
}

interface StateFilterProps {
  readonly counts: ReadonlyMap<string, number>;
  readonly all: number;
  readonly wanted: string;
}

/** Of thousands of tasks, the few that failed. */
function StateFilter({ counts, all, wanted }: StateFilterProps) {
  const choices: [string, string, number][] = [["", "All", all]];
  for (const [state, count] of counts) choices.push([state, stateName(state), count]);
  return (
    <div class="actions" role="group" aria-label="State of the tasks">
      {choices.map(([state, label, count]) => (
        <button
          key={state}
          class="button"
          type="button"
          aria-pressed={state === wanted}
          onClick={() => setQuery({ tasks: state || undefined })}
        >
          {label} {grouped(count)}
        </button>
      ))}
    </div>
  );
}

interface TaskRowProps {
  readonly task: Task;
  readonly now: number;
  readonly values: TaskValues | null;
  readonly hasCauses: boolean;
  /** Of a task that can be selected. */
  readonly box: { readonly isSelected: boolean; readonly handlers: BoxHandlers } | undefined;
}

function TaskRow({ task, now, values, hasCauses, box }: TaskRowProps) {
  const ports = Object.entries(task.containerPorts ?? {}).map(([name, port]) => `${name} ${port}`);
  const toLog = { tab: "log", role: task.role, index: String(task.taskIndex) };
  const attempt = address.value.query.get("attempt") ?? undefined;
  return (
    <tr>
      <td class="c-task" title={`${task.role}[${task.taskIndex}]`}>
        {box && (
          <input
            class="task-choice"
            type="checkbox"
            aria-label={`Select ${task.role}[${task.taskIndex}]`}
            checked={box.isSelected}
            {...box.handlers}
          />
        )}
        {task.role}[{task.taskIndex}]
      </td>
      <td>
        <State state={task.taskState} />
      </td>
      {values?.of(task.taskIndex).map((value, at) => (
        <td key={at} class="c-value mono" title={value}>
          {value}
        </td>
      ))}
      {hasCauses && (
        <td class="c-cause" title={task.cause}>
          {causeWithoutCode(task)}
        </td>
      )}
      <td class="c-ip mono">{task.containerIp}</td>
      <td class="c-node" title={[task.containerNodeName, task.containerIp, ...ports].filter(Boolean).join("\n")}>
        {task.containerNodeName}
      </td>
      <td class="c-ports mono" title={ports.join(", ")}>
        {ports.join(", ")}
      </td>
      <td class="number" title={task.containerExitSpec?.reason}>
        {task.originUserExitCode ?? task.containerExitCode}
      </td>
      <td class={`number${task.retries ? "" : " quiet"}`}>{task.retries}</td>
      <td title={exactTime(task.launchedTime)}>{shortTime(task.launchedTime, now)}</td>
      <td class="c-ended" title={exactTime(task.completedTime)}>
        {shortTime(task.completedTime, now)}
      </td>
      <td title={task.completedTime === null ? "" : `Ended ${exactTime(task.completedTime)}`}>
        {runTime(task.launchedTime, task.completedTime, now)}
      </td>
      <td class="c-log">
        <a href={href(address.value.path, { ...toLog, attempt })}>Log</a>
      </td>
    </tr>
  );
}
