// Job: state with its reason, tasks, live log, timeline, configuration, commands.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, changeTag, deleteJob, jobConfig, jobDetail, stopJob, submittedText } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { CopyButton } from "../components/command.tsx";
import { Confirm } from "../components/dialogs.tsx";
import { ErrorNotice, Loading, State } from "../components/notices.tsx";
import { toast } from "../components/toasts.tsx";
import { useNow } from "../components/use_now.ts";
import { lazy } from "../components/lazy.tsx";
import { Tabs } from "../components/tabs.tsx";
import { saveFile } from "../files/save_file.ts";
import { counted, duration, exactTime, grouped, isFinished, withStop } from "../format.ts";
import { explanations, lastErrorLine, remedies } from "../job_failure.ts";
import { requestedResources } from "../job_resources.ts";
import { followJob, usePolled, type EventFrame } from "../live.ts";
import { address, href, navigate, setQuery } from "../router.ts";
import { session } from "../session.ts";
import { JobApps, NOTEBOOK_COMMAND, NotebookLink } from "./job_apps.tsx";
import { JobCommands } from "./job_commands.tsx";
import { DebugHold, HOLD_OPTION } from "./job_hold.tsx";
import { JobLog } from "./job_log.tsx";
import { JobTerminal } from "./job_terminal.tsx";
import { tasksOf, TaskTable } from "./job_tasks.tsx";
import { JobTimeline } from "./job_timeline.tsx";

const JobMetrics = lazy("the plots", async () => (await import("./job_metrics.tsx")).JobMetrics);
const JobOutputs = lazy("the outputs", async () => (await import("./job_outputs.tsx")).JobOutputs);

const ResubmitDialog = lazy("the dialog", async () => (await import("./job_resubmit.tsx")).ResubmitDialog);

const REFRESH_MS = 1500;
// The detail of thousands of tasks is megabytes.
const REFRESH_LARGE_MS = 10_000;
const LARGE_TASKS = 300;
const FINISHED_REFRESH_MS = 60_000;
/** Jobs that are retried without end have thousands of attempts. */
const MAX_ATTEMPT_BUTTONS = 12;
const TABS = [
  { name: "tasks", label: "Tasks" },
  { name: "log", label: "Log" },
  { name: "terminal", label: "Terminal" },
  { name: "apps", label: "Apps" },
  { name: "outputs", label: "Outputs" },
  { name: "metrics", label: "Metrics" },
  { name: "timeline", label: "Timeline" },
  { name: "config", label: "Configuration" },
  { name: "commands", label: "Commands" },
];

export function JobPage({ framework }: { framework: string }) {
  const attempt = address.value.query.get("attempt") ?? "";
  const detail = usePolled(`${framework} ${attempt}`, (signal) => jobDetail(framework, attempt, signal), refreshOf);
  const config = useConfig(framework);
  const events = useEvents(framework, detail.reload);
  const name = framework.slice(framework.indexOf("~") + 1);
  useEffect(() => {
    document.title = `${name} · OpenPAI`;
  }, [name]);

  if (detail.error) {
    return (
      <div class="stack">
        <h1>{name}</h1>
        <ErrorNotice error={detail.error} />
        <p>
          <a href={href("/jobs")}>All jobs</a>
        </p>
      </div>
    );
  }
  if (!detail.value) return <Loading what="the job" />;
  const job = detail.value;
  return (
    <>
      <div class="head">
        <div class="title">
          <h1>{name}</h1>
          <State state={job.jobStatus.state} />
        </div>
        <Actions framework={framework} job={job} onChange={detail.reload} />
      </div>
      <div class="stack job-top">
        <div class="job-line">
          <Facts job={job} config={config.value} />
          <Tags framework={framework} job={job} onChange={detail.reload} />
        </div>
        <Reason job={job} attempt={attempt} />
        {config.value?.includes(HOLD_OPTION) && !attempt && <DebugHold framework={framework} job={job} />}
        {config.value?.includes(NOTEBOOK_COMMAND) && !attempt && <NotebookLink framework={framework} job={job} />}
        {job.jobStatus.retries > 0 && <Attempts job={job} shown={attempt} />}
      </div>
      <Tabs tabs={TABS} label="Parts of the job">
        {(tab) => (
          <>
            {tab === "tasks" && <TaskTable job={job} config={config.value} />}
            {tab === "log" && <JobLog framework={framework} job={job} />}
            <KeptPanel isShown={tab === "terminal"}>
              <JobTerminal framework={framework} job={job} isShown={tab === "terminal"} />
            </KeptPanel>
            {tab === "apps" && <JobApps framework={framework} job={job} />}
            {tab === "outputs" && <JobOutputs framework={framework} job={job} />}
            {tab === "metrics" && <JobMetrics framework={framework} job={job} />}
            {tab === "timeline" && <JobTimeline framework={framework} job={job} events={events} />}
            {tab === "config" && <Config framework={framework} />}
            {tab === "commands" && <JobCommands framework={framework} job={job} />}
          </>
        )}
      </Tabs>
    </>
  );
}

/** A panel that stays in the page once it was shown: what runs in a terminal does not end with a look at the log. */
function KeptPanel({ isShown, children }: { isShown: boolean; children: ComponentChildren }) {
  const wasShown = useRef(false);
  wasShown.current ||= isShown;
  return wasShown.current ? <div hidden={!isShown}>{children}</div> : null;
}

function refreshOf(job: JobDetail): number {
  if (isFinished(job.jobStatus.state)) return FINISHED_REFRESH_MS;
  return tasksOf(job).length > LARGE_TASKS ? REFRESH_LARGE_MS : REFRESH_MS;
}

/** Events of the job as they come, newest first; a change of its state calls `onState`. */
function useEvents(framework: string, onState: () => void): readonly EventFrame[] {
  const events = useSignal<readonly EventFrame[]>([]);
  useEffect(() => {
    const abort = new AbortController();
    let states = 0;
    const seen = new Map<string, EventFrame>();
    void followJob(
      framework,
      { stream: "none" },
      (frame) => {
        if (frame.kind === "event") {
          const key = `${frame.reason}\n${frame.message}`;
          seen.delete(key);
          seen.set(key, frame);
          events.value = [...seen.values()].sort((one, other) => other.time - one.time);
        }
        // The first one is what the page has loaded.
        if (frame.kind === "state" && states++ > 0) onState();
      },
      abort.signal,
    ).catch((error: unknown) => {
      // The page's own request reports what is wrong.
      if (!(error instanceof ApiError)) throw error;
    });
    return () => abort.abort();
    // oxlint-disable-next-line react/exhaustive-deps -- `onState` is a new function in each render: with it, each render would connect again
  }, [framework, events]);
  return events.value;
}

// -- state and reason ------------------------------------------------------------------------------

function Reason({ job, attempt }: { job: JobDetail; attempt: string }) {
  const status = job.jobStatus;
  // An earlier attempt has ended, whatever the job does now.
  const state = attempt ? status.attemptState : status.state;
  if (job.reason && (!attempt || state === "WAITING")) return <p class="notice wait">{job.reason}</p>;
  if (state === "SUCCEEDED" || state === "RUNNING") return <FailedTasks job={job} />;
  if (status.appExitCode === null) return null;
  const role = status.appExitTriggerTaskRoleName;
  const index = status.appExitTriggerTaskIndex;
  const [cause, ...more] = explanations(job);
  return (
    <div class={`notice ${state === "FAILED" ? "bad" : ""}`}>
      <p>
        <strong>
          {attempt && `Attempt ${Number(attempt) + 1}: `}
          {withStop(cause ?? `The job ended with exit code ${exitCode(status)}`)}
        </strong>
      </p>
      {more.map((text) => (
        <p key={text}>{withStop(text)}</p>
      ))}
      {state === "FAILED" && <LastLine job={job} />}
      {remedies(status).map((text) => (
        <p key={text}>{withStop(text)}</p>
      ))}
      {role !== null && index !== null && (
        <p>
          Task {role}[{index}] ended it.{" "}
          <button class="link" type="button" onClick={() => setQuery({ tab: "log", role, index: String(index), try: undefined })}>
            Read its log
          </button>
        </p>
      )}
    </div>
  );
}

function LastLine({ job }: { job: JobDetail }) {
  const line = lastErrorLine(job);
  return line ? (
    <p>
      The log ends with: <code>{line}</code>
    </p>
  ) : null;
}

/** Of a job that does not fail with its first failed task. */
function FailedTasks({ job }: { job: JobDetail }) {
  const tasks = tasksOf(job);
  const failed = tasks.filter((task) => task.taskState === "FAILED").length;
  if (!failed) return null;
  return (
    <p class="notice wait">
      {grouped(failed)} of {counted(tasks.length, "task")} failed.{" "}
      <button class="link" type="button" onClick={() => setQuery({ tab: undefined, tasks: "FAILED" })}>
        Show {failed === 1 ? "it" : "them"}
      </button>
    </p>
  );
}

/** Exit code of the program, and the one that OpenPAI reports for it where that differs. */
function exitCode({ appExitCode: code, appExitMessages: messages }: JobDetail["jobStatus"]): string {
  const own = messages?.runtime?.originUserExitCode;
  return own === undefined || own === code ? String(code) : `${own} (reported as ${code})`;
}

function Facts({ job, config }: { job: JobDetail; config: string | undefined }) {
  const status = job.jobStatus;
  const isRunning = !isFinished(status.state);
  const now = useNow(isRunning);
  // A job that never started has its end as its start.
  const hasStarted = status.launchedTime !== null && status.launchedTime !== status.completedTime;
  const waited = (hasStarted ? status.launchedTime : status.completedTime) ?? now;
  const facts: [string, ComponentChildren][] = [
    [
      "User",
      <a key="user" href={href("/jobs", { user: status.username })}>
        {status.username}
      </a>,
    ],
    [
      "Virtual cluster",
      <a key="vc" href={href("/jobs", { vc: status.virtualCluster })}>
        {status.virtualCluster}
      </a>,
    ],
    ["Submitted", exactTime(status.submissionTime)],
    ["Waited", duration(waited - status.submissionTime)],
    ["Ran", hasStarted ? duration((status.completedTime ?? now) - (status.launchedTime ?? now)) : isRunning ? "not yet" : "never"],
  ];
  if (status.retries) facts.push(["Retries", String(status.retries)]);
  if (status.appExitCode !== null) facts.push(["Exit code", exitCode(status)]);
  if (job.jobPriority) facts.push(["Priority", job.jobPriority]);
  // The last one: it is loaded after the others, and moves none of them.
  facts.push(["Requested", config === undefined ? "" : requestedResources(config) || "unknown"]);
  return (
    <dl class="facts in-line">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Tags({ framework, job, onChange }: ActionsProps) {
  const added = useSignal("");
  const error = useSignal<ApiError | null>(null);
  const mayChange = session.value?.user === job.jobStatus.username || session.value?.admin === true;
  if (!mayChange && !job.tags.length) return null;
  const change = async (method: "PUT" | "DELETE", tag: string) => {
    error.value = null;
    try {
      await changeTag(framework, method, tag);
      if (method === "PUT") added.value = "";
      onChange();
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      error.value = problem;
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (added.value.trim()) void change("PUT", added.value.trim());
  };
  return (
    <>
      <form class="tags" onSubmit={submit} aria-label="Tags">
        {job.tags.map((tag) => (
          <span class="tag" key={tag}>
            {tag}
            {mayChange && (
              <button class="link" type="button" aria-label={`Remove tag ${tag}`} onClick={() => void change("DELETE", tag)}>
                ×
              </button>
            )}
          </span>
        ))}
        {mayChange && (
          <>
            <input
              aria-label="New tag"
              name="tag"
              placeholder="Add a tag"
              value={added.value}
              onInput={(event) => (added.value = event.currentTarget.value)}
            />
            {added.value.trim() && (
              <button class="button" type="submit">
                Add
              </button>
            )}
          </>
        )}
      </form>
      {error.value && <ErrorNotice error={error.value} />}
    </>
  );
}

function Attempts({ job, shown }: { job: JobDetail; shown: string }) {
  const last = job.jobStatus.retries;
  const show = (number: number) => setQuery({ attempt: number === last ? undefined : String(number) });
  if (last >= MAX_ATTEMPT_BUTTONS) {
    return (
      <div>
        <select aria-label="Attempt" value={shown || String(last)} onChange={(event) => show(Number(event.currentTarget.value))}>
          {Array.from({ length: last + 1 }, (_, number) => (
            <option key={number} value={String(number)}>
              Attempt {number + 1}
            </option>
          ))}
        </select>
      </div>
    );
  }
  return (
    <div class="actions" role="group" aria-label="Attempts">
      {Array.from({ length: last + 1 }, (_, number) => {
        const isShown = shown ? shown === String(number) : number === last;
        return (
          <button
            key={number}
            type="button"
            class={`button ${isShown ? "primary" : ""}`}
            aria-pressed={isShown}
            onClick={() => show(number)}
          >
            Attempt {number + 1}
          </button>
        );
      })}
    </div>
  );
}

// -- actions ---------------------------------------------------------------------------------------

interface ActionsProps {
  readonly framework: string;
  readonly job: JobDetail;
  readonly onChange: () => void;
}

function Actions({ framework, job, onChange }: ActionsProps) {
  const asked = useSignal<"stop" | "delete" | "resubmit" | null>(null);
  const isBusy = useSignal(false);
  const { state, username } = job.jobStatus;
  const mayChange = session.value?.user === username || session.value?.admin === true;
  const run = async (action: () => Promise<void>, done: () => void) => {
    isBusy.value = true;
    try {
      await action();
      done();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      toast([error.message, error.hint].filter(Boolean).join(" "));
    } finally {
      isBusy.value = false;
    }
  };
  return (
    <div class="actions">
      <a class="button" href={href("/submit", { clone: framework })}>
        Clone
      </a>
      <button class={`button${isFinished(state) ? " primary" : ""}`} type="button" onClick={() => (asked.value = "resubmit")}>
        Resubmit
      </button>
      {mayChange && !isFinished(state) && (
        <button class="button danger" type="button" disabled={isBusy.value || state === "STOPPING"} onClick={() => (asked.value = "stop")}>
          Stop
        </button>
      )}
      {mayChange && isFinished(state) && (
        <button class="button danger" type="button" disabled={isBusy.value} onClick={() => (asked.value = "delete")}>
          Delete
        </button>
      )}
      {asked.value === "resubmit" && <ResubmitDialog framework={framework} name={job.name} onClose={() => (asked.value = null)} />}
      {asked.value === "stop" && (
        <Confirm
          title={`Stop ${job.name}?`}
          text="Its tasks end, and a stopped job does not continue. Logs and outputs stay."
          action="Stop"
          onConfirm={() => void run(() => stopJob(framework), onChange)}
          onClose={() => (asked.value = null)}
        />
      )}
      {asked.value === "delete" && (
        <Confirm
          title={`Delete ${job.name}?`}
          text="The job disappears from the list, with its logs. Outputs that were uploaded to a storage stay."
          action="Delete"
          onConfirm={() =>
            void run(
              () => deleteJob(username, job.name),
              () => {
                toast(`${job.name} is deleted.`);
                navigate(href("/jobs"));
              },
            )
          }
          onClose={() => (asked.value = null)}
        />
      )}
    </div>
  );
}

// -- tabs ------------------------------------------------------------------------------------------

function useConfig(framework: string) {
  return usePolled(`config ${framework}`, (signal) => jobConfig(framework, signal), FINISHED_REFRESH_MS);
}

function Config({ framework }: { framework: string }) {
  const config = usePolled(`submitted ${framework}`, (signal) => submittedText(framework, signal), FINISHED_REFRESH_MS);
  if (config.error) return <ErrorNotice error={config.error} />;
  if (config.value === undefined) return <Loading what="the configuration" />;
  const text = readable(config.value);
  const name = framework.slice(framework.indexOf("~") + 1);
  const save = () => saveFile(text, `${name}.${isJson(text) ? "json" : "yaml"}`);
  return (
    <div class="card">
      <div class="log-tools">
        <CopyButton text={text} label="Copy the configuration" />
        <button class="button" type="button" onClick={save}>
          Download
        </button>
      </div>
      <pre class="config" tabIndex={0} aria-label="Configuration of the job">
        {text}
      </pre>
    </div>
  );
}

function isJson(text: string): boolean {
  return text.startsWith("{");
}

/** A text that is JSON, with a line for each value. */
function readable(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
