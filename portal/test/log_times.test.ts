import assert from "node:assert/strict";
import { test } from "node:test";
import {
  KnownTimes,
  LogTimesLoader,
  precisionNote,
  timeColumn,
  timesOfLines,
  type ShownRange,
  type TimePair,
} from "../src/components/log_times.ts";

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
    addTimes: (range: ShownRange) => {
      added.push(range);
      return range.start === 0;
    },
  };
  const precisions: (number | null)[] = [];
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
    (ms) => void precisions.push(ms),
  );
  await loader.update();
  await loader.update();
  assert.deepEqual(added, [
    { start: 0, end: 10, generation: 0 },
    { start: 10, end: 25, generation: 0 },
  ]);
  // The precision of an answer that came too late is not reported.
  assert.deepEqual(precisions, [1000]);
});

test("times that are less exact than they look say so", () => {
  assert.deepEqual([undefined, 1000, 2000].map(precisionNote), ["", "", ""]);
  assert.match(precisionNote(null), /^This log has no time stamps:/);
  assert.match(precisionNote(16_000), /^Time stamps are exact to about 16 s:/);
  assert.match(precisionNote(128_000), /^Time stamps are exact to about 2 min 8 s:/);
});

test("times are forgotten with the text that is dropped, and requested again with it", () => {
  const times = new KnownTimes();
  times.dropBefore(100);
  assert.deepEqual(times.missing(0, 30), { start: 0, end: 30 });
  times.add({ start: 0, end: 30 }, [
    [0, 1000],
    [10, 2000],
    [20, 3000],
  ]);
  times.dropBefore(15);
  assert.deepEqual(times.of([0, 10, 15, 20, 30]), [undefined, undefined, 2000, 3000, undefined]);
  assert.deepEqual(times.missing(12, 30), { start: 12, end: 15 });
  times.add({ start: 12, end: 15 }, [[12, 2000]]);
  assert.deepEqual(times.of([12, 15, 20]), [2000, 2000, 3000]);
  assert.equal(times.missing(12, 30), null);
  // Text whose times were never requested is dropped, too.
  times.dropBefore(50);
  assert.deepEqual([times.of([40, 50]), times.count], [[undefined, undefined], 0]);
  assert.deepEqual(times.missing(50, 60), { start: 50, end: 60 });
});

test("of a log that is followed without end, only times of its last part stay", () => {
  const times = new KnownTimes();
  for (let at = 0; at < 100_000; at += 1) {
    times.add({ start: at, end: at + 1 }, [[at, at * 1000]]);
    times.dropBefore(at - 9);
  }
  assert.deepEqual(times.of([99_989, 99_990, 99_999]), [undefined, 99_990_000, 99_999_000]);
  assert.equal(times.count, 10);
});
