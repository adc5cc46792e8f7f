// Debug hold: a failed task that waits, so that its user can look into it (`--debug-hold` of `pai sub`).
import { useSignal } from "@preact/signals";
import { ApiError, logAddress } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { toast } from "../components/toasts.tsx";
import { exactTime } from "../format.ts";
import { usePolled } from "../live.ts";
import { setQuery } from "../router.ts";
import { session } from "../session.ts";
import { runInTask, type TaskName } from "../terminal/exec_session.ts";
import { tasksOf, type Task } from "./job_tasks.tsx";

/** In the configuration of jobs whose failed tasks are held, and in the line that such a task writes. */
export const HOLD_OPTION = "--debug-hold";
const HELD = /The command failed \((\d+)\); the task is held for (\d+) seconds? \(--debug-hold\), since (\S+)\.\n/g;
/** The file ends the hold: the task then ends with the exit code of its command. */
const RELEASE = ["sh", "-c", ': > "${PAI_WORK_DIR:-.}/.pai/release"'];
const REFRESH_MS = 5000;
/** The line is at the end of the log: what follows it are lines of processes in the background. */
const LOG_END_BYTES = 16 << 10;
/** Of a job with thousands of tasks, the first ones. */
const MAX_TASKS = 20;

interface Held extends TaskName {
  readonly exitCode: string;
  readonly endMs: number;
}

const keyOf = ({ role, index }: TaskName) => `${role}[${index}]`;

export function DebugHold({ framework, job }: { framework: string; job: JobDetail }) {
  const running = tasksOf(job)
    .filter((task) => task.taskState === "RUNNING")
    .slice(0, MAX_TASKS);
  const key = running.map((task) => `${task.role} ${task.taskIndex} ${task.attemptId}`).join(",");
  const load = async (signal: AbortSignal) => {
    const candidates = await Promise.all(running.map((task) => heldOf(framework, job, task, signal)));
    return candidates.filter((task) => task !== null);
  };
  const held = usePolled(key ? `hold ${framework} ${key}` : null, load, REFRESH_MS);
  const released = useSignal<readonly string[]>([]);
  const mayChange = session.value?.user === job.jobStatus.username || session.value?.admin === true;
  const shown = key ? (held.value ?? []).filter((task) => !released.value.includes(keyOf(task))) : [];
  if (!shown.length) return null;
  const release = async (task: TaskName) => {
    try {
      await runInTask(framework, task, RELEASE);
      released.value = [...released.value, keyOf(task)];
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      toast(`${keyOf(task)} is still held: ${error.message}`);
    }
  };
  return (
    <div class="notice wait">
      {shown.map((task) => (
        <p key={keyOf(task)}>
          <strong>
            Task {keyOf(task)} failed with exit code {task.exitCode} and is held for inspection until {exactTime(task.endMs)}.
          </strong>{" "}
          {mayChange && (
            <>
              <button class="link" type="button" onClick={() => setQuery({ tab: "terminal", role: task.role, index: String(task.index) })}>
                Open a terminal
              </button>{" "}
              in it, or{" "}
              <button class="link" type="button" onClick={() => void release(task)}>
                end the hold
              </button>
              : the task then ends with this exit code.
            </>
          )}
        </p>
      ))}
    </div>
  );
}

/** The hold of a task, as the end of its log tells. */
async function heldOf(framework: string, job: JobDetail, task: Task, signal: AbortSignal): Promise<Held | null> {
  const place = { role: task.role, index: task.taskIndex, attempt: job.jobStatus.attemptId, taskAttempt: task.attemptId };
  const headers = { Range: `bytes=-${LOG_END_BYTES}` };
  const response = await logAddress(framework, place, "stderr")
    .then((from) => fetch(from, { headers, signal }))
    // Whether the cluster answers is shown by the requests of the page itself.
    .catch(() => null);
  if (!response?.ok) return null;
  const [, exitCode = "", seconds = "", since = ""] = [...(await response.text()).matchAll(HELD)].at(-1) ?? [];
  const endMs = Date.parse(since) + Number(seconds) * 1000;
  return exitCode && !Number.isNaN(endMs) ? { role: task.role, index: task.taskIndex, exitCode, endMs } : null;
}
