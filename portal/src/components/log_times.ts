// Times beside the lines of a log: requested for what is shown, as the cluster recorded them.
import type { LogTimes } from "../api_types.ts";
import { duration } from "../format.ts";

/** An offset in the log, and the time in milliseconds of the bytes up to the next pair. */
export type TimePair = readonly [number, number];

/** What a loader needs of the text of the log. */
export interface TimedText {
  /** A part of what is shown whose times are not known; null if there is none. */
  readonly untimed: () => ShownRange | null;
  /** False if this part is no longer shown. */
  readonly addTimes: (range: ShownRange, times: readonly TimePair[]) => boolean;
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

/** The cluster records times to a second or two, until a log has thousands. */
const USUAL_PRECISION_MS = 2000;

/** What a reader has to know about the times beside a log; empty if they are as exact as they look. */
export function precisionNote(ms: number | null | undefined): string {
  if (ms === null) return "This log has no time stamps: the cluster did not record them when it was written.";
  if (ms === undefined || ms <= USUAL_PRECISION_MS) return "";
  return `Time stamps are exact to about ${duration(ms)}: the longer a task writes, the fewer of them are kept.`;
}

/** Requests times, one request at a time. */
export class LogTimesLoader {
  private isLoading = false;

  constructor(
    private readonly text: TimedText,
    /** The times of a part of the log; null if none are wanted. */
    private readonly load: (range: TimeRange) => Promise<LogTimes | null>,
    private readonly pause: (ms: number) => Promise<void>,
    private readonly signal: AbortSignal,
    /** Called with the precision in milliseconds of the times that are shown; null if the log has none. */
    private readonly onPrecision: (ms: number | null) => void,
  ) {}

  /** The text has changed, or times are wanted from now on. */
  async update(): Promise<void> {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      for (let range = this.text.untimed(); range && !this.signal.aborted; range = this.text.untimed()) {
        const found = await this.load(range);
        if (this.signal.aborted || !found) return;
        if (this.text.addTimes(range, found.times)) this.onPrecision(found.precisionMs);
        await this.pause(INTERVAL_MS);
      }
    } finally {
      this.isLoading = false;
    }
  }
}

/** The times of one part of a log, which grows at both ends. */
export class KnownTimes {
  private pairs: TimePair[] = [];
  /** The part of the log that has `pairs`; null while no times were added. */
  private part: TimeRange | null = null;

  get count(): number {
    return this.pairs.length;
  }

  /** Offset from which on no times are known; null while no times were added. */
  get end(): number | null {
    return this.part?.end ?? null;
  }

  /** Whether the times are of more than one day. */
  get hasDays(): boolean {
    const [first, last] = [this.pairs[0], this.pairs.at(-1)];
    return first !== undefined && last !== undefined && dayOf(first[1]) !== dayOf(last[1]);
  }

  /** A part without times of this range; null if there is none. */
  missing(start: number, end: number): TimeRange | null {
    const { part } = this;
    if (start >= end) return null;
    if (!part || end <= part.start || start >= part.end) return { start, end };
    if (start < part.start) return { start, end: part.start };
    return end > part.end ? { start: part.end, end } : null;
  }

  /** Add the times of a part; what is neither directly before nor after the known part replaces it. */
  add({ start, end }: TimeRange, pairs: readonly TimePair[]): void {
    const { part } = this;
    if (part && end === part.start) {
      this.pairs = [...pairs, ...this.pairs];
      this.part = { start, end: part.end };
    } else if (part && start === part.end) {
      // A part begins with the time of its first byte, which may be that of the byte before.
      const isKnown = pairs[0]?.[1] === this.pairs.at(-1)?.[1];
      for (const pair of isKnown ? pairs.slice(1) : pairs) this.pairs.push(pair);
      this.part = { start: part.start, end };
    } else {
      this.pairs = [...pairs];
      this.part = { start, end };
    }
  }

  /** Forget the times of what is before an offset. */
  dropBefore(offset: number): void {
    const { pairs, part } = this;
    if (!part || offset <= part.start) return;
    const dropped = offset < part.end ? firstAfter(pairs, offset) - 1 : pairs.length;
    pairs.splice(0, dropped);
    const [first] = pairs;
    // The one before the offset is the time of the bytes from there on.
    if (first) pairs[0] = [Math.max(first[0], offset), first[1]];
    this.part = { start: offset, end: Math.max(offset, part.end) };
  }

  /** The time of each line by the offsets at which the lines begin; undefined where none is known. */
  of(starts: readonly number[]): (number | undefined)[] {
    return timesOfLines(starts, this.pairs, this.end ?? 0);
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
