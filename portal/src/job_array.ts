// Values of the tasks of an array, from the configuration of its job.

/** Among the values of tasks that run again: their indexes in the first job, which are no parameter of a run. */
export const TASK_INDEX = "PAI_TASK_INDEX";

export interface TaskValues {
  readonly names: readonly string[];
  readonly of: (index: number) => readonly string[];
}

/** Of a configuration as JSON; null for a job whose tasks have no values. */
export function taskValuesOf(config: string): TaskValues | null {
  try {
    return taskValues(JSON.parse(config));
  } catch {
    return null; // what is no JSON is shown as it is, in its tab
  }
}

/** Whether the tasks of a configuration as JSON are independent: an array, with values or without. */
export function isArray(config: string | undefined): boolean {
  try {
    const job = record(JSON.parse(config ?? ""));
    return record(job["extras"])["gangAllocation"] === false && Object.keys(record(job["taskRoles"])).length === 1;
  } catch {
    return false;
  }
}

export function taskValues(job: unknown): TaskValues | null {
  const ours = record(record(record(job)["extras"])["openpaisdk"]);
  const rows = columns(ours["arrayRows"]);
  if (rows) return { names: rows.map(([name]) => name), of: (index) => rows.map(([, values]) => values[index] ?? "") };
  const lists = columns(ours["array"]);
  if (!lists) return null;
  const strides = lists.map((_, at) => lists.slice(at + 1).reduce((product, [, values]) => product * values.length, 1));
  // The last variable changes fastest.
  const value = (index: number, at: number) => {
    const values = lists[at]?.[1] ?? [];
    return values[Math.floor(index / (strides[at] ?? 1)) % values.length] ?? "";
  };
  return { names: lists.map(([name]) => name), of: (index) => lists.map((_, at) => value(index, at)) };
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

/** Lists by name; null where there are none. Clusters of other versions may have anything here. */
function columns(value: unknown): readonly [string, readonly string[]][] | null {
  const found = Object.entries(record(value));
  if (!found.length || !found.every(([, values]) => Array.isArray(values) && values.length)) return null;
  return found.map(([name, values]) => [name, (values as unknown[]).map(String)]);
}
