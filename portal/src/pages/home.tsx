// Home: the user's jobs by state, what the cluster has free, what runs, recent failures.
import { useEffect } from "preact/hooks";
import { jobDetail, listJobs, nodesInUse, virtualClusters, type JobSummary, type ResourceUse } from "../api.ts";
import { ErrorNotice, Loading, useNow } from "../components/parts.tsx";
import { ResourceBars } from "../components/use.tsx";
import { runTime, shortTime, stateName } from "../format.ts";
import { usePolled } from "../live.ts";
import { href, jobHref } from "../router.ts";
import { session } from "../session.ts";

const REFRESH_MS = 3000;
const STATES = ["WAITING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"] as const;
const SHOWN = 8;
/** Nodes with bars here; the page of the cluster has all. */
const SHOWN_NODES = 12;

// Reasons of failures, by job and time of its end: they do not change.
const reasons = new Map<string, string>();

async function reasonOf(job: JobSummary, signal: AbortSignal): Promise<string> {
  const key = `${job.username}~${job.name} ${job.completedTime}`;
  let reason = reasons.get(key);
  if (reason === undefined) {
    const detail = await jobDetail(`${job.username}~${job.name}`, "", signal);
    reason = detail.jobStatus.appExitSpec?.reason ?? `Exit code ${job.appExitCode}`;
    reasons.set(key, reason);
  }
  return reason;
}

interface Failure {
  readonly job: JobSummary;
  readonly reason: string;
}

interface Overview {
  readonly counts: readonly number[];
  readonly running: readonly JobSummary[];
  readonly failed: readonly Failure[];
}

async function overview(user: string, signal: AbortSignal): Promise<Overview> {
  const page = (values: Record<string, string>) =>
    listJobs(new URLSearchParams({ withTotalCount: "true", limit: String(SHOWN), ...values }), signal);
  // Awaited together: if one fails before it is awaited, its error is an unhandled rejection.
  const [counted, running, failed] = await Promise.all([
    Promise.all(STATES.map((state) => page({ state, username: user, limit: "0" }))),
    page({ state: "RUNNING" }),
    page({ state: "FAILED", username: user, order: "completionTime,DESC" }),
  ]);
  return {
    counts: counted.map((one) => one.totalCount),
    running: running.data,
    failed: await Promise.all(failed.data.map(async (job) => ({ job, reason: await reasonOf(job, signal) }))),
  };
}

function Nodes({ uses }: { uses: Readonly<Record<string, ResourceUse>> }) {
  const all = Object.entries(uses);
  return (
    <>
      {all.length === 0 && <p class="quiet">The cluster has no nodes at the moment.</p>}
      <ResourceBars uses={Object.fromEntries(all.slice(0, SHOWN_NODES))} />
      {all.length > SHOWN_NODES && (
        <p>
          <a href={href("/cluster")}>All {all.length} nodes</a>
        </p>
      )}
    </>
  );
}

export function HomePage() {
  const user = session.value?.user ?? "";
  const { value, error } = usePolled(`home ${user}`, (signal) => overview(user, signal), REFRESH_MS);
  const clusters = usePolled("clusters", virtualClusters, REFRESH_MS);
  const nodes = usePolled("nodes", nodesInUse, REFRESH_MS);
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
      {!value && !error && <Loading what="your jobs" />}
      {value && (
        <div class="stack">
          <section aria-label="My jobs by state">
            <div class="tiles">
              {STATES.map((state, index) => (
                <a class="card tile" key={state} href={href("/jobs", { user, state })}>
                  <b>{value.counts[index]?.toLocaleString("en")}</b>
                  <span class="quiet">{stateName(state)}</span>
                </a>
              ))}
            </div>
          </section>
          <div class="halves">
            <section class="card padded" aria-labelledby="free">
              <h2 id="free">Virtual clusters</h2>
              {clusters.value && <ResourceBars uses={clusters.value} />}
            </section>
            <section class="card padded" aria-labelledby="nodes">
              <h2 id="nodes">Nodes</h2>
              {nodes.value && <Nodes uses={nodes.value} />}
            </section>
            <section class="card padded" aria-labelledby="running">
              <h2 id="running">Running now</h2>
              {value.running.length === 0 && <p class="quiet">Nothing runs at the moment.</p>}
              <ul class="rows">
                {value.running.map((job) => (
                  <li key={`${job.username}~${job.name}`}>
                    <a href={jobHref(`${job.username}~${job.name}`)}>{job.name}</a>
                    <span class="quiet">
                      {job.username} · {runTime(job.launchedTime, null, now)}
                    </span>
                  </li>
                ))}
              </ul>
            </section>
            <section class="card padded" aria-labelledby="failed">
              <h2 id="failed">My recent failures</h2>
              {value.failed.length === 0 && <p class="quiet">None of your jobs has failed.</p>}
              <ul class="rows">
                {value.failed.map(({ job, reason }) => (
                  <li key={`${job.username}~${job.name}`}>
                    <a href={jobHref(`${job.username}~${job.name}`)}>{job.name}</a>
                    <span class="quiet">{shortTime(job.completedTime, now)}</span>
                    <span class="whole">{reason}</span>
                  </li>
                ))}
              </ul>
            </section>
          </div>
        </div>
      )}
    </>
  );
}
