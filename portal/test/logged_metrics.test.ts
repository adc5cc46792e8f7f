import assert from "node:assert/strict";
import { test } from "node:test";
import type { MetricSegment, MetricSeriesPart } from "../src/api_types.ts";
import { groupsOf, LoggedMetrics } from "../src/plot/logged_metrics.ts";
import { processorMs } from "./processor_time.ts";

function segment(name: string, steps: number[], values: (number | string)[] = steps, more: Partial<MetricSegment> = {}): MetricSegment {
  return { name, attempt: 1, steps, times: steps.map(() => null), values, ...more };
}

function part(...segments: MetricSegment[]): MetricSeriesPart {
  const counts = segments.map(({ name, values }) => ({
    name,
    count: values.length,
    notFinite: values.filter((one) => typeof one === "string").length,
  }));
  return { segments, counts, next: 100, hasMore: false, isWhole: false };
}

function logged(...segments: MetricSegment[]): LoggedMetrics {
  const metrics = new LoggedMetrics();
  metrics.add(part(...segments));
  return metrics;
}

const stepsOf = (metrics: LoggedMetrics) => metrics.metrics[0]?.segments.map(({ steps }) => steps);

test("values are those of their metric, with their times", () => {
  const [loss, rate, ...more] = logged(segment("loss", [1, 2], [0.5, 0.25], { times: [1000, null] }), segment("rate", [1], [3])).metrics;
  assert.deepEqual(
    [loss?.segments[0]?.times, loss?.segments[0]?.values],
    [
      [1000, NaN],
      [0.5, 0.25],
    ],
  );
  assert.equal(loss?.count, 2);
  assert.deepEqual(rate?.segments[0]?.values, [3]);
  assert.equal(more.length, 0);
});

test("names of numbers that JSON does not have are numbers, and are counted", () => {
  const [metric] = logged(segment("a", [1, 2, 3], ["NaN", "Infinity", "-Infinity"])).metrics;
  assert.deepEqual(metric?.segments[0]?.values, [NaN, Infinity, -Infinity]);
  assert.equal(metric?.notFinite, 3);
});

test("each attempt has a segment, and a part that follows goes on with the last one", () => {
  const metrics = logged(segment("loss", [1, 2]), segment("loss", [2, 3], [0, 0], { attempt: 2 }));
  assert.equal(metrics.next, 100);
  metrics.add(part(segment("loss", [4], [0], { attempt: 2 }), segment("loss", [5], [0], { attempt: 3 })));
  assert.deepEqual(stepsOf(metrics), [[1, 2], [2, 3, 4], [5]]);
  assert.equal(metrics.metrics[0]?.count, 6);
});

test("a part that is whole replaces those before", () => {
  const metrics = logged(segment("loss", [1, 2]), segment("rate", [1]));
  metrics.add({ ...part(segment("loss", [1, 2, 3])), isWhole: true });
  assert.deepEqual([stepsOf(metrics), metrics.metrics.length, metrics.metrics[0]?.count], [[[1, 2, 3]], 1, 3]);
});

test("a program that counts its steps from the beginning again begins a segment", () => {
  assert.deepEqual(stepsOf(logged(segment("loss", [0, 1, 2]), segment("loss", [0, 1]))), [
    [0, 1, 2],
    [0, 1],
  ]);
});

test("steps that come a little late are put in their place, those of one step in their order", () => {
  const [loss] = logged(segment("loss", [0, 1, 3, 2, 3, 4], [0, 1, 2, 3, 4, 5])).metrics;
  assert.deepEqual(
    [loss?.segments[0]?.steps, loss?.segments[0]?.values],
    [
      [0, 1, 2, 3, 3, 4],
      [0, 1, 3, 2, 4, 5],
    ],
  );
});

test("descending steps cost as little as ascending ones", () => {
  const count = 100_000;
  const steps = [0, ...Array.from({ length: count }, (_, at) => count - at)];
  const began = processorMs();
  const metrics = new LoggedMetrics();
  for (let from = 0; from < steps.length; from += 10_000) metrics.add(part(segment("loss", steps.slice(from, from + 10_000))));
  assert.ok(processorMs() - began < 2000, `${processorMs() - began} ms`);
  const [found] = stepsOf(metrics) ?? [];
  assert.ok(found?.every((step, at) => at === 0 || step >= (found[at - 1] ?? 0)));
});

test("of a series without an end a bounded number of points is kept, among them its extremes", () => {
  const metrics = new LoggedMetrics();
  for (let from = 0; from < 300_000; from += 10_000) {
    const steps = Array.from({ length: 10_000 }, (_, at) => from + at);
    metrics.add(
      part(
        segment(
          "loss",
          steps,
          steps.map((step) => (step === 123_456 ? -5 : Math.sin(step))),
        ),
      ),
    );
  }
  const [loss] = metrics.metrics;
  const [{ steps, values } = { steps: [], values: [] }] = loss?.segments ?? [];
  assert.ok(steps.length > 5000 && steps.length <= 20_000);
  assert.deepEqual([steps[0], steps[steps.length - 1], loss?.count, Math.min(...values)], [0, 299_999, 300_000, -5]);
});

test("what is before the first slash is a group", () => {
  const names = ["train/loss", "rate", "val/loss", "train/a/b", "/x"];
  const groups = groupsOf(logged(...names.map((name) => segment(name, [1]))).metrics);
  assert.deepEqual(
    groups.map(({ name, metrics }) => [name, metrics.map((metric) => metric.name)]),
    [
      ["", ["rate", "/x"]],
      ["train", ["train/loss", "train/a/b"]],
      ["val", ["val/loss"]],
    ],
  );
});
