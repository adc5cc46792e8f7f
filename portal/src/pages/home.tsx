// Home: the user's jobs by state, what of the cluster is in use, what runs, recent failures.
import { useEffect } from "preact/hooks";
import { listJobs, nodesInUse, virtualClusters, type ResourceUse } from "../api.ts";
import type { JobPage, JobSummary } from "../api_types.ts";
import { ErrorNotice, Loading } from "../components/notices.tsx";
import { useNow } from "../components/use_now.ts";
import { ResourceBars } from "../components/resource_bars.tsx";
import { counted, noteOf, runTime, shortTime, stateName } from "../format.ts";
import { usePolled } from "../live.ts";
import { href, jobHref } from "../router.ts";
import { session } from "../session.ts";

const REFRESH_MS = 3000;
const STATES = ["WAITING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"] as const;
const SHOWN = 8;
/** Of the newest jobs that succeeded, those with failed tasks are among the failures. */
const SEARCHED = 50;
/** Virtual clusters or nodes with bars here, those with the most free first; the page of the cluster has all. */
const SHOWN_USES = 4;

interface Overview {
  readonly counts: readonly number[];
  /** Of all users. */
  readonly running: JobPage;
  readonly waiting: readonly JobSummary[];
  readonly failed: readonly JobSummary[];
}

async function overview(user: string, signal: AbortSignal): Promise<Overview> {
  const page = (values: Record<string, string>) =>
    listJobs(new URLSearchParams({ withTotalCount: "true", limit: String(SHOWN), ...values }), signal);
  const newest = { limit: String(SEARCHED), order: "completionTime,DESC" };
  // Awaited together: if one fails before it is awaited, its error is an unhandled rejection.
  const [counts, running, waiting, failed] = await Promise.all([
    Promise.all(STATES.map((state) => page({ state, username: user, ...(state === "SUCCEEDED" ? newest : { limit: "0" }) }))),
    page({ state: "RUNNING" }),
    page({ state: "WAITING", username: user, reasons: "true" }),
    page({ state: "FAILED", username: user, order: "completionTime,DESC", causes: "true" }),
  ]);
  return {
    counts: counts.map((one) => one.totalCount),
    running,
    waiting: waiting.data,
    failed: [...failed.data, ...(counts[STATES.indexOf("SUCCEEDED")]?.data ?? []).filter(({ failedTaskNumber }) => failedTaskNumber)]
      .sort((one, other) => (other.completedTime ?? 0) - (one.completedTime ?? 0))
      .slice(0, SHOWN),
  };
}

function Freest({ uses, what }: { uses: Readonly<Record<string, ResourceUse>>; what: string }) {
  const free = ({ resourcesUsed: used, resourcesTotal: total }: ResourceUse, kind: "gpu" | "cpu") => total[kind] - used[kind];
  const all = Object.entries(uses);
  const isCut = all.length > SHOWN_USES;
  if (isCut) all.sort(([, one], [, other]) => free(other, "gpu") - free(one, "gpu") || free(other, "cpu") - free(one, "cpu"));
  return (
    <>
      {all.length === 0 && <p class="quiet">The cluster has no {what} at the moment.</p>}
      <ResourceBars uses={Object.fromEntries(all.slice(0, SHOWN_USES))} />
      {isCut && (
        <p class="more-link">
          <a href={href("/cluster")}>
            All {all.length} {what}
          </a>
        </p>
      )}
    </>
  );
}

function JobLink({ job }: { job: JobSummary }) {
  return (
    <a class="job-link" href={jobHref(`${job.username}~${job.name}`)} title={job.name}>
      {job.name}
    </a>
  );
}

/** The beginning of a long one; the page of the job has all of it. */
function JobNote({ text }: { text: string }) {
  return (
    <span class="whole job-note" title={text}>
      {text}
    </span>
  );
}

export function HomePage() {
  const user = session.value?.user ?? "";
  const { value, error } = usePolled(`home ${user}`, (signal) => overview(user, signal), REFRESH_MS);
  const clusters = usePolled("clusters", virtualClusters, REFRESH_MS);
  const nodes = usePolled("nodes", nodesInUse, REFRESH_MS);
  // Shown together: bars that come later would move what is below.
  const isShown = value && [clusters, nodes].every((one) => one.value || one.error);
  const now = useNow(true);
  useEffect(() => {
    document.title = "Home · OpenPAI";
  }, []);
  return (
    <>
      <div class="head">
        <h1>Home</h1>
      </div>
      {error && <ErrorNotice error={error} />}
      {!isShown && !error && <Loading what="your jobs" />}
      {isShown && (
        <div class="stack">
          <section aria-label="My jobs by state">
            <div class="tiles">
              {STATES.map((state, index) => (
                <a class="card tile" key={state} href={href("/jobs", { user, state })}>
                  <b>{value.counts[index]?.toLocaleString("en")}</b>
                  <span class={`dot ${state}`}>{stateName(state)}</span>
                </a>
              ))}
            </div>
          </section>
          <div class="halves">
            <section class="card padded" aria-labelledby="free">
              <h2 id="free">Virtual clusters</h2>
              {clusters.value && <Freest uses={clusters.value} what="virtual clusters" />}
            </section>
            <section class="card padded" aria-labelledby="nodes">
              <h2 id="nodes">Nodes</h2>
              {nodes.value && <Freest uses={nodes.value} what="nodes" />}
            </section>
            <section class="card padded" aria-labelledby="running">
              <h2 id="running">
                Running now <span class="quiet of-all">of all users</span>
              </h2>
              {value.running.data.length === 0 && (
                <p class="quiet">
                  Nothing runs at the moment. <a href={href("/submit")}>Submit a job</a>
                </p>
              )}
              <ul class="rows">
                {value.running.data.map((job) => (
                  <li key={`${job.username}~${job.name}`}>
                    <JobLink job={job} />
                    <span class="quiet">
                      {job.username}
                      {job.totalGpuNumber > 0 && ` · ${counted(job.totalGpuNumber, "GPU")}`} · {runTime(job.launchedTime, null, now)}
                    </span>
                  </li>
                ))}
              </ul>
              {value.running.totalCount > SHOWN && (
                <p class="more-link">
                  <a href={href("/jobs", { state: "RUNNING" })}>All {counted(value.running.totalCount, "running job")}</a>
                </p>
              )}
            </section>
            <section class="card padded" aria-labelledby="failed">
              <h2 id="failed">My recent failures</h2>
              {value.failed.length === 0 && <p class="quiet">None of your jobs has failed.</p>}
              <ul class="rows">
                {value.failed.map((job) => (
                  <li key={`${job.username}~${job.name}`}>
                    <JobLink job={job} />
                    <span class="quiet">{shortTime(job.completedTime, now)}</span>
                    {noteOf(job) && <JobNote text={noteOf(job)} />}
                  </li>
                ))}
              </ul>
            </section>
            {value.waiting.length > 0 && (
              <section class="card padded" aria-labelledby="waiting">
                <h2 id="waiting">My waiting jobs</h2>
                <ul class="rows">
                  {value.waiting.map((job) => (
                    <li key={`${job.username}~${job.name}`}>
                      <JobLink job={job} />
                      <span class="quiet">{shortTime(job.submissionTime, now)}</span>
                      {job.reason && <JobNote text={job.reason} />}
                    </li>
                  ))}
                </ul>
              </section>
            )}
          </div>
        </div>
      )}
    </>
  );
}
