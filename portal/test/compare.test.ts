import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobRuns, MetricSeriesPart, MetricSummary, TaskRun } from "../src/api_types.ts";
import { runLooks } from "../src/compare/run_looks.ts";
import { nearestLine, parallelOf } from "../src/compare/parallel.ts";
import { groupChoices, groupLooks, groupCsv, meanOf, runGroups } from "../src/compare/run_groups.ts";
import { RunSeries, seriesOf, type SeriesAddress } from "../src/compare/run_series.ts";
import { scatterOf } from "../src/compare/scatter.ts";
import { chosenColumns, columnsOf, csvOf, filtered, formatColumns, formatOrder, parseOrder, sorted } from "../src/compare/run_table.ts";
import { compareParameters, labelsOf, metricNames, runsOf, usualMetric, type Run } from "../src/compare/runs.ts";

function summary(last: number | string, more: Partial<MetricSummary> = {}): MetricSummary {
  const value = Number(last);
  const bound = Number.isNaN(value) ? null : value;
  return { count: 1, last, lastStep: 0, min: bound, minStep: 0, max: bound, maxStep: 0, ...more };
}

function task(index: number, metrics: Readonly<Record<string, MetricSummary>> = {}, more: Partial<TaskRun> = {}): TaskRun {
  return { role: "main", index, state: "SUCCEEDED", launchedTime: 1000, completedTime: 3500, exitCode: 0, metrics, ...more };
}

function jobRuns(name: string, more: Partial<JobRuns & { place: number }>): JobRuns & { place: number } {
  return {
    name,
    username: "alice",
    state: "SUCCEEDED",
    tags: [],
    submissionTime: 0,
    launchedTime: 1000,
    completedTime: 3000,
    isArray: false,
    parameters: {},
    array: {},
    arrayRows: {},
    tasks: [],
    hasUnreadMetrics: false,
    hasOmittedMetrics: false,
    place: 0,
    ...more,
  };
}

function grid(): readonly Run[] {
  const tasks = [3, 0.5, "NaN", 10].map((loss, index) => task(index, { loss: summary(loss) }));
  tasks.push(task(4), task(5, { loss: summary("-Infinity") }));
  const array = { lr: ["0.1", "0.01", "1e-3"], seed: ["1", "2"], kind: ['a, "b"'] };
  return runsOf([jobRuns("grid", { isArray: true, array, parameters: { epochs: 5 }, tasks })]);
}

const indexes = (runs: readonly Run[]) => runs.map(({ index }) => index);

test("the metric that is plotted first says how good a run is", () => {
  assert.equal(usualMetric(["epoch", "lr", "train/loss", "val/loss"]), "train/loss");
  assert.equal(usualMetric(["epoch", "lr"]), "epoch");
  assert.equal(usualMetric([]), undefined);
});

test("each task of an array is a run with its values and the job's parameters", () => {
  const runs = grid();
  assert.deepEqual(runs.map(({ key, task }) => [key, task])[5], ["0.5", "main[5]"]);
  assert.deepEqual(
    [...(runs[2]?.parameters ?? [])],
    [
      ["epochs", "5"],
      ["lr", "0.01"],
      ["seed", "1"],
      ["kind", 'a, "b"'],
    ],
  );
  const { differing, equal } = compareParameters(runs);
  assert.deepEqual(differing, ["lr", "seed"]);
  assert.deepEqual(equal, [
    ["epochs", "5"],
    ["kind", 'a, "b"'],
  ]);
});

test("a job without an array is one run, with the metrics of its first task that has them", () => {
  const tasks = [task(0, { loss: summary(1) }), task(1, { loss: summary(2), rate: summary(3) })];
  const [run, ...more] = runsOf([jobRuns("gang", { tasks, place: 2, state: "FAILED" })]);
  assert.equal(more.length, 0);
  assert.ok(run);
  assert.deepEqual([run.key, run.task, run.index, run.state], ["2", "", null, "FAILED"]);
  assert.equal(run.metrics.get("loss")?.last, 1);
  assert.equal(seriesOf(run, "rate")?.index, 1);
  assert.equal(seriesOf(run, "other"), undefined);
});

test("a parameter that only some runs have differs", () => {
  const runs = runsOf([jobRuns("one", { parameters: { a: 1, b: [1] } }), jobRuns("two", { parameters: { a: 1 }, place: 1 })]);
  assert.deepEqual(compareParameters(runs), { differing: ["b"], equal: [["a", "1"]] });
  assert.deepEqual([...labelsOf(runs, ["b"]).values()], ["b=[1]", "two"]);
});

test("labels have job and task where parameters name no single run", () => {
  const runs = grid();
  assert.equal(labelsOf(runs, ["lr", "seed"]).get("0.1"), "lr=0.1 seed=2");
  assert.equal(labelsOf(runs, ["lr"]).get("0.1"), "main[1] lr=0.1");
  const jobs = runsOf([jobRuns("one", {}), jobRuns("one", { username: "bob", place: 1 })]);
  assert.deepEqual([...labelsOf(jobs, []).values()], ["alice~one", "bob~one"]);
});

test("numbers are sorted as numbers, and what is missing or NaN is last in both directions", () => {
  const runs = grid();
  const columns = columnsOf(runs, ["lr", "seed"], metricNames(runs));
  const by = (id: string, isDescending: boolean) =>
    indexes(
      sorted(
        runs,
        columns.find((column) => column.id === id),
        isDescending,
        0,
      ),
    );
  assert.deepEqual(by("metric.loss.last", false), [5, 1, 0, 3, 2, 4]);
  assert.deepEqual(by("metric.loss.last", true), [3, 0, 1, 5, 2, 4]);
  assert.deepEqual(by("parameter.lr", false), [4, 5, 2, 3, 0, 1]);
  assert.deepEqual(by("no-column", false), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(columns.map(({ id }) => id).slice(0, 5), ["task", "parameter.lr", "parameter.seed", "state", "duration"]);
});

test("an order is read from the address as it was written, also with a comma in its name", () => {
  for (const order of [
    { column: "parameter.a,b", isDescending: true },
    { column: "state", isDescending: false },
  ]) {
    assert.deepEqual(parseOrder(formatOrder(order)), order);
  }
  assert.equal(parseOrder("state"), undefined);
  assert.equal(parseOrder("state,UP"), undefined);
});

test("a filter finds rows with all of its words, in any case", () => {
  const runs = grid();
  assert.deepEqual(indexes(filtered(runs, " LR=0.01  seed=2 ")), [3]);
  assert.deepEqual(indexes(filtered(runs, "main[4]")), [4]);
  assert.equal(filtered(runs, "succeeded grid").length, 6);
  assert.equal(filtered(runs, "failed").length, 0);
  assert.equal(filtered(runs, "").length, 6);
});

test("the first index of a task that runs again is no parameter", () => {
  const arrayRows = { PAI_TASK_INDEX: ["2", "5"], lr: ["0.1", "0.2"] };
  const runs = runsOf([jobRuns("again", { isArray: true, arrayRows, tasks: [task(0), task(1)] })]);
  assert.deepEqual(compareParameters(runs), { differing: ["lr"], equal: [] });
  assert.deepEqual([...labelsOf(runs, ["lr"]).values()], ["lr=0.1", "lr=0.2"]);
});

test("the CSV file has all digits, quotes, and columns whose names are unique", () => {
  const metrics = { loss: summary(1 / 3, { max: "Infinity" }), state: summary("NaN") };
  const [run] = runsOf([jobRuns("one", { parameters: { user: 'a "b"\n', loss: 1 }, tasks: [task(0, metrics)] })]);
  assert.ok(run);
  assert.equal(
    csvOf([run], [run], 0),
    "job,user,task,index,parameters.user,parameters.loss,state,duration,exit,cause,loss,loss.min,loss.max,state.last,state.min,state.max\n" +
      'one,alice,,,"a ""b""\n",1,SUCCEEDED,2,0,,0.3333333333333333,0.3333333333333333,Infinity,NaN,,\n',
  );
});

test("looks of runs are those of their place, and by a parameter those of its values in their order", () => {
  const runs = grid();
  const [first, second] = [runs[0], runs[1]];
  assert.ok(first && second);
  assert.deepEqual(runLooks([second, first], "").of(first), { colour: "var(--series-1)", round: 0 });
  assert.deepEqual(
    runLooks(runs, "lr").legend.map(({ text }) => text),
    ["1e-3", "0.01", "0.1"],
  );
  assert.deepEqual(runLooks(runs, "lr").of(first), runLooks(runs, "lr").of(second));
  const values = Array.from({ length: 11 }, (_, at) => String(at));
  const many = runsOf([jobRuns("scale", { array: { x: values }, tasks: values.map((_, at) => task(at)) })]);
  assert.equal(runLooks(many, "x").legend[10]?.look.colour, "color-mix(in oklab, var(--series-2) 100%, var(--series-1))");
});

test("points are placed by their parameter, and what has no place is left out", () => {
  const runs = grid();
  const { points, xTicks, leftOut } = scatterOf(runs, "lr", "loss", false);
  assert.deepEqual(
    points.map(({ run }) => run.index),
    [0, 1, 3],
  );
  assert.equal(leftOut, 3);
  // Of rates that differ by orders of magnitude each has its label.
  assert.deepEqual(
    xTicks.map(({ label }) => label),
    ["0.01", "0.1"],
  );
  assert.ok(points.every(({ x, y }) => x > 0 && x < 1 && y > 0 && y < 1));
  const [first, second, third] = points;
  assert.ok(first && second && third && first.x === second.x && third.x < first.x && third.y > first.y);
});

test("texts are categories, and axes have round numbers", () => {
  const values = ["adam", "sgd", "adam", "lion"];
  const tasks = values.map((_, at) => task(at, { loss: summary(10 ** at) }));
  const runs = runsOf([jobRuns("kinds", { arrayRows: { opt: values, n: values.map((_, at) => String(at * 7)) }, tasks })]);
  const { points, xTicks, yTicks } = scatterOf(runs, "opt", "loss", true);
  assert.deepEqual(
    xTicks.map(({ label }) => label),
    ["adam", "lion", "sgd"],
  );
  assert.equal(points[0]?.x, points[2]?.x);
  assert.deepEqual(
    yTicks.map(({ label }) => label),
    ["1", "10", "100", "1000"],
  );
  assert.deepEqual(
    scatterOf(runs, "n", "loss", false).yTicks.map(({ label }) => label),
    ["0", "500", "1000"],
  );
  assert.deepEqual(scatterOf([], "n", "loss", false).points, []);
});

test("runs are grouped by a parameter, or by all but one", () => {
  const runs = grid();
  assert.deepEqual(
    groupChoices(["lr", "seed"]).map(({ value }) => value),
    ["lr", "seed"],
  );
  assert.deepEqual(groupChoices(["lr", "seed", "opt"])[4], { value: "!seed", label: "all but seed", parameters: ["lr", "opt"] });
  const groups = runGroups(runs, ["lr"]);
  assert.deepEqual(
    groups.map(({ label, runs: members }) => [label, indexes(members)]),
    [
      ["lr=0.1", [0, 1]],
      ["lr=0.01", [2, 3]],
      ["lr=1e-3", [4, 5]],
    ],
  );
  assert.equal(new Set(groups.map(({ look }) => look.colour)).size, 3);
  const lookOf = groupLooks(runs, ["lr"]);
  assert.deepEqual(
    runs.map(lookOf),
    [0, 0, 1, 1, 2, 2].map((at) => groups[at]?.look),
  );
  assert.equal(runGroups(runs, ["lr", "seed"]).length, 6);
  assert.equal(runGroups(runs, ["none"])[0]?.label, "none=none");
});

function lineOf(steps: number[], values: number[], ...again: readonly [number[], number[]][]) {
  const segments = [[steps, values] as const, ...again].map(([at, of], attempt) => ({
    attempt: attempt + 1,
    steps: at,
    times: at.map(() => NaN),
    values: of,
  }));
  return { name: "", count: steps.length, segments };
}

test("the mean is that of the runs that have a value at a step, between their steps in proportion", () => {
  const curve = meanOf("loss", [lineOf([0, 2, 4], [4, 2, 0]), lineOf([0, 1, 2], [6, 6, 6]), lineOf([], [])], "range");
  const [mean, low, high] = [curve.mean, curve.low, curve.high].map(({ segments }) => segments[0]?.values);
  assert.deepEqual(curve.mean.segments[0]?.steps, [0, 1, 2, 4]);
  assert.deepEqual(
    [mean, low, high, curve.counts],
    [
      [5, 4.5, 4, 0],
      [4, 3, 2, 0],
      [6, 6, 6, 0],
      [2, 2, 2, 1],
    ],
  );
});

test("a band is one standard deviation of a sample, and above 0 where all values are", () => {
  const { low, high } = meanOf("", [lineOf([1, 2], [1, 1]), lineOf([1, 2], [3, 100])], "deviation");
  assert.ok(Math.abs((high.segments[0]?.values[0] ?? 0) - (2 + Math.SQRT2)) < 1e-9);
  assert.equal(low.segments[0]?.values[1], 0.1);
});

test("NaN and its neighbours are no part of a mean, and what an attempt did again counts", () => {
  const { mean, counts } = meanOf(
    "",
    [
      lineOf([0, 2, 4], [1, NaN, 1]),
      lineOf(
        [0, 1, 2, 3],
        [3, 3, 3, 3],
        [
          [2, 4],
          [5, 5],
        ],
      ),
    ],
    "range",
  );
  assert.deepEqual(mean.segments[0]?.steps, [0, 1, 2, 4]);
  assert.deepEqual(mean.segments[0]?.values, [2, 3, 5, 3]);
  assert.deepEqual(counts, [2, 1, 1, 2]);
});

test("means of long series have as many steps as a plot can show, with the first and the last", () => {
  const steps = Array.from({ length: 10_000 }, (_, at) => at);
  const { mean } = meanOf("", [lineOf(steps, steps), lineOf(steps, steps)], "deviation");
  const found = mean.segments[0]?.steps ?? [];
  assert.deepEqual([found.length, found[0], found[found.length - 1]], [1000, 0, 9999]);
});

test("means are saved with the parameters of their group", () => {
  const groups = runGroups(grid(), ["kind"]);
  const curves = groups.map(() => meanOf("", [lineOf([1], [2]), lineOf([1], [4])], "range"));
  assert.equal(groupCsv(groups, ["kind"], curves), 'kind,step,runs,mean,low,high\n"a, ""b""",1,2,3,2,4\n');
});

test("each parameter is an axis, the metric is the last one, and runs without a parameter have a place below", () => {
  const values = ["adam", "sgd"];
  const runs = runsOf([
    jobRuns("kinds", { arrayRows: { opt: values, n: ["1", "3"] }, tasks: values.map((_, at) => task(at, { loss: summary(2 - at) })) }),
    jobRuns("lone", { parameters: { n: 2 }, place: 1, tasks: [task(0, { loss: summary(5) })] }),
    jobRuns("without", { place: 2, tasks: [task(0)] }),
  ]);
  const { axes, lines, leftOut } = parallelOf(runs, ["opt", "n"], "loss", false);
  assert.deepEqual(
    axes.map(({ name }) => name),
    ["opt", "n", "loss"],
  );
  assert.deepEqual(
    axes[0]?.ticks.map(({ label }) => label),
    ["none", "adam", "sgd"],
  );
  assert.deepEqual(
    lines.map(({ value }) => value),
    [1, 2, 5],
  );
  assert.equal(leftOut, 1);
  const [sgd, adam, lone] = lines.map(({ places }) => places);
  assert.ok(sgd && adam && lone);
  assert.ok((lone[0] ?? 1) < 0.1 && (adam[0] ?? 0) < (sgd[0] ?? 0) && (sgd[2] ?? 1) < (adam[2] ?? 0));
  assert.equal(nearestLine(lines, 0, sgd[0] ?? 0, 0.05)?.value, 1);
  assert.equal(nearestLine(lines, 1.5, ((adam[1] ?? 0) + (adam[2] ?? 0)) / 2, 0.05)?.value, 2);
  assert.equal(nearestLine(lines, 2, 0.5, 0.001), undefined);
  assert.equal(
    parallelOf(
      runs,
      Array.from({ length: 20 }, (_, at) => `p${at}`),
      "loss",
      false,
    ).axes.length,
    9,
  );
});

test("columns are those that the address names, also with commas; those that name a run stay", () => {
  const tasks = [task(0, Object.fromEntries(Array.from({ length: 13 }, (_, at) => [`m,${at}`, summary(at)])))];
  const all = columnsOf(
    runsOf([jobRuns("one", { isArray: true, array: { lr: ["1"] }, tasks })]),
    ["lr"],
    Array.from({ length: 13 }, (_, at) => `m,${at}`),
  );
  assert.equal(chosenColumns(all, null).length, 4 + 12 * 3);
  const some = all.filter(({ id }) => ["parameter.lr", "metric.m,12.min"].includes(id));
  assert.equal(formatColumns(some), "parameter.lr,metric.m%2C12.min");
  assert.deepEqual(
    chosenColumns(all, formatColumns(some)).map(({ id }) => id),
    ["task", "parameter.lr", "metric.m,12.min"],
  );
  assert.deepEqual(
    chosenColumns(all, "none,%").map(({ id }) => id),
    ["task"],
  );
});

function address(key: string, count: number, metric = "loss"): SeriesAddress {
  return { key, framework: "alice~a", role: "main", index: 0, metric, count };
}

const part = (step: number, next = 0, hasMore = false): MetricSeriesPart => ({
  segments: [{ name: "loss", attempt: 1, steps: [step], times: [null], values: [step] }],
  counts: [{ name: "loss", count: 1, notFinite: 0 }],
  next,
  hasMore,
  isWhole: false,
});

test("series are read with few requests at once, and again only when there is more", async () => {
  let [active, most] = [0, 0];
  const reads: string[] = [];
  const changes: (() => void)[] = [];
  const series = new RunSeries(
    async ({ key }, start) => {
      active += 1;
      most = Math.max(most, active);
      reads.push(`${key} ${start}`);
      await new Promise(setImmediate);
      active -= 1;
      return part(reads.length, 40);
    },
    () => changes.shift()?.(),
  );
  const read = (times: number) => {
    const all = Array.from({ length: times }, () => new Promise<void>((resolve) => changes.push(resolve)));
    return Promise.all(all);
  };
  const wanted = Array.from({ length: 10 }, (_, at) => address(String(at), 1));
  const all = read(10);
  series.want(wanted);
  await all;
  assert.equal(most, 4);
  assert.equal(reads.length, 10);
  assert.equal(series.metric(address("7", 1))?.count, 1);
  series.want(wanted);
  assert.equal(reads.length, 10);
  const more = read(1);
  series.want([...wanted.slice(1), address("0", 2)]);
  await more;
  assert.deepEqual(reads.slice(10), ["0 40"]);
});

test("a series that cannot be read leaves the others, and says why", async () => {
  let done = 0;
  await new Promise<void>((resolve) => {
    const series = new RunSeries(
      ({ key }) => (key === "bad" ? Promise.reject(new Error("no such task")) : Promise.resolve(part(1))),
      () => {
        done += 1;
        if (series.problem) assert.equal(series.problem, "no such task");
        if (done === 2) {
          assert.equal(series.metric(address("good", 1))?.count, 1);
          resolve();
        }
      },
    );
    series.want([address("good", 1), address("bad", 1)]);
  });
});

test("a series is read part by part, until there is no more", async () => {
  const starts: number[] = [];
  await new Promise<void>((resolve) => {
    const series = new RunSeries(
      (_, start) => {
        starts.push(start);
        return Promise.resolve(part(starts.length, starts.length * 10, starts.length < 3));
      },
      () => resolve(),
    );
    series.want([address("long", 3)]);
  });
  assert.deepEqual(starts, [0, 10, 20]);
});
