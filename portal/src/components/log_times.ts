// Times beside the lines of a log: requested for what is shown, as the cluster recorded them.
import type { LogTimes } from "../api_types.ts";

/** An offset in the log, and the time in milliseconds of the bytes up to the next pair. */
export type TimePair = readonly [number, number];

/** What a loader needs of the text of the log. */
export interface TimedText {
  /** A part of what is shown whose times are not known; null if there is none. */
  readonly untimed: () => ShownRange | null;
  readonly addTimes: (range: ShownRange, times: readonly TimePair[]) => void;
}

export interface TimeRange {
  readonly start: number;
  readonly end: number;
}

/** A part of what is shown; of what is shown instead later the generation is another one. */
export interface ShownRange extends TimeRange {
  readonly generation: number;
}

/** Between two requests, while new output comes. */
const INTERVAL_MS = 500;

/** Requests times, one request at a time. */
export class LogTimesLoader {
  private isLoading = false;

  constructor(
    private readonly text: TimedText,
    /** The times of a part of the log; null if none are wanted. */
    private readonly load: (range: TimeRange) => Promise<LogTimes | null>,
    private readonly pause: (ms: number) => Promise<void>,
    private readonly signal: AbortSignal,
    private readonly onMissing: () => void,
  ) {}

  /** The text has changed, or times are wanted from now on. */
  async update(): Promise<void> {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      for (let range = this.text.untimed(); range && !this.signal.aborted; range = this.text.untimed()) {
        const found = await this.load(range);
        if (this.signal.aborted || !found) return;
        if (found.precisionMs === null) this.onMissing();
        this.text.addTimes(range, found.times);
        await this.pause(INTERVAL_MS);
      }
    } finally {
      this.isLoading = false;
    }
  }
}

/**
 * The time of each line by the offsets at which the lines begin, both in ascending order; undefined where none is known,
 * as from `end` on.
 */
export function timesOfLines(starts: readonly number[], times: readonly TimePair[], end: number): (number | undefined)[] {
  let at = firstAfter(times, starts[0] ?? 0);
  return starts.map((start) => {
    while (at < times.length && (times[at] as TimePair)[0] <= start) at += 1;
    return start < end ? times[at - 1]?.[1] : undefined;
  });
}

/** Index of the first pair after an offset. */
function firstAfter(times: readonly TimePair[], offset: number): number {
  let [first, end] = [0, times.length];
  while (first < end) {
    const middle = (first + end) >> 1;
    if ((times[middle] as TimePair)[0] <= offset) first = middle + 1;
    else end = middle;
  }
  return first;
}

/** Times as they stand beside the lines: with the day if they are of several, all of one width. */
export function timeColumn(times: readonly (number | undefined)[], hasDays: boolean): string[] {
  return times.map((time) => (time === undefined ? "" : hasDays ? `${dayOf(time)} ${clock(time)}` : clock(time)));
}

/** "03-31". */
export function dayOf(time: number): string {
  const date = new Date(time);
  return `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

function clock(time: number): string {
  const date = new Date(time);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}
