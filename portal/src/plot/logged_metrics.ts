// What the program of a task logged: lines of JSON, read into metrics with their values by step.

/** Values whose steps ascend: of one attempt of a task, or of one of several runs within it. */
export interface Segment {
  /** Attempt of the task, from 1. */
  readonly attempt: number;
  readonly steps: number[];
  /** Milliseconds since 1970; NaN where the line has no time. */
  readonly times: number[];
  /** Infinity and NaN among them. */
  readonly values: number[];
}

export interface Metric {
  readonly name: string;
  /** In the order in which they were logged. */
  readonly segments: readonly Segment[];
  readonly count: number;
}

export interface MetricGroup {
  /** What is before the first slash of the names; empty for names without one. */
  readonly name: string;
  readonly metrics: readonly Metric[];
}

interface GrowingMetric extends Metric {
  readonly segments: Segment[];
  count: number;
}

const NEWLINE = 10;
const NUMBER_NAMES: Readonly<Record<string, number>> = { NaN, Infinity, "-Infinity": -Infinity };

export class LoggedMetrics {
  /** The byte from which on nothing was read. */
  next = 0;
  private readonly byName = new Map<string, GrowingMetric>();
  private readonly decoder = new TextDecoder();

  get metrics(): readonly Metric[] {
    return [...this.byName.values()];
  }

  /** Add complete lines. A line that is no object of numbers is skipped. */
  add(lines: Uint8Array): void {
    const end = lines.lastIndexOf(NEWLINE) + 1;
    for (const line of this.decoder.decode(lines.subarray(0, end)).split("\n")) if (line) this.addLine(line);
    this.next += end;
  }

  private addLine(line: string): void {
    const { step, time, values, attempt } = parsed(line);
    if (typeof step !== "number" || typeof values !== "object" || values === null) return;
    const timeMs = typeof time === "number" ? time * 1000 : NaN;
    const number = attemptNumber(attempt);
    for (const [name, entry] of Object.entries(values)) {
      const value = typeof entry === "number" ? entry : typeof entry === "string" ? NUMBER_NAMES[entry] : undefined;
      if (value === undefined) continue;
      let metric = this.byName.get(name);
      if (!metric) this.byName.set(name, (metric = { name, segments: [], count: 0 }));
      addValue(segmentFor(metric, number, step), step, timeMs, value);
      metric.count += 1;
    }
  }
}

interface Line {
  readonly step?: unknown;
  readonly time?: unknown;
  readonly values?: unknown;
  readonly attempt?: unknown;
}

function parsed(line: string): Line {
  // Python writes NaN and infinity as words, which are no JSON.
  for (const text of [line, line.replace(/(?<=[:\s])(NaN|-?Infinity)\b/g, '"$1"')]) {
    try {
      const value: unknown = JSON.parse(text);
      return typeof value === "object" && value !== null ? value : {};
    } catch {
      // The second text, or none.
    }
  }
  return {};
}

/** "1.2" is what follows one attempt of the job and two of the task. */
function attemptNumber(mark: unknown): number {
  const [, job, task] = /^(\d+)\.(\d+)$/.exec(typeof mark === "string" ? mark : "") ?? [];
  return 1 + Number(job ?? 0) + Number(task ?? 0);
}

/** The segment of a value; a program that counts its steps from the beginning again gets a new one. */
function segmentFor(metric: GrowingMetric, attempt: number, step: number): Segment {
  const last = metric.segments[metric.segments.length - 1];
  const [first = -Infinity] = last?.steps ?? [];
  const latest = last?.steps[last.steps.length - 1] ?? -Infinity;
  if (last?.attempt === attempt && !(step <= first && step < latest)) return last;
  const segment = { attempt, steps: [], times: [], values: [] };
  metric.segments.push(segment);
  return segment;
}

/** Several processes of a task may log the same steps, one a little later than the other. */
function addValue({ steps, times, values }: Segment, step: number, time: number, value: number): void {
  let at = steps.length;
  while (at > 0 && (steps[at - 1] ?? 0) > step) at -= 1;
  if (at === steps.length) {
    steps.push(step);
    times.push(time);
    values.push(value);
    return;
  }
  steps.splice(at, 0, step);
  times.splice(at, 0, time);
  values.splice(at, 0, value);
}

/** Metrics without a slash first, then each group in the order in which it was logged. */
export function groupsOf(metrics: readonly Metric[]): MetricGroup[] {
  const groups = new Map<string, Metric[]>([["", []]]);
  for (const metric of metrics) {
    const slash = metric.name.indexOf("/");
    const name = slash > 0 ? metric.name.slice(0, slash) : "";
    const group = groups.get(name);
    if (group) group.push(metric);
    else groups.set(name, [metric]);
  }
  return [...groups].filter(([, members]) => members.length).map(([name, members]) => ({ name, metrics: members }));
}
