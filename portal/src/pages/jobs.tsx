// Job list: filter, order and page are in the address; rows are renewed while the page is visible.
import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { listJobs, virtualClusters } from "../api.ts";
import type { JobPage, JobSummary } from "../api_types.ts";
import { attempt } from "../components/forms.tsx";
import { lazy } from "../components/lazy.tsx";
import { Empty, ErrorNotice, Loading } from "../components/notices.tsx";
import { useNow } from "../components/use_now.ts";
import { counted, grouped, isFinished, stateName } from "../format.ts";
import { keepInEntry, keptInEntry } from "../history_entry.ts";
import type { BulkKind, BulkProps, SelectedJobs } from "../job_list/bulk_dialog.tsx";
import { isDefault, jobColumns, loadJobColumns } from "../job_list/column_settings.ts";
import { askedValues, columnsOf } from "../job_list/columns.ts";
import { frameworkOf, JobTable, Pager } from "../job_list/job_table.tsx";
import { useRowSelection } from "../job_list/selection.ts";
import { usePolled } from "../live.ts";
import { address, href, setQuery } from "../router.ts";
import { onOtherUser, session } from "../session.ts";

const PAGE_SIZE = 50;
const REFRESH_MS = 2000;
const CLUSTERS_REFRESH_MS = 60_000;
const TYPING_MS = 250;
/** Of the jobs of a filter, which the user selects with one click. */
const MAX_SELECTED = 1000;
const STATES = ["WAITING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED"] as const;
const FILTERS = { state: "state", user: "username", vc: "vc", tag: "tagsContain", keyword: "keyword" } as const;
/** Name of the selection in the history. */
const SELECTED = "selected";
const DEFAULT_ORDER = "submissionTime,DESC";

const BulkDialog = lazy<BulkProps>("the dialog", async () => (await import("../job_list/bulk_dialog.tsx")).BulkDialog);
const ColumnsDialog = lazy("the columns", async () => (await import("../job_list/columns_dialog.tsx")).ColumnsDialog);

export function JobsPage({ query }: { query: URLSearchParams }) {
  const page = pageNumber(query);
  const asked = apiQuery(query, page);
  const key = asked.toString();
  const { value, error, reload } = usePolled(key, (signal) => earlyAnswer(key) ?? listJobs(asked, signal), REFRESH_MS);
  const jobs = value?.data ?? [];
  const total = value?.totalCount ?? 0;
  const now = useNow(jobs.some((job) => !isFinished(job.state)));
  const { selected, current, change } = useSelection(filterOf(query).toString(), jobs);
  const bulk = useSignal<BulkKind | null>(null);
  const areColumnsOpen = useSignal(false);
  const bar = useRef<HTMLDivElement>(null);
  const ids = jobColumns();
  const idsKey = ids.join("\n");
  // oxlint-disable-next-line react/exhaustive-deps -- ids that the browser keeps are a new list in each render
  const columns = useMemo(() => columnsOf(ids), [idsKey]);
  const isLoaded = value !== undefined;

  useEffect(() => {
    document.title = "Jobs · OpenPAI";
  }, []);
  useEffect(() => {
    // After the list, for which the user waits.
    if (isLoaded) void loadJobColumns().catch(() => undefined);
  }, [isLoaded]);

  const setSelected = (frameworks: readonly string[], isOn: boolean) => {
    const names = new Map(current());
    for (const framework of frameworks) {
      if (isOn) names.set(framework, jobs.find((job) => frameworkOf(job) === framework)?.state ?? names.get(framework));
      else names.delete(framework);
    }
    change(names);
  };
  const boxOf = useRowSelection(jobs.map(frameworkOf), {
    onSelect: setSelected,
    onClear: () => change(new Map()),
    onEnter: () => bar.current?.querySelector<HTMLElement>("a, button")?.focus(),
  });
  const selectAll = async () => {
    const all = apiQuery(query, 1);
    for (const name of ["metric", "parameter", "reasons", "causes"]) all.delete(name);
    all.set("limit", String(MAX_SELECTED));
    const found = await listJobs(all);
    change(new Map(found.data.map((job) => [frameworkOf(job), job.state])));
  };
  return (
    <>
      <div class={selected.size ? "head selecting" : "head"}>
        <h1>Jobs</h1>
        {selected.size > 0 && (
          <SelectionBar
            element={bar}
            selected={selected}
            isPageSelected={jobs.length > 0 && jobs.every((job) => selected.has(frameworkOf(job)))}
            total={total}
            onAction={(kind) => (bulk.value = kind)}
            onAll={() => void attempt(selectAll)}
            onClear={() => change(new Map())}
          />
        )}
      </div>
      <Filters query={query} jobs={jobs} isLoaded={isLoaded} onColumns={() => (areColumnsOpen.value = true)} />
      {error && <ErrorNotice error={error} />}
      {error && !value && query.has("order") && (
        <button class="button" type="button" onClick={() => setQuery({ order: undefined, page: undefined })}>
          Show the newest first
        </button>
      )}
      {!error && !value && <Loading what="jobs" />}
      {value && jobs.length === 0 && <NoJobs isFiltered={isFiltered(query)} total={total} />}
      {jobs.length > 0 && (
        <>
          <JobTable
            jobs={jobs}
            columns={columns}
            isChosen={!isDefault(ids)}
            order={query.get("order") ?? DEFAULT_ORDER}
            now={now}
            selected={selected}
            onSelectPage={(isOn) => setSelected(jobs.map(frameworkOf), isOn)}
            boxOf={boxOf}
          />
          <Pager page={page} total={total} pageSize={PAGE_SIZE} />
        </>
      )}
      {bulk.value && (
        <BulkDialog
          kind={bulk.value}
          jobs={selected}
          tags={[...new Set(jobs.flatMap((job) => job.tags))]}
          onDone={(kind, outcomes) => {
            // What is deleted is gone; a second click must not submit a second copy.
            const isOff = kind === "delete" || kind === "resubmit";
            const done = outcomes.filter((one) => one.kind === "done" || one.kind === "unchanged");
            if (isOff)
              setSelected(
                done.map(({ framework }) => framework),
                false,
              );
            reload();
          }}
          onClose={() => (bulk.value = null)}
        />
      )}
      {areColumnsOpen.value && <ColumnsDialog query={filterOf(query)} onClose={() => (areColumnsOpen.value = false)} />}
    </>
  );
}

// -- selection -------------------------------------------------------------------------------------

/** The selected jobs of a filter, on all of its pages. Back restores them. */
function useSelection(filter: string, jobs: readonly JobSummary[]) {
  const selected = useSignal<SelectedJobs>(selectedBefore());
  const page = address.value.query.get("page");
  // Not `useEffect`, which waits for a frame to be painted: the next click may lead away before.
  useLayoutEffect(() => {
    // Another list, or one to which the user has come back.
    selected.value = selectedBefore();
  }, [filter, selected]);
  useLayoutEffect(() => {
    if (selectedBefore().size || selected.value.size) keepInEntry(SELECTED, [...selected.value]);
  }, [selected.value, filter, page]);
  useEffect(() => {
    // A job may finish after it was selected.
    const states = new Map(jobs.map((job) => [frameworkOf(job), job.state]));
    const isOther = ([name, state]: readonly [string, unknown]) => states.has(name) && states.get(name) !== state;
    if (![...selected.value].some(isOther)) return;
    selected.value = new Map([...selected.value].map(([name, state]) => [name, states.get(name) ?? state]));
  }, [jobs, selected]);
  return {
    selected: selected.value,
    /** Also of a handler that was made before the last change. */
    current: () => selected.value,
    change: (names: SelectedJobs) => void (selected.value = names),
  };
}

/** Jobs that were selected when the user left this entry of the history, with their states. */
function selectedBefore(): SelectedJobs {
  const kept = keptInEntry(SELECTED);
  return new Map(Array.isArray(kept) ? (kept as [string, JobSummary["state"]][]) : []);
}

interface BarProps {
  readonly element: { current: HTMLDivElement | null };
  readonly selected: SelectedJobs;
  readonly isPageSelected: boolean;
  /** Jobs of the filter. */
  readonly total: number;
  readonly onAction: (kind: BulkKind) => void;
  readonly onAll: () => void;
  readonly onClear: () => void;
}

function SelectionBar({ element, selected, isPageSelected, total, onAction, onAll, onClear }: BarProps) {
  const states = [...selected.values()];
  const hasFinished = states.some((state) => state === undefined || isFinished(state));
  const hasOthers = states.some((state) => state === undefined || !isFinished(state));
  const most = Math.min(total, MAX_SELECTED);
  return (
    <div class="selected selected-jobs" role="group" aria-label="Selected jobs" ref={element}>
      <span role="status">{counted(selected.size, "job")} selected</span>
      {isPageSelected && selected.size < most && (
        <button class="link" type="button" onClick={onAll}>
          Select {most < total ? `the first ${grouped(most)}` : `all ${grouped(most)}`}
        </button>
      )}
      <a class="button" href={href("/compare", { jobs: [...selected.keys()].join(",") })}>
        Compare
      </a>
      <button class="button" type="button" onClick={() => onAction("tag")}>
        Tag
      </button>
      {hasFinished && (
        <button class="button" type="button" onClick={() => onAction("resubmit")}>
          Resubmit
        </button>
      )}
      {hasOthers && (
        <button class="button danger" type="button" onClick={() => onAction("stop")}>
          Stop
        </button>
      )}
      {hasFinished && (
        <button class="button danger" type="button" onClick={() => onAction("delete")}>
          Delete
        </button>
      )}
      <button class="button" type="button" onClick={onClear}>
        Clear
      </button>
    </div>
  );
}

// -- requests --------------------------------------------------------------------------------------

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
  for (const [name, value] of filterOf(query)) asked.set(name, value);
  for (const [kind, name] of askedValues(columnsOf(jobColumns()))) asked.append(kind, name);
  return asked;
}

/** The filter of the address, in the names of the API. */
function filterOf(query: URLSearchParams): URLSearchParams {
  const filter = new URLSearchParams();
  for (const [ours, theirs] of Object.entries(FILTERS)) {
    const value = query.get(ours);
    if (value) filter.set(theirs, value);
  }
  return filter;
}

function isFiltered(query: URLSearchParams): boolean {
  return ["page", ...Object.keys(FILTERS)].some((name) => query.has(name));
}

function NoJobs({ isFiltered, total }: { isFiltered: boolean; total: number }) {
  const last = Math.ceil(total / PAGE_SIZE);
  return (
    <div class="card">
      {total > 0 ? (
        <Empty title={`The list has only ${counted(last, "page")}`}>
          <button class="link" type="button" onClick={() => setQuery({ page: last > 1 ? String(last) : undefined }, { replace: true })}>
            Show the last page
          </button>
        </Empty>
      ) : isFiltered ? (
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
  readonly onColumns: () => void;
}

function Filters({ query, jobs, isLoaded, onColumns }: FiltersProps) {
  // After the list, for which the user waits.
  const clusters = usePolled(isLoaded ? "clusters" : null, virtualClusters, CLUSTERS_REFRESH_MS).value;
  const user = session.value?.user ?? "";
  // A filter shows its first page.
  const change = (name: string) => (event: Event) => setQuery({ [name]: (event.currentTarget as HTMLInputElement).value, page: undefined });
  const owner = query.get("user") ?? "";
  const vc = query.get("vc") ?? "";
  return (
    <div class="filters job-filters" role="search" aria-label="Filter of the jobs">
      <TypedFilter name="keyword" label="Search jobs" value={query.get("keyword") ?? ""} />
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
      <div class="state-line">
        <StateFilter wanted={query.get("state") ?? ""} />
        <button class="button" type="button" onClick={onColumns}>
          Columns
        </button>
      </div>
    </div>
  );
}

/** Jobs in any of the pressed states; in all states, if none is pressed. */
function StateFilter({ wanted }: { wanted: string }) {
  const states = wanted.split(",").filter(Boolean);
  const toggle = (state: string) => {
    const others = states.filter((one) => one !== state);
    const changed = others.length < states.length ? others : [...states, state];
    // In one order: the same filter has one address.
    const ordered = changed.length < STATES.length ? STATES.filter((one) => changed.includes(one)) : [];
    setQuery({ state: ordered.join(",") || undefined, page: undefined });
  };
  return (
    <div class="states" role="group" aria-label="States">
      <button class="button" type="button" aria-pressed={!states.length} onClick={() => setQuery({ state: undefined, page: undefined })}>
        All states
      </button>
      {STATES.map((state) => (
        <button key={state} class="button" type="button" aria-pressed={states.includes(state)} onClick={() => toggle(state)}>
          {stateName(state)}
        </button>
      ))}
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
    // oxlint-disable-next-line react/exhaustive-deps -- only typing starts the pause again; `apply` is a new function in each render
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
