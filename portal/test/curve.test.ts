import assert from "node:assert/strict";
import { test } from "node:test";
import { curveOf, lonePoints, shownSpan, significant, smoothed, spanOf, splitAt, thinned, tickLabels } from "../src/plot/curve.ts";
import type { Metric, Segment } from "../src/plot/logged_metrics.ts";
import { settingsOf, type SomeSettings } from "../src/plot/plot_settings.ts";
import { processorMs } from "./processor_time.ts";

function metric(...segments: Partial<Segment>[]): Metric {
  const whole = segments.map(({ attempt = 1, values = [], steps = values.map((_, at) => at), times = steps.map((step) => step * 10) }) => ({
    attempt,
    steps,
    times,
    values,
  }));
  return { name: "loss", segments: whole, count: whole.reduce((sum, { values }) => sum + values.length, 0) };
}

function drawn(of: Metric, some: SomeSettings = {}) {
  const settings = settingsOf("", some);
  return curveOf(of, settings, shownSpan(spanOf([of], settings) ?? { low: 0, high: 1 }, settings));
}

test("the first values of an average are not pulled to 0, and gaps are passed by", () => {
  assert.deepEqual(
    smoothed([4, 4, NaN, 4], 0.9).map((value) => Math.round(value * 1e9) / 1e9),
    [4, 4, NaN, 4],
  );
  const [, second = 0] = smoothed([0, 1], 0.5);
  assert.ok(Math.abs(second - 2 / 3) < 1e-12);
});

test("of each column the extremes, the ends and a gap are kept", () => {
  const x = Array.from({ length: 100 }, (_, at) => at);
  const y = x.map((at) => (at === 37 ? 900 : at === 12 ? -900 : at === 60 ? null : at));
  const { x: kept, y: values } = thinned(x, y, (at) => Math.floor(at / 50));
  assert.deepEqual(kept, [0, 12, 37, 49, 50, 60, 99]);
  assert.deepEqual(values, [0, -900, 900, 49, 50, null, 99]);
});

test("100 000 values are thinned in little time, and their extremes stay", () => {
  const values = Array.from({ length: 100_000 }, (_, at) => Math.sin(at / 7) + (at === 77_777 ? 100 : 0));
  const long = metric({ values });
  const began = processorMs();
  const { segments } = drawn(long, { smoothing: 0.9 });
  assert.ok(processorMs() - began < 1000);
  const [segment] = segments;
  assert.ok(segment);
  const { raw, line } = segment;
  assert.ok(raw.x.length <= 4 * 2049 && line.x.length <= 4 * 2049);
  const at = raw.x.indexOf(77_777);
  assert.ok((raw.y[at] ?? 0) > 99);
});

test("a part of the axis has the values in it and one beyond each side", () => {
  const { segments } = drawn(metric({ values: [0, 1, 2, 3, 4, 5, 6, 7] }), { from: 3, to: 4.5 });
  assert.deepEqual(segments[0]?.raw.x, [2, 3, 4, 5]);
});

test("values that are not finite are gaps with a mark", () => {
  const curve = drawn(metric({ values: [1, NaN, 3, Infinity, 2] }), { best: "lowest" });
  assert.deepEqual(curve.segments[0]?.raw.y, [1, null, 3, null, 2]);
  assert.deepEqual(curve.odd, [
    { x: 1, value: NaN },
    { x: 3, value: Infinity },
  ]);
  assert.deepEqual(
    [curve.best, curve.last],
    [
      { x: 0, y: 1, kind: "lowest" },
      { x: 4, y: 2 },
    ],
  );
  assert.deepEqual([curve.oddCount, curve.firstOdd], [2, { x: 1, value: NaN }]);
});

test("the best value is that of all attempts, and none of a metric without one", () => {
  const both = metric({ values: [5, 1] }, { attempt: 2, values: [4, 9] });
  assert.deepEqual(drawn(both, { best: "lowest" }).best, { x: 1, y: 1, kind: "lowest" });
  assert.deepEqual(drawn(both, { best: "highest" }).best, { x: 1, y: 9, kind: "highest" });
  assert.equal(drawn(both).best, undefined);
  assert.deepEqual(
    drawn(both).segments.map(({ attempt, start }) => [attempt, start]),
    [
      [1, 0],
      [2, 0],
    ],
  );
});

test("a logarithmic axis leaves out what it has no place for, and says how much", () => {
  const y = drawn(metric({ values: [1, 0, -1, 2] }), { isLogY: true });
  assert.deepEqual([y.segments[0]?.raw.y, y.hiddenCount], [[1, null, null, 2], 2]);
  const x = drawn(metric({ values: [1, 2, 3] }), { isLogX: true });
  assert.deepEqual([x.segments[0]?.raw.x, x.hiddenCount], [[1, 2], 1]);
});

test("over time, values without one are left out, and all are in the order of time", () => {
  const { segments } = drawn(metric({ values: [1, 2, 3, 4], times: [10, NaN, 40, 30] }), { isTime: true });
  assert.deepEqual(segments[0]?.raw, { x: [10, 30, 40], y: [1, 4, 3] });
});

test("a single value has an axis around it", () => {
  const settings = settingsOf("");
  assert.deepEqual(shownSpan({ low: 5, high: 5 }, settings), { low: 4, high: 6 });
  assert.equal(spanOf([metric({ values: [] })], settings), undefined);
});

test("a curve is split where a later attempt begins", () => {
  const curve = { x: [1, 2, 3], y: [4, 5, 6] };
  assert.deepEqual(splitAt(curve, 2.5), [
    { x: [1, 2], y: [4, 5] },
    { x: [2, 3], y: [5, 6] },
  ]);
  assert.deepEqual(splitAt(curve, Infinity)[0], curve);
  assert.deepEqual(splitAt(curve, 0), [{ x: [], y: [] }, curve]);
});

test("points without a neighbour are lone, also between values of other lines", () => {
  assert.deepEqual(lonePoints([1, undefined, null, 2, undefined, null, 3, undefined, 4]), [0, 3]);
  assert.deepEqual(lonePoints([1]), [0]);
  assert.deepEqual(lonePoints([null]), []);
});

test("labels have the digits that tell them apart", () => {
  assert.deepEqual(tickLabels([0.99991, 0.99992, 0.99993]), ["0.99991", "0.99992", "0.99993"]);
  assert.deepEqual(tickLabels([0, 0.1, 0.2, 0.30000000000000004]), ["0", "0.1", "0.2", "0.3"]);
  assert.deepEqual(tickLabels([0, 2_000_000]), ["0", "2e6"]);
  assert.deepEqual(tickLabels([0.00001, null]), ["1e-5", ""]);
  assert.deepEqual([significant(1 / 3), significant(12_345_678), significant(NaN)], ["0.3333", "1.235e7", "NaN"]);
});
