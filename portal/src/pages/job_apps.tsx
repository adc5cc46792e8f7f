// Apps of a job: web servers of its tasks, which open in a tab of their own.
import { useSignal } from "@preact/signals";
import { ApiError, jobConfig, openApp } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { Empty, ErrorNotice, Loading } from "../components/notices.tsx";
import { isFinished } from "../format.ts";
import { usePolled } from "../live.ts";
import { session } from "../session.ts";
import { tasksOf, type Task } from "./job_tasks.tsx";

const REFRESH_MS = 60_000;
/** Of a job with thousands of tasks, the first ones. */
const MAX_PORTS = 24;
const TENSORBOARD_PORT = 6006;
/** In the configuration of interactive notebooks. */
export const NOTEBOOK_COMMAND = "pai-runtime notebook-server ";
const PLUGINS = "com.microsoft.pai.runtimeplugin";

interface App {
  readonly label: string;
  readonly role: string;
  readonly index: number;
  readonly port: number;
}

export function JobApps({ framework, job }: { framework: string; job: JobDetail }) {
  const config = usePolled(`apps ${framework}`, (signal) => jobConfig(framework, signal), REFRESH_MS);
  const { open, error, busy } = useOpening(framework);
  const running = tasksOf(job).filter((task) => task.taskState === "RUNNING");
  if (config.error) return <ErrorNotice error={config.error} />;
  if (config.value === undefined) return <Loading what="the apps" />;
  if (!running.length) {
    return (
      <div class="card">
        <Empty title="No running task">
          <p>
            {isFinished(job.jobStatus.state)
              ? "The job has finished. Its apps ended with it."
              : "TensorBoard, Jupyter and other web servers of the job open here as soon as its tasks run."}
          </p>
        </Empty>
      </div>
    );
  }
  const apps = appsOf(config.value, running);
  return (
    <div class="stack">
      {error.value && <ErrorNotice error={error.value} />}
      <div class="card padded">
        {apps.length > 0 && (
          <ul class="rows apps">
            {apps.map((app) => (
              <li key={keyOf(app)}>
                <span>
                  <strong>{app.label}</strong>
                  <span class="quiet">
                    {" "}
                    {app.role}[{app.index}], port {app.port}
                  </span>
                </span>
                <button
                  class="button"
                  type="button"
                  disabled={busy.value !== ""}
                  aria-label={`Open ${app.label} of ${app.role}[${app.index}]`}
                  onClick={() => void open(app)}
                >
                  {busy.value === keyOf(app) ? "Opening …" : "Open"}
                </button>
              </li>
            ))}
          </ul>
        )}
        <OtherPort running={running} isBusy={busy.value !== ""} onOpen={(app) => void open(app)} />
        <p class="quiet">An app opens in a new tab, at an address of its own that only your browser may use, and ends with its task.</p>
      </div>
    </div>
  );
}

/** Opens apps in tabs of their own. */
function useOpening(framework: string) {
  const error = useSignal<ApiError | null>(null);
  const busy = useSignal("");
  const open = async (app: App) => {
    busy.value = keyOf(app);
    error.value = null;
    try {
      // A page of the job must not reach this one.
      window.open(await openApp(framework, app), "_blank", "noopener");
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      error.value = problem;
    } finally {
      busy.value = "";
    }
  };
  return { open, error, busy };
}

/** Of a running interactive notebook (`pai notebook-job --interactive`), the button that opens it. */
export function NotebookLink({ framework, job }: { framework: string; job: JobDetail }) {
  const { open, error, busy } = useOpening(framework);
  const task = tasksOf(job).find((task) => task.taskState === "RUNNING" && task.containerPorts?.["jupyter"]);
  const mayOpen = session.value?.user === job.jobStatus.username || session.value?.admin === true;
  if (!task || !mayOpen) return null;
  const app = { label: "Jupyter", role: task.role, index: task.taskIndex, port: Number(task.containerPorts?.["jupyter"]) };
  return (
    <>
      <p class="notice">
        The job runs a notebook.{" "}
        <button class="link" type="button" disabled={busy.value !== ""} onClick={() => void open(app)}>
          {busy.value ? "Opening …" : "Open it in Jupyter"}
        </button>
      </p>
      {error.value && <ErrorNotice error={error.value} />}
    </>
  );
}

interface OtherPortProps {
  readonly running: readonly Task[];
  readonly isBusy: boolean;
  readonly onOpen: (app: App) => void;
}

function OtherPort({ running, isBusy, onOpen }: OtherPortProps) {
  const chosen = useSignal(0);
  const port = useSignal("");
  const number = Number(port.value);
  const isPort = Number.isInteger(number) && number > 0 && number < 65_536;
  const task = running[chosen.value] ?? running[0];
  const submit = (event: Event) => {
    event.preventDefault();
    if (task && isPort) onOpen({ label: "", role: task.role, index: task.taskIndex, port: number });
  };
  return (
    <form class="app-port" onSubmit={submit}>
      <label>
        <span>Task</span>
        <select value={chosen.value} onChange={(event) => (chosen.value = Number(event.currentTarget.value))}>
          {running.map((one, at) => (
            <option key={`${one.role} ${one.taskIndex}`} value={at}>
              {one.role}[{one.taskIndex}]
            </option>
          ))}
        </select>
      </label>
      <label>
        <span>Port on which it listens</span>
        <input
          name="port"
          inputMode="numeric"
          placeholder="8888"
          value={port.value}
          onInput={(event) => (port.value = event.currentTarget.value.trim())}
        />
      </label>
      <button class="button" type="submit" disabled={isBusy || !isPort}>
        Open the port
      </button>
    </form>
  );
}

const keyOf = (app: App) => `${app.role} ${app.index} ${app.port}`;

/** What the configuration and the named ports tell. */
function appsOf(config: string, running: readonly Task[]): readonly App[] {
  const apps = new Map<string, App>();
  const add = (app: App) => {
    if (!apps.has(keyOf(app)) && apps.size < MAX_PORTS) apps.set(keyOf(app), app);
  };
  const board = tensorBoardOf(config);
  if (board && running.some((task) => task.role === board.role && task.taskIndex === 0)) add(board);
  // Every task has a port `http`, which most programs leave alone: it comes last.
  for (const isLast of [false, true]) {
    for (const task of running) {
      for (const [name, ports] of Object.entries(task.containerPorts ?? {})) {
        if (name === "ssh" || (name === "http") !== isLast) continue;
        // A name may stand for several ports.
        for (const port of ports.split(",")) {
          add({ label: labelOf(name), role: task.role, index: task.taskIndex, port: Number(port) });
        }
      }
    }
  }
  return [...apps.values()];
}

function labelOf(name: string): string {
  const known: Readonly<Record<string, string>> = { tensorboard: "TensorBoard", jupyter: "Jupyter" };
  return known[name.toLowerCase()] ?? name;
}

/** The plugin starts TensorBoard in the first task of the first task role. */
function tensorBoardOf(config: string): App | null {
  try {
    const job = JSON.parse(config) as {
      taskRoles?: Record<string, unknown>;
      extras?: Record<string, { plugin?: string; parameters?: { port?: unknown } }[] | undefined>;
    };
    const plugin = job.extras?.[PLUGINS]?.find((one) => one.plugin === "tensorboard");
    const [role] = Object.keys(job.taskRoles ?? {});
    if (!plugin || role === undefined) return null;
    return { label: "TensorBoard", role, index: 0, port: Number(plugin.parameters?.port) || TENSORBOARD_PORT };
  } catch {
    return null; // a configuration of another shape has no such plugin
  }
}
