// Numbers and times as people read them.
import type { JobSummary } from "./api_types.ts";

const STATE_NAMES: Readonly<Record<string, string>> = {
  WAITING: "Waiting",
  RUNNING: "Running",
  STOPPING: "Stopping",
  SUCCEEDED: "Succeeded",
  STOPPED: "Stopped",
  FAILED: "Failed",
};

export function stateName(state: string): string {
  return STATE_NAMES[state] ?? "Unknown";
}

export function isFinished(state: JobSummary["state"]): boolean {
  return state === "SUCCEEDED" || state === "FAILED" || state === "STOPPED";
}

/** "3 s", "5 min 10 s", "2 h 5 min", "3 d 4 h". */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const parts: [number, string, number, string][] = [
    [86_400, "d", 3600, "h"],
    [3600, "h", 60, "min"],
    [60, "min", 1, "s"],
  ];
  for (const [unit, name, smaller, smallerName] of parts) {
    if (seconds < unit) continue;
    const rest = Math.floor((seconds % unit) / smaller);
    return `${Math.floor(seconds / unit)} ${name}${rest ? ` ${rest} ${smallerName}` : ""}`;
  }
  return `${seconds} s`;
}

/** How long a job or task has run; empty before its start. */
export function runTime(launched: number | null, completed: number | null, now: number): string {
  return launched === null ? "" : duration((completed ?? now) - launched);
}

/** A sentence with its full stop; texts of the cluster come with and without it. */
export function withStop(sentence: string): string {
  return /[.!?…:]$/.test(sentence) ? sentence : `${sentence}.`;
}

const timeOfDay = timeFormat({ hour: "2-digit", minute: "2-digit", hour12: false });
const dayAndTime = timeFormat({
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  hour12: false,
});
const dayOfThisYear = timeFormat({ month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });
const exact = timeFormat({ dateStyle: "medium", timeStyle: "medium", hour12: false });
const day = timeFormat({ dateStyle: "medium" });

/** A format of the user's language, made when it is first used: the first one takes as long as a small page. */
function timeFormat(options: Intl.DateTimeFormatOptions): (ms: number) => string {
  let format: Intl.DateTimeFormat | undefined;
  return (ms) => (format ??= new Intl.DateTimeFormat(undefined, options)).format(ms);
}

/** Make the formats that lists use, while the page waits for its first answer. */
export function prepareTimeFormats(): void {
  for (const format of [timeOfDay, dayOfThisYear, dayAndTime, exact]) format(0);
}

export function dayOf(ms: number): string {
  return day(ms);
}

/** "14:05" today, else with the day, and with the year where it is another one. */
export function shortTime(ms: number | null, now: number): string {
  if (ms === null) return "";
  const [then, today] = [new Date(ms), new Date(now)];
  if (then.toDateString() === today.toDateString()) return timeOfDay(ms);
  return (then.getFullYear() === today.getFullYear() ? dayOfThisYear : dayAndTime)(ms);
}

export function exactTime(ms: number | null): string {
  return ms === null ? "" : exact(ms);
}

/** "1,204": whole numbers, without the formats of `Intl`, of which the first takes milliseconds. */
export function grouped(count: number): string {
  return String(count).replace(/\B(?=(?:\d{3})+$)/g, ",");
}

/** "1 job", "1,204 jobs". */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${grouped(count)} ${count === 1 ? one : many}`;
}

/** "1.5 MB/s". */
export function rate(bytesPerSecond: number): string {
  return `${fileSize(bytesPerSecond)}/s`;
}

/** Memory that the API counts in MB: "512 MB", "62.5 GB", "503 GB", "3.9 TB". */
export function memory(mb: number): string {
  if (mb < 1024) return `${Math.round(mb)} MB`;
  const isLarge = mb >= 1024 ** 2;
  const size = mb / (isLarge ? 1024 ** 2 : 1024);
  return `${Number(size.toFixed(size < 100 ? 1 : 0))} ${isLarge ? "TB" : "GB"}`;
}

const SIZES = ["KB", "MB", "GB", "TB", "PB"] as const;

/** "512 B", "1.5 KB", "12 MB", "1.2 TB". */
export function fileSize(bytes: number): string {
  if (bytes < 1024) return `${Math.round(bytes)} B`;
  let value = bytes / 1024;
  let at = 0;
  // 1023.96 KB would be shown as 1024 KB.
  while (value >= 1023.95 && at < SIZES.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${value < 99.95 ? Number(value.toFixed(1)) : Math.round(value)} ${SIZES[at]}`;
}

/** A long name without its middle: those of metrics differ at both ends. */
export function shortName(name: string, most = 24): string {
  const end = Math.floor((most - 1) * 0.45);
  return name.length > most ? `${name.slice(0, most - 1 - end)}…${name.slice(name.length - end)}` : name;
}

/** Four digits of a number. */
export function significant(value: number): string {
  if (!Number.isFinite(value) || value === 0) return String(value);
  const number = Number(value.toPrecision(4));
  const size = Math.abs(number);
  return size >= 1e7 || size < 1e-4 ? number.toExponential().replace("e+", "e") : String(number);
}

interface ListedFailure {
  readonly reason?: string | null;
  readonly failedTaskNumber?: number;
  readonly totalTaskNumber: number;
}

/** Why a job waits or failed, and how many of its tasks failed: a job that succeeded may have failed tasks. */
export function noteOf({ reason, failedTaskNumber: failed, totalTaskNumber: all }: ListedFailure): string {
  const tasks = failed ? `${grouped(failed)} of ${counted(all, "task")} failed` : "";
  return [tasks, reason].filter(Boolean).join(". ");
}
