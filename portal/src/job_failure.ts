// Why a job failed, of what its detail says.
import type { JobDetail } from "./api_types.ts";
import { cleanText } from "./escape_sequences.ts";
import { isFinished } from "./format.ts";

type Status = JobDetail["jobStatus"];

/** Why it failed: the cause that lists show, and what the exit code means, where neither says the other. */
export function explanations({ cause = "", jobStatus: { appExitSpec: spec } }: JobDetail): readonly string[] {
  const reason = spec?.reason ?? "";
  // A list has the first 300 characters of its first line.
  const isQuoted = reason.replace(/\s+/g, " ").includes(cause.replace(/…$/, "").replace(/\s+/g, " "));
  return (isQuoted ? [reason] : [cause, reason]).filter(Boolean);
}

/** The last line that the deciding task wrote, if nothing quotes it already. */
export function lastErrorLine(job: JobDetail): string {
  const lines = cleanText(job.jobStatus.appExitMessages?.runtime?.errorLogs?.user ?? "")
    .split("\n")
    .filter((line) => line.trim());
  const last = lines[lines.length - 1]?.trim() ?? "";
  return explanations(job).some((text) => text.includes(last)) ? "" : last;
}

/** What to do. To wait for the next attempt is no advice where there is none. */
export function remedies({ appExitSpec: spec, state }: Status): readonly string[] {
  const all = spec?.solution ?? [];
  return isFinished(state) ? all.filter((text) => !text.startsWith("The cluster retries")) : all;
}
