import { signal } from "@preact/signals";
import { render } from "preact";
import type { JobDetail, TaskDetail } from "../../src/api_types.ts";
import type { JobConfig } from "../../src/editor/job_copy.ts";
import { TaskTable } from "../../src/pages/job_tasks.tsx";
import { equal, test, until } from "./runner.ts";

const CONFIG = JSON.stringify({
  taskRoles: { main: { instances: 3, resourcePerInstance: { gpu: 0, cpu: 1, memoryMB: 1 } } },
  extras: { gangAllocation: false, openpaisdk: { array: { lr: ["1", "2", "3"] } } },
});

function task(taskIndex: number, taskState: TaskDetail["taskState"]): TaskDetail {
  const ended = taskState === "FAILED" ? { containerExitCode: 1, cause: `Exit code 1: no data ${taskIndex}` } : {};
  return { taskIndex, taskState, launchedTime: Date.now(), completedTime: null, containerPorts: {}, ...ended } as TaskDetail;
}

function jobOf(states: readonly TaskDetail["taskState"][]): JobDetail {
  const taskStatuses = states.map((state, index) => task(index, state));
  const jobStatus = { state: "RUNNING", username: "alice", retries: 0 };
  return { name: "sweep", jobStatus, taskRoles: { main: { taskRoleStatus: { name: "main" }, taskStatuses } } } as unknown as JobDetail;
}

/** Draws the tasks of a job in a new page; another job replaces it. */
function shownTasks(first: JobDetail, config = CONFIG): (job: JobDetail) => void {
  const box = document.createElement("div");
  document.body.replaceChildren(box);
  const job = signal(first);
  const Shown = () => <TaskTable job={job.value} config={config} />;
  render(<Shown />, box);
  return (next) => void (job.value = next);
}

const text = () => document.body.innerText.replace(/\s+/g, " ");
const field = () => document.querySelector<HTMLInputElement>("dialog [name=name]");
const durations = () => [...document.querySelectorAll(".virtual tbody tr")].map((row) => row.textContent).join();

test("a table that is drawn every second reads job and configuration once", async () => {
  const job = jobOf(["RUNNING", "FAILED", "FAILED"]);
  let reads = 0;
  for (const one of job.taskRoles["main"]?.taskStatuses ?? []) {
    const { taskState } = one;
    Object.defineProperty(one, "taskState", {
      enumerable: true,
      get: () => {
        reads += 1;
        return taskState;
      },
    });
  }
  const parse = JSON.parse;
  try {
    shownTasks(job);
    await until(() => text().includes("2 tasks exited with 1: no data 1"));
    const [readsBefore, shownBefore] = [reads, durations()];
    JSON.parse = (...args) => {
      reads += 1;
      return parse(...args) as unknown;
    };
    await until(() => durations() !== shownBefore);
    equal(reads, readsBefore);
  } finally {
    JSON.parse = parse;
  }
});

test("causes and the button change with the job", async () => {
  const change = shownTasks(jobOf(["RUNNING", "RUNNING", "RUNNING"]));
  await until(() => text().includes("main[2]"));
  equal([text().includes("exited with"), text().includes("Resubmit")], [false, false]);
  change(jobOf(["FAILED", "RUNNING", "RUNNING"]));
  await until(() => text().includes("1 task exited with 1 (lr=1): no data 0") && text().includes("Resubmit failed task"));
});

test("calls of a Python function are not resubmitted here", async () => {
  const job = jobOf(["FAILED", "RUNNING"]);
  shownTasks(job, CONFIG.replace('"instances"', '"commands":["python -u ./pairuntime.pyz call f"],"instances"'));
  await until(() => text().includes("1 task exited with 1"));
  equal([text().includes("Compare runs"), text().includes("Resubmit")], [true, false]);
});

test("tasks of the click are resubmitted, whatever the job does meanwhile", async () => {
  const { fetch } = globalThis;
  const submitted: string[] = [];
  globalThis.fetch = (_, init) => {
    if (init?.method && init.method !== "GET") submitted.push(String(init.body));
    return Promise.resolve(new Response(init?.method && init.method !== "GET" ? "{}" : CONFIG));
  };
  try {
    const change = shownTasks(jobOf(["RUNNING", "FAILED", "RUNNING"]));
    await until(() => text().includes("Resubmit failed task"));
    document.querySelector<HTMLButtonElement>(".task-tools .selected button")?.click();
    await until(() => field() !== null);
    (field() as HTMLInputElement).value = "again";
    change(jobOf(["FAILED", "FAILED", "RUNNING"]));
    await until(() => text().includes("Resubmit 2 failed tasks"));
    for (const states of [["WAITING", "WAITING", "WAITING"], []] as const) {
      change(jobOf(states));
      await until(() => !document.querySelector(".task-tools")?.textContent?.includes("Resubmit"));
      equal(field()?.value, "again");
    }
    document.querySelector<HTMLButtonElement>("dialog button.primary")?.click();
    await until(() => submitted.length > 0);
    const { taskRoles, extras } = JSON.parse(submitted[0] ?? "") as JobConfig;
    equal(
      [taskRoles, extras],
      [
        { main: { instances: 1, resourcePerInstance: { gpu: 0, cpu: 1, memoryMB: 1 } } },
        { gangAllocation: false, openpaisdk: { arrayRows: { PAI_TASK_INDEX: ["1"], lr: ["2"] } } },
      ],
    );
  } finally {
    globalThis.fetch = fetch;
  }
});
