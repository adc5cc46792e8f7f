// Terminal of a job: the user's shell in one of its running tasks.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, request } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { Empty, ErrorNotice } from "../components/notices.tsx";
import { isFinished } from "../format.ts";
import { ExecSession, sessionPath, type SessionEnd, type TaskName } from "../terminal/exec_session.ts";
import { address } from "../router.ts";
import { session as portalSession } from "../session.ts";
import type { Screen } from "../terminal/screen.ts";
import { theme } from "../theme.ts";
import { tasksOf } from "./job_tasks.tsx";

const nameOf = ({ role, index }: TaskName) => `${role}[${index}]`;

interface Props {
  readonly framework: string;
  readonly job: JobDetail;
  /** Whether its tab is chosen; a hidden terminal goes on. */
  readonly isShown: boolean;
}

export function JobTerminal({ framework, job, isShown }: Props) {
  const running = tasksOf(job)
    .filter((task) => task.taskState === "RUNNING")
    .map((task) => ({ role: task.role, index: task.taskIndex }));
  const chosen = useSignal("");
  // The choice stays when its task ends: the terminal says so itself.
  const isKept = useSignal<TaskName | null>(null);
  const { query } = address.value;
  const named = nameOf({ role: query.get("role") ?? "", index: Number(query.get("index")) });
  const runs = (name: string) => running.find((candidate) => nameOf(candidate) === name);
  const task = runs(chosen.value) ?? isKept.value ?? runs(named) ?? running[0];
  const taskName = task && nameOf(task);
  useEffect(() => {
    if (task) isKept.value = task;
    // oxlint-disable-next-line react/exhaustive-deps -- a task is a new object in each render
  }, [taskName, isKept]);
  if (!task) {
    return (
      <div class="card">
        <Empty title="No running task">
          <p>
            {isFinished(job.jobStatus.state)
              ? "The job has finished. A terminal needs a task that runs."
              : "A terminal can be opened as soon as a task of the job runs."}
          </p>
        </Empty>
      </div>
    );
  }
  const choices = running.some((candidate) => nameOf(candidate) === nameOf(task)) ? running : [task, ...running];
  return (
    <div class="card terminal-card">
      <TerminalView key={nameOf(task)} framework={framework} task={task} isShown={isShown}>
        <label>
          <span>Task</span>
          <select value={nameOf(task)} onChange={(event) => choose(event.currentTarget.value)}>
            {choices.map((candidate) => (
              <option key={nameOf(candidate)} value={nameOf(candidate)}>
                {nameOf(candidate)}
              </option>
            ))}
          </select>
        </label>
      </TerminalView>
    </div>
  );

  function choose(name: string): void {
    isKept.value = null;
    chosen.value = name;
  }
}

interface ViewProps {
  readonly framework: string;
  readonly task: TaskName;
  readonly isShown: boolean;
  readonly children: ComponentChildren;
}

type State = "connecting" | "open" | "silent" | SessionEnd;

function TerminalView({ framework, task, isShown, children }: ViewProps) {
  const host = useRef<HTMLDivElement>(null);
  const tools = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen | null>(null);
  const session = useRef<ExecSession | null>(null);
  const state = useSignal<State>("connecting");
  const error = useSignal<ApiError | null>(null);

  const connect = () => {
    const shown = screen.current;
    if (!shown) return;
    session.current?.close();
    state.value = "connecting";
    error.value = null;
    const path = sessionPath(framework, task);
    session.current = new ExecSession(path, shown.size(), {
      onOpen: () => {
        state.value = "open";
        takeFocus(shown);
      },
      onOutput: shown.write,
      onSilence: (isSilent) => (state.value = isSilent ? "silent" : "open"),
      onEnd: (end) => {
        state.value = end;
        if (end.kind === "refused") void explain(path);
      },
    });
  };
  /** Say why there is no session, or open one if the user had to sign in again. */
  const explain = async (path: string) => {
    const used = portalSession.value;
    const reason = await refusal(path);
    const now = portalSession.value;
    if (now === used) error.value = reason;
    else if (now?.user === used?.user) connect();
  };
  const again = () => {
    screen.current?.clear();
    connect();
  };
  useEffect(() => {
    let isGone = false;
    void import("../terminal/screen.ts").then(
      ({ createScreen }) => {
        if (isGone || !host.current) return;
        screen.current = createScreen(host.current, {
          onInput: (text) => session.current?.type(text),
          onResize: (size) => session.current?.resize(size),
          onLeave: () => tools.current?.querySelector<HTMLElement>("select, button")?.focus(),
        });
        connect();
      },
      () => (error.value = new ApiError("The terminal cannot be loaded.", 0, "", "Reload the page.")),
    );
    return () => {
      isGone = true;
      session.current?.close();
      screen.current?.destroy();
      // Nothing connects any more: the shell would be invisible.
      screen.current = null;
    };
    // oxlint-disable-next-line react/exhaustive-deps -- a view has one screen; another task is another view
  }, []);
  const hasShell = state.value === "open" || state.value === "silent";
  useEffect(() => {
    if (!hasShell) return;
    // To leave the page ends the processes of the shell.
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, [hasShell]);
  // oxlint-disable-next-line react/exhaustive-deps -- the theme is a signal of its module
  useEffect(() => screen.current?.applyTheme(), [theme.value]);
  useEffect(() => {
    if (isShown && state.peek() === "open" && screen.current) takeFocus(screen.current);
  }, [isShown, state]);

  const remedy = remedyOf(state.value);
  return (
    <>
      <div class="log-tools" ref={tools}>
        {children}
        <span class={`terminal-state ${remedy ? "ended" : ""}`} role="status">
          {sentence(state.value)}
        </span>
        {remedy && (
          <button class="button" type="button" onClick={again}>
            {remedy}
          </button>
        )}
        <span class="quiet terminal-hint">Ctrl + . leaves the terminal</span>
      </div>
      {error.value && <ErrorNotice error={error.value} />}
      <div class="screen" ref={host} />
    </>
  );
}

/** Who goes through the tabs with the arrow keys does not lose them to the terminal; Tab leads into it. */
function takeFocus(screen: Screen): void {
  if (!document.activeElement?.matches("[role=tab]:focus-visible")) screen.focus();
}

/** What the user can do about a terminal that does not work any more. */
function remedyOf(state: State): string {
  if (state === "silent") return "Reconnect";
  if (typeof state === "string") return "";
  return state.kind === "lost" ? "Reconnect" : "Open again";
}

function sentence(state: State): string {
  if (state === "connecting") return "Connecting …";
  if (state === "open") return "Connected";
  if (state === "silent") return "The cluster does not answer. What you typed is sent when it does.";
  if (state.kind === "exit") return `The shell ended with exit status ${state.status}.`;
  if (state.kind === "error") return state.message;
  if (state.kind === "refused") return "No terminal.";
  return "The connection was lost; the processes of the terminal are ended.";
}

/** Why there is no session: a browser does not show a page the response to its WebSocket. */
async function refusal(path: string): Promise<ApiError> {
  const blocked = new ApiError(
    "No WebSocket reaches the cluster.",
    0,
    "",
    "A proxy between this browser and the cluster must let them pass.",
  );
  try {
    await request("GET", path);
    return blocked;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return error.code === "UpgradeRequiredError" ? blocked : error;
  }
}
