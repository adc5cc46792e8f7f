// Tasks of a job, of which there may be thousands.
import type { JobDetail, TaskStatus } from "../api.ts";
import { Empty, State, useNow } from "../components/parts.tsx";
import { VirtualRows } from "../components/virtual_rows.tsx";
import { exactTime, isFinished, runTime } from "../format.ts";
import { address, href } from "../router.ts";

export interface Task extends TaskStatus {
  readonly role: string;
}

export function tasksOf(job: JobDetail): readonly Task[] {
  return Object.entries(job.taskRoles).flatMap(([role, { taskStatuses }]) =>
    taskStatuses.map((task) => ({ ...task, role })),
  );
}

const HEADS = ["Task", "State", "IP address", "Node", "Ports", "Exit code", "Retries", "Started", "Duration", "Log"];

export function TaskTable({ job }: { job: JobDetail }) {
  const tasks = tasksOf(job);
  const now = useNow(!isFinished(job.jobStatus.state));
  if (!tasks.length) {
    return (
      <div class="card">
        <Empty title="No tasks yet">
          <p>Tasks appear when the job gets its resources.</p>
        </Empty>
      </div>
    );
  }
  const head = (
    <tr>
      {HEADS.map((name) => (
        <th key={name}>{name}</th>
      ))}
    </tr>
  );
  return (
    <VirtualRows rows={tasks} columns={HEADS.length} head={head} label="Tasks">
      {(task) => <TaskRow key={`${task.role} ${task.taskIndex}`} task={task} now={now} />}
    </VirtualRows>
  );
}

function TaskRow({ task, now }: { task: Task; now: number }) {
  const ports = Object.entries(task.containerPorts ?? {}).map(([name, port]) => `${name} ${port}`);
  const toLog = { tab: "log", role: task.role, index: String(task.taskIndex) };
  const attempt = address.value.query.get("attempt") ?? undefined;
  return (
    <tr>
      <td>
        {task.role}[{task.taskIndex}]
      </td>
      <td>
        <State state={task.taskState} />
      </td>
      <td class="mono">{task.containerIp}</td>
      <td>{task.containerNodeName}</td>
      <td class="mono">{ports.join(", ")}</td>
      <td>{task.originUserExitCode ?? task.containerExitCode}</td>
      <td>{task.retries}</td>
      <td>{exactTime(task.launchedTime)}</td>
      <td>{runTime(task.launchedTime, task.completedTime, now)}</td>
      <td>
        <a href={href(address.value.path, { ...toLog, attempt })}>Log</a>
      </td>
    </tr>
  );
}
