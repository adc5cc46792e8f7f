import assert from "node:assert/strict";
import { test } from "node:test";
import { groupsOf, LoggedMetrics } from "../src/plot/logged_metrics.ts";

function logged(...lines: (object | string)[]): LoggedMetrics {
  const metrics = new LoggedMetrics();
  metrics.add(bytes(...lines));
  return metrics;
}

function bytes(...lines: (object | string)[]): Uint8Array {
  return new TextEncoder().encode(lines.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join(""));
}

test("values of a line are those of its metrics", () => {
  const [loss, rate, ...more] = logged(
    { step: 1, time: 1000.5, values: { loss: 0.5, rate: 3 } },
    { step: 2, time: 1001, values: { loss: 0.25 } },
  ).metrics;
  assert.deepEqual(loss?.segments, [{ attempt: 1, steps: [1, 2], times: [1_000_500, 1_001_000], values: [0.5, 0.25] }]);
  assert.equal(loss?.count, 2);
  assert.deepEqual(rate?.segments[0]?.values, [3]);
  assert.equal(more.length, 0);
});

test("names of numbers that JSON does not have are numbers, also as words of Python", () => {
  const values = { a: "NaN", b: "Infinity", c: "-Infinity", d: "low", e: null, f: true };
  const names = ["a", "b", "c"];
  const found = logged({ step: 1, values }).metrics;
  assert.deepEqual(found.map(({ name }) => name), names);
  assert.deepEqual(found.map(({ segments }) => segments[0]?.values[0]), [NaN, Infinity, -Infinity]);
  const words = logged('{"step": 1, "values": {"a": NaN, "b": Infinity, "c":-Infinity}}').metrics;
  assert.deepEqual(words.map(({ segments }) => segments[0]?.values[0]), [NaN, Infinity, -Infinity]);
});

test("lines that are no objects of numbers are skipped", () => {
  const odd = ["", "{", "[]", "null", "3", '{"step": "x", "values": {"a": 1}}', '{"step": 1, "values": null}', '{"step": 1}'];
  assert.deepEqual(logged(...odd, { step: 1, values: { a: 1 } }).metrics.map(({ count }) => count), [1]);
});

test("each attempt has a segment", () => {
  const [loss] = logged(
    { step: 1, values: { loss: 4 } },
    { step: 2, values: { loss: 3 } },
    { step: 2, values: { loss: 2.9 }, attempt: "0.1" },
    { step: 3, values: { loss: 2 }, attempt: "1.1" },
  ).metrics;
  assert.deepEqual(loss?.segments.map(({ attempt, steps }) => [attempt, steps]), [
    [1, [1, 2]],
    [2, [2]],
    [3, [3]],
  ]);
});

test("a program that counts its steps from the beginning again begins a segment", () => {
  const [loss] = logged(...[0, 1, 2, 0, 1].map((step) => ({ step, values: { loss: step } }))).metrics;
  assert.deepEqual(loss?.segments.map(({ steps }) => steps), [
    [0, 1, 2],
    [0, 1],
  ]);
});

test("steps that come a little late are put in their place", () => {
  const [loss] = logged(...[0, 1, 3, 2, 3, 4].map((step, at) => ({ step, values: { loss: at } }))).metrics;
  assert.deepEqual(loss?.segments.map(({ steps, values }) => [steps, values]), [
    [
      [0, 1, 2, 3, 3, 4],
      [0, 1, 3, 2, 4, 5],
    ],
  ]);
});

test("only complete lines are read, each once", () => {
  const metrics = new LoggedMetrics();
  const all = bytes({ step: 1, values: { a: 1 } }, { step: 2, values: { a: 2 } });
  metrics.add(all.subarray(0, all.length - 3));
  metrics.add(all.subarray(metrics.next));
  assert.equal(metrics.next, all.length);
  assert.deepEqual(metrics.metrics[0]?.segments[0]?.values, [1, 2]);
});

test("what is before the first slash is a group", () => {
  const values = { "train/loss": 1, rate: 1, "val/loss": 1, "train/a/b": 1, "/x": 1 };
  const groups = groupsOf(logged({ step: 1, values }).metrics);
  assert.deepEqual(groups.map(({ name, metrics }) => [name, metrics.map((metric) => metric.name)]), [
    ["", ["rate", "/x"]],
    ["train", ["train/loss", "train/a/b"]],
    ["val", ["val/loss"]],
  ]);
});
