// Series of the runs that are drawn: few requests at once, and only for what is new.
import type { MetricSeriesPart } from "../api_types.ts";
import { LoggedMetrics, type Metric } from "../plot/logged_metrics.ts";
import type { Run } from "./runs.ts";

const MAX_REQUESTS = 4;

export interface SeriesAddress {
  readonly key: string;
  readonly framework: string;
  readonly role: string;
  readonly index: number;
  readonly metric: string;
  /** Values of the metric that the cluster has read. */
  readonly count: number;
}

type ReadSeries = (address: SeriesAddress, start: number, signal: AbortSignal) => Promise<MetricSeriesPart>;

/** Where the series of a metric is; a task that began again has a new one. */
export function seriesOf(run: Run, metric: string): SeriesAddress | undefined {
  const found = run.metrics.get(metric);
  if (!found) return undefined;
  const { role, index, count, launchedTime } = found;
  const { framework } = run;
  return { key: `${framework} ${role} ${index} ${launchedTime ?? ""} ${metric}`, framework, role, index, metric, count };
}

export class RunSeries {
  /** The last problem; empty when the last request went well. */
  problem = "";
  private readonly byKey = new Map<string, LoggedMetrics>();
  private readonly active = new Set<string>();
  private readonly abort = new AbortController();
  private waiting: readonly SeriesAddress[] = [];
  private readonly read: ReadSeries;
  /** `isLast`: nothing more is being read. */
  private readonly onChange: (isLast: boolean) => void;

  constructor(read: ReadSeries, onChange: (isLast: boolean) => void) {
    this.read = read;
    this.onChange = onChange;
  }

  /** What was read until now. */
  metric({ key, metric }: SeriesAddress): Metric | undefined {
    return this.byKey.get(key)?.metrics.find(({ name }) => name === metric);
  }

  isComplete(wanted: SeriesAddress): boolean {
    return (this.metric(wanted)?.count ?? 0) >= wanted.count;
  }

  /** Read these and no others, where the cluster has more than was read. What is being read is read to its end. */
  want(wanted: readonly SeriesAddress[]): void {
    this.waiting = wanted.filter((one) => !this.isComplete(one) && !this.active.has(one.key));
    this.fill();
  }

  close(): void {
    this.waiting = [];
    this.abort.abort();
  }

  private fill(): void {
    while (this.active.size < MAX_REQUESTS) {
      const [next, ...rest] = this.waiting;
      if (!next) return;
      this.waiting = rest;
      this.active.add(next.key);
      void this.load(next);
    }
  }

  private async load(wanted: SeriesAddress): Promise<void> {
    const { key } = wanted;
    const logged = this.byKey.get(key) ?? new LoggedMetrics();
    this.byKey.set(key, logged);
    try {
      let hasMore = true;
      while (hasMore) {
        const part = await this.read(wanted, logged.next, this.abort.signal);
        logged.add(part);
        hasMore = part.hasMore;
      }
      this.problem = "";
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
    }
    this.active.delete(key);
    if (this.abort.signal.aborted) return;
    this.fill();
    this.onChange(this.active.size === 0);
  }
}
