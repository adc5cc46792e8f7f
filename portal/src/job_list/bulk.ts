// One action on each of many jobs: a few requests at a time, with progress, and what became of each.
import { ApiError } from "../api_error.ts";
import { backoffMs, pause } from "../pause.ts";

/** A browser opens six connections; one stays for the page itself. */
const AT_ONCE = 5;
/** The server had too much to do, and has done nothing: the request is sent again. */
const REPEATED_STATUSES = [429, 503];
const MAX_REPEATS = 8;

export interface Outcome {
  readonly framework: string;
  /** `unchanged`: there was nothing to do; `left`: it was not tried. */
  readonly kind: "done" | "unchanged" | "failed" | "left";
  /** What was done, or why it was not. */
  readonly text: string;
}

/** Thrown by an action that has found nothing to do. */
export class NothingToDo extends Error {}

/** Does something with a job; returns what is to be said about it. */
export type Action = (framework: string, signal: AbortSignal) => Promise<string>;

/** Outcomes in the order of the jobs. After `signal` no other one is begun; those that are under way end. */
export async function forEachJob(
  frameworks: readonly string[],
  action: Action,
  signal: AbortSignal,
  onProgress: (done: number) => void,
): Promise<readonly Outcome[]> {
  const outcomes = new Map<string, Outcome>();
  const remaining = [...frameworks];
  const work = async () => {
    while (!signal.aborted) {
      const framework = remaining.shift();
      if (framework === undefined) return;
      outcomes.set(framework, await outcomeOf(framework, action, signal));
      onProgress(outcomes.size);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return frameworks.map((framework) => outcomes.get(framework) ?? { framework, kind: "left", text: "" });
}

async function outcomeOf(framework: string, action: Action, signal: AbortSignal): Promise<Outcome> {
  for (let repeats = 1; ; repeats += 1) {
    try {
      return { framework, kind: "done", text: await action(framework, signal) };
    } catch (error) {
      if (error instanceof NothingToDo) return { framework, kind: "unchanged", text: error.message };
      if (!(error instanceof ApiError)) throw error;
      if (REPEATED_STATUSES.includes(error.status) && repeats <= MAX_REPEATS) {
        await pause(backoffMs(repeats), signal);
        if (!signal.aborted) continue;
        return { framework, kind: "left", text: "" };
      }
      return { framework, kind: "failed", text: [error.message, error.hint].filter(Boolean).join(" ") };
    }
  }
}

/** Numbers of each kind. */
export function countOutcomes(outcomes: readonly Outcome[]): Record<Outcome["kind"], number> {
  const counts = { done: 0, unchanged: 0, failed: 0, left: 0 };
  for (const { kind } of outcomes) counts[kind] += 1;
  return counts;
}
