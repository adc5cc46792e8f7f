// Job list: filter, order and page are in the address; rows are renewed while the page is visible.
import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { listJobs, stopJob, virtualClusters } from "../api.ts";
import type { JobPage, JobSummary } from "../api_types.ts";
import { attemptEach } from "../components/forms.tsx";
import { Confirm } from "../components/dialogs.tsx";
import { Empty, ErrorNotice, Loading, State } from "../components/notices.tsx";
import { toast } from "../components/toasts.tsx";
import { useNow } from "../components/use_now.ts";
import { counted, exactTime, grouped, isFinished, runTime, shortTime, stateName } from "../format.ts";
import { keepInEntry, keptInEntry } from "../history_entry.ts";
import { usePolled } from "../live.ts";
import { address, href, jobHref, setQuery } from "../router.ts";
import { onOtherUser, session } from "../session.ts";

const PAGE_SIZE = 50;
const REFRESH_MS = 2000;
const CLUSTERS_REFRESH_MS = 60_000;
const TYPING_MS = 250;
/** Rows are at least so high. */
const ROW_PX = 36;
const STATES = ["WAITING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED"] as const;
/** Name of the selection in the history. */
const SELECTED = "selected";
const DEFAULT_ORDER = "submissionTime,DESC";

interface Column {
  readonly name: string;
  readonly label: string;
  /** The API's name of the order by this column. */
  readonly order?: string;
  readonly isNumber?: boolean;
}

const COLUMNS: readonly Column[] = [
  { name: "name", label: "Name", order: "jobName" },
  { name: "state", label: "State", order: "state" },
  { name: "user", label: "User", order: "username" },
  { name: "vc", label: "Virtual cluster", order: "vc" },
  { name: "priority", label: "Priority", order: "jobPriority" },
  { name: "tasks", label: "Tasks", order: "totalTaskNumber", isNumber: true },
  { name: "gpus", label: "GPUs", order: "totalGpuNumber", isNumber: true },
  { name: "submitted", label: "Submitted", order: "submissionTime" },
  { name: "duration", label: "Duration", order: "duration" },
  { name: "retries", label: "Retries", order: "retries", isNumber: true },
];

const frameworkOf = (job: JobSummary) => `${job.username}~${job.name}`;

export function JobsPage({ query }: { query: URLSearchParams }) {
  const page = pageNumber(query);
  const asked = apiQuery(query, page);
  const key = asked.toString();
  const { value, error, reload } = usePolled(key, (signal) => earlyAnswer(key) ?? listJobs(asked, signal), REFRESH_MS);
  const selected = useSignal<ReadonlySet<string>>(new Set(selectedBefore()));
  const isStopping = useSignal(false);
  const jobs = value?.data ?? [];
  const rows = useFirstRows(jobs);
  const now = useNow(jobs.some((job) => !isFinished(job.state)));
  const chosen = [...selected.value];
  // A job may finish after it was selected; of one that is on another page by now, this list does not know.
  const finished = new Set(jobs.filter((job) => isFinished(job.state)).map(frameworkOf));
  const stoppable = chosen.filter((job) => !finished.has(job));

  useEffect(() => {
    document.title = "Jobs · OpenPAI";
  }, []);
  useEffect(() => {
    selected.value = new Set(selectedBefore());
  }, [key]);
  useEffect(() => {
    if (selectedBefore().length || selected.value.size) keepInEntry(SELECTED, [...selected.value]);
  }, [selected.value]);
  useEffect(() => {
    if (!stoppable.length) isStopping.value = false;
  }, [stoppable.length]);

  const select = (framework: string, isOn: boolean) => {
    const names = new Set(selected.value);
    if (isOn) names.add(framework);
    else names.delete(framework);
    selected.value = names;
  };
  const stopSelected = async () => {
    selected.value = new Set();
    await stopAll(stoppable);
    reload();
  };

  return (
    <>
      <div class="head">
        <h1>Jobs</h1>
        {chosen.length > 0 && (
          <div class="selected">
            <span>{counted(chosen.length, "job")} selected</span>
            <a class="button" href={href("/compare", { jobs: chosen.join(",") })}>
              Compare
            </a>
            {stoppable.length > 0 && (
              <button class="button danger" type="button" onClick={() => (isStopping.value = true)}>
                Stop
              </button>
            )}
          </div>
        )}
      </div>
      <Filters query={query} jobs={jobs} isLoaded={value !== undefined} />
      {error && <ErrorNotice error={error} />}
      {!error && !value && <Loading what="jobs" />}
      {value && jobs.length === 0 && <NoJobs isFiltered={isFiltered(query)} />}
      {jobs.length > 0 && (
        <>
          <div class="card scroll">
            <table class="jobs">
              <caption class="sr">Jobs</caption>
              <thead>
                <tr>
                  <th class="c-select">
                    <input
                      type="checkbox"
                      aria-label="Select all jobs of this page"
                      checked={jobs.every((job) => selected.value.has(frameworkOf(job)))}
                      onChange={(event) => (selected.value = new Set(event.currentTarget.checked ? jobs.map(frameworkOf) : []))}
                    />
                  </th>
                  {COLUMNS.map((column) => (
                    <ColumnHead key={column.name} column={column} order={query.get("order") ?? DEFAULT_ORDER} />
                  ))}
                </tr>
              </thead>
              <tbody>
                {rows.map((job) => (
                  <Row
                    key={frameworkOf(job)}
                    job={job}
                    now={now}
                    isSelected={selected.value.has(frameworkOf(job))}
                    onSelect={select}
                  />
                ))}
              </tbody>
            </table>
          </div>
          <Pager page={page} total={value?.totalCount ?? 0} />
        </>
      )}
      {isStopping.value && (
        <Confirm
          title={`Stop ${counted(stoppable.length, "job")}?`}
          text="Their tasks end, and a stopped job does not continue. Logs and outputs stay."
          action="Stop"
          onConfirm={() => void stopSelected()}
          onClose={() => (isStopping.value = false)}
        />
      )}
    </>
  );
}

/** Jobs that were selected when the user left this entry of the history. */
function selectedBefore(): string[] {
  const names = keptInEntry(SELECTED);
  return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
}

/** Rows that fill the window; those below it follow when these are painted. */
function useFirstRows(jobs: readonly JobSummary[]): readonly JobSummary[] {
  const isPainted = useSignal(false);
  const hasRows = jobs.length > 0;
  useEffect(() => {
    isPainted.value ||= hasRows;
  }, [hasRows]);
  return isPainted.value ? jobs : jobs.slice(0, Math.ceil(innerHeight / ROW_PX));
}

let early: { readonly key: string; readonly answer: Promise<JobPage> } | undefined;
onOtherUser(() => (early = undefined));

/** Request the list of the address, before the page around it is drawn: it takes the answer that has come meanwhile. */
export function requestJobsEarly(): void {
  const { path, query } = address.value;
  if (!session.value || (path !== "/" && path !== "/jobs")) return;
  const asked = apiQuery(query, pageNumber(query));
  early = { key: asked.toString(), answer: listJobs(asked) };
  // The page shows the error.
  early.answer.catch(() => undefined);
}

/** Answer of the early request, once. */
function earlyAnswer(key: string): Promise<JobPage> | undefined {
  const taken = early;
  early = undefined;
  return taken?.key === key ? taken.answer : undefined;
}

function pageNumber(query: URLSearchParams): number {
  return Math.max(1, Number.parseInt(query.get("page") ?? "1", 10) || 1);
}

function apiQuery(query: URLSearchParams, page: number): URLSearchParams {
  const asked = new URLSearchParams({
    limit: String(PAGE_SIZE),
    offset: String((page - 1) * PAGE_SIZE),
    order: query.get("order") ?? DEFAULT_ORDER,
    withTotalCount: "true",
    reasons: "true",
    causes: "true",
  });
  const names = { state: "state", user: "username", vc: "vc", tag: "tagsContain", keyword: "keyword" };
  for (const [ours, theirs] of Object.entries(names)) {
    const value = query.get(ours);
    if (value) asked.set(theirs, value);
  }
  return asked;
}

function isFiltered(query: URLSearchParams): boolean {
  return ["state", "user", "vc", "tag", "keyword", "page"].some((name) => query.has(name));
}

function NoJobs({ isFiltered }: { isFiltered: boolean }) {
  return (
    <div class="card">
      {isFiltered ? (
        <Empty title="No job matches">
          <a href={href("/jobs")}>Show all jobs</a>
        </Empty>
      ) : (
        <Empty title="No jobs yet">
          <p>
            Submit one here, or type <code>pai sub -- echo hello</code> in a shell.
          </p>
          <a class="button primary" href={href("/submit")}>
            Submit a job
          </a>
        </Empty>
      )}
    </div>
  );
}

interface FiltersProps {
  readonly query: URLSearchParams;
  readonly jobs: readonly JobSummary[];
  readonly isLoaded: boolean;
}

function Filters({ query, jobs, isLoaded }: FiltersProps) {
  // After the list, for which the user waits.
  const clusters = usePolled(isLoaded ? "clusters" : null, virtualClusters, CLUSTERS_REFRESH_MS).value;
  const user = session.value?.user ?? "";
  // A filter shows its first page.
  const change = (name: string) => (event: Event) =>
    setQuery({ [name]: (event.currentTarget as HTMLInputElement).value, page: undefined });
  const owner = query.get("user") ?? "";
  const vc = query.get("vc") ?? "";
  return (
    <div class="filters job-filters" role="search" aria-label="Filter of the jobs">
      <TypedFilter name="keyword" label="Search jobs" value={query.get("keyword") ?? ""} />
      <select aria-label="State" value={query.get("state") ?? ""} onChange={change("state")}>
        <option value="">All states</option>
        {STATES.map((state) => (
          <option key={state} value={state}>
            {stateName(state)}
          </option>
        ))}
      </select>
      <button
        class="button"
        type="button"
        aria-pressed={owner === user}
        onClick={() => setQuery({ user: owner === user ? undefined : user, page: undefined })}
      >
        My jobs
      </button>
      <ChosenFilter name="user" label="User" value={owner} choices={jobs.map((job) => job.username)} />
      <ChosenFilter name="tag" label="Tag" value={query.get("tag") ?? ""} choices={jobs.flatMap((job) => job.tags)} />
      <select aria-label="Virtual cluster" value={vc} onChange={change("vc")}>
        <option value="">All virtual clusters</option>
        {[...new Set([...Object.keys(clusters ?? {}), ...(vc ? [vc] : [])])].map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

/** A text filter that waits until the typing pauses. */
function TypedFilter({ name, label, value }: { name: string; label: string; value: string }) {
  const typed = useSignal<string | null>(null);
  const text = useComputed(() => typed.value).value;
  const apply = () => text !== null && text !== value && setQuery({ [name]: text, page: undefined }, { replace: value !== "" });
  useEffect(() => {
    if (text === null) return;
    const timer = setTimeout(apply, TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  // The field is left before the pause: apply the text now.
  const end = () => {
    apply();
    typed.value = null;
  };
  return (
    <input
      type="search"
      placeholder={label}
      aria-label={label}
      value={text ?? value}
      onInput={(event) => (typed.value = event.currentTarget.value)}
      onBlur={end}
    />
  );
}

interface ChosenFilterProps {
  readonly name: string;
  readonly label: string;
  readonly value: string;
  /** What the list shows at the moment; any other value can be typed. */
  readonly choices: readonly string[];
}

/** A filter by a whole value: it applies when it is chosen or entered, not while it is typed. */
function ChosenFilter({ name, label, value, choices }: ChosenFilterProps) {
  const id = `choices-${name}`;
  // The list renews itself meanwhile, and must not take back what is typed.
  const typed = useSignal<string | null>(null);
  const text = useComputed(() => typed.value).value;
  return (
    <>
      <input
        class="chosen"
        type="search"
        list={id}
        placeholder={label}
        aria-label={label}
        value={text ?? value}
        onInput={(event) => (typed.value = event.currentTarget.value)}
        onChange={(event) => setQuery({ [name]: event.currentTarget.value.trim(), page: undefined })}
        onBlur={() => (typed.value = null)}
      />
      <datalist id={id}>
        {[...new Set(choices)].map((choice) => (
          <option key={choice} value={choice} />
        ))}
      </datalist>
    </>
  );
}

function ColumnHead({ column, order }: { column: Column; order: string }) {
  const classes = `c-${column.name}${column.isNumber ? " number" : ""}`;
  if (!column.order) return <th class={classes}>{column.label}</th>;
  const [field, direction] = order.split(",");
  const isSorted = field === column.order;
  const isAscending = direction === "ASC";
  // A first click sorts numbers and times from the largest, names from A.
  const isTime = column.order === "submissionTime" || column.order === "duration";
  const first = column.isNumber || isTime ? "DESC" : "ASC";
  const next = isSorted ? (isAscending ? "DESC" : "ASC") : first;
  return (
    <th class={classes} aria-sort={isSorted ? (isAscending ? "ascending" : "descending") : undefined}>
      <button type="button" onClick={() => setQuery({ order: `${column.order},${next}`, page: undefined })}>
        {column.label}
        {isSorted && <span aria-hidden="true">{isAscending ? " ↑" : " ↓"}</span>}
      </button>
    </th>
  );
}

interface RowProps {
  readonly job: JobSummary;
  readonly now: number;
  readonly isSelected: boolean;
  readonly onSelect: (framework: string, isOn: boolean) => void;
}

function Row({ job, now, isSelected, onSelect }: RowProps) {
  const framework = frameworkOf(job);
  return (
    <tr>
      <td class="c-select">
        <input
          type="checkbox"
          aria-label={`Select ${job.name}`}
          checked={isSelected}
          onChange={(event) => onSelect(framework, event.currentTarget.checked)}
        />
      </td>
      <td class="name c-name">
        <a href={jobHref(framework)} title={job.name}>
          {job.name}
        </a>
        {job.tags.map((tag) => (
          <a class="tag" key={tag} href={href("/jobs", { tag })}>
            {tag}
          </a>
        ))}
        {job.reason && (
          <span class="reason" title={job.reason}>
            {job.reason}
          </span>
        )}
        {/* Where the window has no room for their columns. */}
        <span class="meta">
          <span class="phone">
            {job.username} · {shortTime(job.submissionTime, now)}
          </span>
          {job.launchedTime !== null && (
            <span class="phone">{runTime(job.launchedTime, job.completedTime, now)}</span>
          )}
          {job.virtualCluster !== "default" && <span>{job.virtualCluster}</span>}
          {job.jobPriority !== null && <span>{job.jobPriority}</span>}
          {job.retries > 0 && <span>{counted(job.retries, "retry", "retries")}</span>}
        </span>
      </td>
      <td class="c-state">
        <State state={job.state} />
      </td>
      <td class="c-user" title={job.username}>
        {job.username}
      </td>
      <td class="c-vc" title={job.virtualCluster}>
        {job.virtualCluster}
      </td>
      <td class={`c-priority${job.jobPriority === null ? " quiet" : ""}`}>{job.jobPriority ?? "default"}</td>
      <td class="c-tasks number">{grouped(job.totalTaskNumber)}</td>
      <td class={`c-gpus number${job.totalGpuNumber ? "" : " quiet"}`}>{grouped(job.totalGpuNumber)}</td>
      <td class="c-submitted" title={exactTime(job.submissionTime)}>
        {shortTime(job.submissionTime, now)}
      </td>
      <td class="c-duration">{runTime(job.launchedTime, job.completedTime, now)}</td>
      <td class={`c-retries number${job.retries ? "" : " quiet"}`}>{job.retries}</td>
    </tr>
  );
}

function Pager({ page, total }: { page: number; total: number }) {
  const last = Math.max(1, Math.ceil(total / PAGE_SIZE));
  const from = (page - 1) * PAGE_SIZE;
  const go = (to: number) => setQuery({ page: to === 1 ? undefined : String(to) });
  return (
    <nav class="pager" aria-label="Pages of the list">
      <span class="quiet">
        {total <= PAGE_SIZE
          ? counted(total, "job")
          : `${grouped(from + 1)} to ${grouped(Math.min(total, from + PAGE_SIZE))} of ${counted(total, "job")}`}
      </span>
      {last > 1 && (
        <div class="actions">
          <button class="button" type="button" disabled={page <= 1} onClick={() => go(page - 1)}>
            Previous
          </button>
          <button class="button" type="button" disabled={page >= last} onClick={() => go(page + 1)}>
            Next
          </button>
        </div>
      )}
    </nav>
  );
}

async function stopAll(frameworks: readonly string[]): Promise<void> {
  const problems = await attemptEach(frameworks, stopJob);
  const stopped = frameworks.length - problems.length;
  if (stopped) toast(`${counted(stopped, "job")} stopped.`);
  if (problems.length) toast(`${counted(problems.length, "job")} not stopped: ${problems[0] ?? ""}`);
}
