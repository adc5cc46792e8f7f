// Runs the tests of one file in a page, and returns what failed.

type Run = () => Promise<void> | void;

const tests: [string, Run][] = [];

export function test(name: string, run: Run): void {
  tests.push([name, run]);
}

/** Whether two plain values have the same JSON. */
export function equal(actual: unknown, expected: unknown): void {
  const [have, want] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (have !== want) throw new Error(`${have?.slice(0, 500)} is not ${want?.slice(0, 500)}`);
}

const DEADLINE_MS = 60_000;

/** Wait until something holds. */
export async function until(holds: () => boolean): Promise<void> {
  const ends = performance.now() + DEADLINE_MS;
  while (!holds()) {
    if (performance.now() > ends) throw new Error(`not so in time: ${holds.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function run(): Promise<{ names: string[]; failures: string[] }> {
  const failures: string[] = [];
  for (const [name, one] of tests) {
    try {
      await one();
    } catch (error) {
      failures.push(`${name}: ${String(error)}`);
    }
  }
  return { names: tests.map(([name]) => name), failures };
}

Object.assign(globalThis, { runTests: run });
