// Timeline of a job: how long each attempt waited and ran, how it ended, and the events.
import { useRef } from "preact/hooks";
import { jobDetail } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { Empty, ErrorNotice, State } from "../components/notices.tsx";
import { useNow } from "../components/use_now.ts";
import { duration, exactTime, isFinished, withStop } from "../format.ts";
import { usePolled, type EventFrame } from "../live.ts";
import { address, href } from "../router.ts";

/** Bars; of more attempts, the latest. */
const MAX_ATTEMPTS = 20;
/** Only an attempt that runs, while an earlier one is looked at, is loaded again. */
const REFRESH_MS = 10_000;

interface Props {
  readonly framework: string;
  readonly job: JobDetail;
  readonly events: readonly EventFrame[];
}

export function JobTimeline({ framework, job, events }: Props) {
  return (
    <div class="stack">
      <Attempts framework={framework} job={job} />
      <Events events={events} />
    </div>
  );
}

interface Attempt {
  readonly number: number;
  readonly state: string;
  readonly created: number;
  readonly started: number | null;
  readonly ended: number | null;
  readonly outcome: string;
}

function Attempts({ framework, job }: { framework: string; job: JobDetail }) {
  const { retries: last, state, attemptId } = job.jobStatus;
  // An attempt that has ended does not change.
  const ended = useRef(new Map<number, Attempt>());
  const first = Math.max(0, last + 1 - MAX_ATTEMPTS);
  const others = usePolled(
    `attempts ${framework} ${last} ${state} ${attemptId}`,
    async (signal) => {
      const attempts: Attempt[] = [];
      for (let number = first; number <= last; number += 1) {
        if (number === attemptId) continue;
        const attempt = ended.current.get(number) ?? attemptOf(await jobDetail(framework, String(number), signal));
        if (attempt.ended !== null) ended.current.set(number, attempt);
        attempts.push(attempt);
      }
      return attempts;
    },
    REFRESH_MS,
  );
  const now = useNow(!isFinished(state));
  if (others.error) return <ErrorNotice error={others.error} />;
  const shown = [...(others.value ?? []).filter((attempt) => attempt.number !== attemptId), attemptOf(job)];
  const attempts = shown.filter((attempt) => attempt.number >= first).sort((one, other) => one.number - other.number);
  const begin = Math.min(...attempts.map((attempt) => attempt.created));
  const end = Math.max(begin + 1, ...attempts.map((attempt) => attempt.ended ?? now));
  const share = (from: number, to: number) => `${Math.max(0, ((to - from) / (end - begin)) * 100)}%`;
  return (
    <section class="card padded" aria-labelledby="attempts">
      <h2 id="attempts">Attempts</h2>
      {first > 0 && (
        <p class="quiet">
          The last {MAX_ATTEMPTS} of {last + 1} attempts.
        </p>
      )}
      <ol class="timeline">
        {attempts.map((attempt) => {
          const until = attempt.ended ?? now;
          const started = attempt.started ?? until;
          return (
            <li key={attempt.number}>
              <span class="timeline-head">
                <a href={href(address.value.path, { attempt: attempt.number === last ? "" : String(attempt.number) })}>
                  Attempt {attempt.number + 1}
                </a>
                <State state={attempt.state} />
                <span class="quiet">
                  {exactTime(attempt.created)}: waited {duration(started - attempt.created)}
                  {attempt.started !== null && `, ran ${duration(until - attempt.started)}`}
                </span>
              </span>
              <span class="timeline-track" aria-hidden="true">
                <span style={{ width: share(begin, attempt.created) }} />
                <span class="waited" style={{ width: share(attempt.created, started) }} />
                <span class={`ran ${attempt.state}`} style={{ width: share(started, until) }} />
              </span>
              {attempt.outcome && <span class="whole">{withStop(attempt.outcome)}</span>}
            </li>
          );
        })}
      </ol>
    </section>
  );
}

function attemptOf({ jobStatus: status }: JobDetail): Attempt {
  const ended = status.appCompletedTime;
  const started = status.appLaunchedTime;
  return {
    number: status.attemptId,
    state: status.attemptState,
    created: status.appCreatedTime ?? status.submissionTime,
    // An attempt that never started has its end as its start.
    started: started === ended ? null : started,
    ended,
    outcome: status.appExitCode === null || status.attemptState === "SUCCEEDED" ? "" : (status.appExitSpec?.reason ?? ""),
  };
}

function Events({ events }: { events: readonly EventFrame[] }) {
  if (!events.length) {
    return (
      <div class="card">
        <Empty title="No events">
          <p>What the cluster notices about the job appears here: why it waits, what was retried, what was lost.</p>
        </Empty>
      </div>
    );
  }
  return (
    <div class="card scroll">
      <table class="events">
        <caption class="sr">Events, newest first</caption>
        <thead>
          <tr>
            <th>Time</th>
            <th>Type</th>
            <th>Reason</th>
            <th>Message</th>
          </tr>
        </thead>
        <tbody>
          {events.map((event) => (
            <tr key={`${event.reason} ${event.message}`}>
              <td>{exactTime(event.time)}</td>
              <td>{event.type}</td>
              <td>{event.reason}</td>
              <td class="message">{event.message}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
