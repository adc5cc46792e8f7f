// The table of a page of jobs, and the line below it that leads to other pages.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { JobSummary } from "../api_types.ts";
import { State } from "../components/notices.tsx";
import { counted, grouped, noteOf, runTime, shortTime } from "../format.ts";
import { href, jobHref, setQuery } from "../router.ts";
import { NAME, type JobColumn } from "./columns.ts";
import type { BoxHandlers } from "./selection.ts";

/** Rows are at least so high. */
const ROW_PX = 29;

export const frameworkOf = (job: JobSummary) => `${job.username}~${job.name}`;

interface TableProps {
  readonly jobs: readonly JobSummary[];
  readonly columns: readonly JobColumn[];
  /** Whether the user has chosen the columns: all of them are shown in any window but a phone's. */
  readonly isChosen: boolean;
  readonly order: string;
  readonly now: number;
  readonly selected: ReadonlyMap<string, unknown>;
  readonly onSelectPage: (isOn: boolean) => void;
  readonly boxOf: (framework: string) => BoxHandlers;
}

export function JobTable({ jobs, columns, isChosen, order, now, selected, onSelectPage, boxOf }: TableProps) {
  const rows = useFirstRows(jobs);
  const chosen = jobs.filter((job) => selected.has(frameworkOf(job))).length;
  return (
    <div class="card scroll">
      <table class={isChosen ? "jobs chosen-columns" : "jobs"}>
        <caption class="sr">Jobs</caption>
        <thead>
          <tr>
            <th class="c-select">
              <input
                type="checkbox"
                aria-label="Select all jobs of this page"
                checked={chosen === jobs.length}
                indeterminate={chosen > 0 && chosen < jobs.length}
                onChange={(event) => onSelectPage(event.currentTarget.checked)}
              />
            </th>
            {[NAME, ...columns].map((column) => (
              <ColumnHead key={column.id} column={column} order={order} />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((job) => {
            const framework = frameworkOf(job);
            return (
              <tr key={framework} class={selected.has(framework) ? "is-selected" : ""}>
                <td class="c-select">
                  <input type="checkbox" aria-label={`Select ${job.name}`} checked={selected.has(framework)} {...boxOf(framework)} />
                </td>
                <NameCell job={job} columns={columns} now={now} />
                {columns.map((column) => (
                  <ValueCell key={column.id} column={column} job={job} now={now} />
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** Rows that fill the window; those below it follow when these are painted. */
function useFirstRows(jobs: readonly JobSummary[]): readonly JobSummary[] {
  const isPainted = useSignal(false);
  const hasRows = jobs.length > 0;
  useEffect(() => {
    isPainted.value ||= hasRows;
  }, [hasRows, isPainted]);
  return isPainted.value ? jobs : jobs.slice(0, Math.ceil(innerHeight / ROW_PX));
}

const classOf = ({ id, kind, isNumber }: JobColumn) => `c-${kind === "job" ? id : "value"}${isNumber ? " number" : ""}`;

function ColumnHead({ column, order }: { column: JobColumn; order: string }) {
  const { kind, label } = column;
  const title = kind === "job" ? undefined : `${kind} ${label}`;
  if (!column.order) return <th class={classOf(column)}>{label}</th>;
  // A name may have commas.
  const [, field, direction] = /^(.*),(.*)$/s.exec(order) ?? [];
  const isSorted = field === column.order;
  const isAscending = direction === "ASC";
  // A first click sorts numbers and times from the largest, names from A.
  const isTime = ["submissionTime", "completionTime", "duration"].includes(column.order);
  const first = column.isNumber || isTime ? "DESC" : "ASC";
  const next = isSorted ? (isAscending ? "DESC" : "ASC") : first;
  return (
    <th class={classOf(column)} title={title} aria-sort={isSorted ? (isAscending ? "ascending" : "descending") : undefined}>
      <button type="button" onClick={() => setQuery({ order: `${column.order},${next}`, page: undefined })}>
        {label}
        {isSorted && <span aria-hidden="true">{isAscending ? " ↑" : " ↓"}</span>}
      </button>
    </th>
  );
}

function NameCell({ job, columns, now }: { job: JobSummary; columns: readonly JobColumn[]; now: number }) {
  const duration = runTime(job.launchedTime, job.completedTime, now);
  const note = noteOf(job);
  return (
    <td class="name c-name">
      <a href={jobHref(frameworkOf(job))} title={job.name}>
        {job.name}
      </a>
      {job.tags.map((tag) => (
        <a class="tag" key={tag} href={href("/jobs", { tag })}>
          {tag}
        </a>
      ))}
      {note && (
        <span class="reason" title={note}>
          {note}
        </span>
      )}
      {/* Where the window has no room for their columns. */}
      <span class="meta">
        {note && <span class="phone">{note}</span>}
        {columns.map((column) => {
          const { text } = column.kind === "job" ? { text: "" } : column.cellOf(job, now);
          return (
            text && (
              <span class="phone" key={column.id}>
                {column.label} {text}
              </span>
            )
          );
        })}
        <span class="phone">
          {job.username} · {shortTime(job.submissionTime, now)}
        </span>
        {job.launchedTime !== null && <span class="phone">{duration}</span>}
        {job.virtualCluster !== "default" && <span>virtual cluster {job.virtualCluster}</span>}
        {job.jobPriority !== null && <span>priority {job.jobPriority}</span>}
        {job.retries > 0 && <span>{counted(job.retries, "retry", "retries")}</span>}
      </span>
    </td>
  );
}

function ValueCell({ column, job, now }: { column: JobColumn; job: JobSummary; now: number }) {
  if (column.id === "state") {
    return (
      <td class="c-state">
        <State state={job.state} />
      </td>
    );
  }
  const { text, title, isQuiet } = column.cellOf(job, now);
  return (
    <td class={`${classOf(column)}${isQuiet ? " quiet" : ""}`} title={title}>
      {text}
    </td>
  );
}

export function Pager({ page, total, pageSize }: { page: number; total: number; pageSize: number }) {
  const last = Math.max(1, Math.ceil(total / pageSize));
  const from = (page - 1) * pageSize;
  const go = (to: number) => setQuery({ page: to <= 1 ? undefined : String(Math.min(to, last)) });
  const goTyped = (event: Event, text: string) => {
    event.preventDefault();
    const typed = Math.trunc(Number(text));
    if (typed >= 1) go(typed);
  };
  return (
    <nav class="pager" aria-label="Pages of the list">
      <span class="quiet">
        {total <= pageSize
          ? counted(total, "job")
          : `${grouped(from + 1)} to ${grouped(Math.min(total, from + pageSize))} of ${counted(total, "job")}`}
      </span>
      {last > 1 && (
        <div class="actions">
          <button class="button" type="button" disabled={page <= 1} onClick={() => go(page - 1)}>
            Previous
          </button>
          <form class="to-page" onSubmit={(event) => goTyped(event, (event.currentTarget.elements[0] as HTMLInputElement).value)}>
            <label>
              Page{" "}
              <input
                key={page}
                type="number"
                min={1}
                max={last}
                defaultValue={String(page)}
                onChange={(event) => goTyped(event, event.currentTarget.value)}
              />{" "}
              of {grouped(last)}
            </label>
          </form>
          <button class="button" type="button" disabled={page >= last} onClick={() => go(page + 1)}>
            Next
          </button>
        </div>
      )}
    </nav>
  );
}
