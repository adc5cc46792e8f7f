// Why a job failed, of what its detail says.
import type { JobDetail } from "./api.ts";
import { cleanText } from "./components/log_text.ts";
import { isFinished } from "./format.ts";

type Status = JobDetail["jobStatus"];

/** The last line that the deciding task wrote, if the reason does not quote it already. */
export function lastErrorLine({ appExitMessages: messages, appExitSpec: spec }: Status): string {
  const lines = cleanText(messages?.runtime?.errorLogs?.user ?? "")
    .split("\n")
    .filter((line) => line.trim());
  const last = lines[lines.length - 1]?.trim() ?? "";
  return spec?.reason?.includes(last) ? "" : last;
}

/** What to do. To wait for the next attempt is no advice where there is none. */
export function remedies({ appExitSpec: spec, state }: Status): readonly string[] {
  const all = spec?.solution ?? [];
  return isFinished(state) ? all.filter((text) => !text.startsWith("The cluster retries")) : all;
}
