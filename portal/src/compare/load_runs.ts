// Requests for the runs of jobs: in parts, without the jobs that do not exist any more.
import { ApiError, get } from "../api.ts";
import type { JobRuns, RunPage } from "../api_types.ts";

/** Names are in the address of a request. */
const NAMES_PER_REQUEST = 50;

export interface LoadedRuns {
  readonly jobs: readonly (JobRuns & { readonly place: number })[];
  /** Full names of jobs that do not exist, or that the user may not see. */
  readonly missing: readonly string[];
}

/** `missing`: jobs that were missing before, which are not asked for again. */
export async function loadRuns(names: readonly string[], missing: readonly string[], signal: AbortSignal): Promise<LoadedRuns> {
  const jobs: (JobRuns & { readonly place: number })[] = [];
  const gone = new Set(missing);
  for (let from = 0; from < names.length; from += NAMES_PER_REQUEST) {
    const part = names.slice(from, from + NAMES_PER_REQUEST);
    for (const job of await loadPart(part, gone, signal)) {
      jobs.push({ ...job, place: names.indexOf(`${job.username}~${job.name}`) });
    }
  }
  return { jobs, missing: names.filter((name) => gone.has(name)) };
}

async function loadPart(part: readonly string[], gone: Set<string>, signal: AbortSignal): Promise<readonly JobRuns[]> {
  for (;;) {
    const present = part.filter((name) => !gone.has(name));
    try {
      return await loadPages(present, signal);
    } catch (error) {
      const name = error instanceof ApiError ? missingJob(error, present) : undefined;
      if (name === undefined) throw error;
      gone.add(name);
    }
  }
}

/** A response names the first job that is missing. */
function missingJob({ status, message }: ApiError, names: readonly string[]): string | undefined {
  if (status !== 404 && status !== 403) return undefined;
  const words = message.replace(/\.$/, "").split(" ");
  return names.find((name) => words.includes(name));
}

async function loadPages(names: readonly string[], signal: AbortSignal): Promise<readonly JobRuns[]> {
  const jobs: JobRuns[] = [];
  while (jobs.length < names.length) {
    const query = new URLSearchParams({ jobs: names.join(","), limit: String(names.length), offset: String(jobs.length) });
    const page = await get<RunPage>(`api/v2/runs?${query.toString()}`, signal);
    jobs.push(...page.jobs);
    if (!page.jobs.length) break;
  }
  return jobs;
}
