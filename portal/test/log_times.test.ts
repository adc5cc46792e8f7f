import assert from "node:assert/strict";
import { test } from "node:test";
import { LogTimesLoader, timeColumn, timesOfLines, type ShownRange, type TimePair } from "../src/components/log_times.ts";

test("each line has the time of its first byte", () => {
  const times: TimePair[] = [
    [0, 1000],
    [10, 2000],
    [11, 3000],
  ];
  assert.deepEqual(timesOfLines([0, 4, 10, 12, 20], times, 15), [1000, 1000, 2000, 3000, undefined]);
  assert.deepEqual(timesOfLines([4, 12], times.slice(1), 15), [undefined, 3000]);
  assert.deepEqual(timesOfLines([], times, 15), []);
});

test("times of one day have no day", () => {
  const time = new Date(2026, 2, 31, 7, 5, 9).getTime();
  assert.deepEqual(timeColumn([time, undefined], false), ["07:05:09", ""]);
  assert.deepEqual(timeColumn([time], true), ["03-31 07:05:09"]);
});

test("what comes during a request is requested next, and nothing twice", async () => {
  const added: ShownRange[] = [];
  let end = 10;
  const text = {
    untimed: () => {
      const start = added.at(-1)?.end ?? 0;
      return start < end ? { start, end, generation: 0 } : null;
    },
    addTimes: (range: ShownRange) => void added.push(range),
  };
  let missing = 0;
  const loader: LogTimesLoader = new LogTimesLoader(
    text,
    async (range) => {
      if (range.start === 0) {
        end = 25;
        await loader.update();
      }
      return { precisionMs: range.start === 0 ? 1000 : null, times: [] };
    },
    () => Promise.resolve(),
    new AbortController().signal,
    () => (missing += 1),
  );
  await loader.update();
  await loader.update();
  assert.deepEqual(added, [
    { start: 0, end: 10, generation: 0 },
    { start: 10, end: 25, generation: 0 },
  ]);
  assert.equal(missing, 1);
});
