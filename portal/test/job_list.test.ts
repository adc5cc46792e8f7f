import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../src/api_error.ts";
import type { JobSummary } from "../src/api_types.ts";
import { countOutcomes, forEachJob, NothingToDo, type Action } from "../src/job_list/bulk.ts";
import { askedValues, columnOf, columnsOf, DEFAULT_COLUMNS, MAX_COLUMNS, metricIds } from "../src/job_list/columns.ts";
import { rangeOf } from "../src/job_list/selection.ts";

function summary(more: Partial<JobSummary>): JobSummary {
  return {
    debugId: "",
    name: "train",
    username: "alice",
    state: "SUCCEEDED",
    subState: "Completed",
    executionType: "START",
    tags: [],
    retries: 0,
    retryDetails: { user: 0, platform: 0, resource: 0 },
    retryDelayTime: null,
    submissionTime: 0,
    createdTime: 0,
    launchedTime: 0,
    completedTime: 5000,
    appExitCode: 0,
    virtualCluster: "default",
    totalGpuNumber: 0,
    totalTaskNumber: 1,
    totalTaskRoleNumber: 1,
    jobPriority: null,
    ...more,
  };
}

const cell = (id: string, job: Partial<JobSummary>) => columnOf(id)?.cellOf(summary(job), 10_000).text;

test("columns are those of all jobs, parameters and metrics, each once, without unknown ones", () => {
  assert.equal(columnsOf(DEFAULT_COLUMNS).length, DEFAULT_COLUMNS.length);
  const found = columnsOf(["gone", "state", "metric.val.loss.min", "state", "parameter.a.b", "metric.loss", "metric..last"]);
  assert.deepEqual(
    found.map(({ id, kind, name, label }) => [id, kind, name, label]),
    [
      ["state", "job", "", "State"],
      ["metric.val.loss.min", "metric", "val.loss", "val.loss min"],
      ["parameter.a.b", "parameter", "a.b", "a.b"],
    ],
  );
  const many = Array.from({ length: 99 }, (_, number) => `parameter.p${number}`);
  assert.equal(columnsOf(many).length, MAX_COLUMNS);
});

test("columns of values are orders of the list", () => {
  const orders = ["metric.val,loss.min", "parameter.lr"].map((id) => columnOf(id)?.order);
  assert.deepEqual(orders, ["metric.val,loss.min", "parameter.lr"]);
});

test("the list is asked once for each parameter and metric", () => {
  assert.deepEqual(askedValues(columnsOf(["user", ...metricIds("loss"), "parameter.loss"])), [
    ["metric", "loss"],
    ["parameter", "loss"],
  ]);
});

test("values of metrics are short, those of an array a range, and missing ones empty", () => {
  const metrics = { loss: { last: 0.123456, min: 0.1, max: "Infinity" } };
  assert.deepEqual(
    metricIds("loss").map((id) => cell(id, { metrics })),
    ["0.1235", "0.1", "Infinity"],
  );
  assert.equal(cell("metric.loss.last", { metrics: { loss: { last: null, min: 1, max: 2 } } }), "1 … 2");
  assert.equal(cell("metric.loss.last", { metrics: { loss: { last: null, min: 1, max: 1 } } }), "1");
  assert.equal(cell("metric.loss.last", { metrics: { loss: { last: null, min: null, max: null } } }), "NaN");
  assert.equal(cell("metric.loss.min", { metrics: { loss: { last: "NaN", min: null, max: null } } }), "NaN");
  assert.equal(cell("metric.other.last", { metrics }), "");
  assert.equal(cell("metric.loss.last", {}), "");
  const unread = columnOf("metric.loss.last")?.cellOf(summary({ metrics: null }), 0);
  assert.match(unread?.title ?? "", /too many tasks/);
});

test("values of parameters and of jobs are texts", () => {
  assert.equal(cell("parameter.lr", { parameters: { lr: ["0.1", "0.01"] } }), "0.1, 0.01");
  assert.equal(cell("parameter.seed", { parameters: { lr: ["0.1"] } }), "");
  assert.equal(cell("duration", {}), "5 s");
  assert.equal(cell("exit", { appExitCode: null }), "");
  assert.equal(cell("exit", { appExitCode: 137 }), "137");
});

test("a range has the rows between two, in either direction", () => {
  const keys = ["a", "b", "c", "d"];
  assert.deepEqual(rangeOf(keys, "b", "d"), ["b", "c", "d"]);
  assert.deepEqual(rangeOf(keys, "c", "a"), ["a", "b", "c"]);
  assert.deepEqual(rangeOf(keys, undefined, "c"), ["c"]);
  // The row that was clicked before is on another page.
  assert.deepEqual(rangeOf(keys, "z", "c"), ["c"]);
});

function names(count: number): string[] {
  return Array.from({ length: count }, (_, number) => `alice~job-${number}`);
}

test("an action is done to all jobs, a few at a time, and each has its outcome", async () => {
  let [running, most] = [0, 0];
  const steps: number[] = [];
  const action: Action = async (framework) => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
    if (framework.endsWith("-3")) throw new ApiError("Job is locked.", 403, "Forbidden", "Ask its owner.");
    if (framework.endsWith("-4")) throw new NothingToDo("it has no tag.");
    return "done";
  };
  const outcomes = await forEachJob(names(1000), action, new AbortController().signal, (done) => steps.push(done));
  assert.equal(most, 5);
  assert.equal(steps.length, 1000);
  assert.deepEqual(countOutcomes(outcomes), { done: 998, unchanged: 1, failed: 1, left: 0 });
  assert.deepEqual(
    outcomes.map(({ framework }) => framework),
    names(1000),
  );
  assert.deepEqual(outcomes[3], { framework: "alice~job-3", kind: "failed", text: "Job is locked. Ask its owner." });
});

test("what is left out after a cancel is named, and what is under way ends", async () => {
  const abort = new AbortController();
  const ended: string[] = [];
  const action: Action = async (framework) => {
    if (framework.endsWith("-7")) abort.abort();
    await new Promise((resolve) => setImmediate(resolve));
    ended.push(framework);
    return "";
  };
  const outcomes = await forEachJob(names(100), action, abort.signal, () => undefined);
  const done = outcomes.filter(({ kind }) => kind === "done").map(({ framework }) => framework);
  assert.deepEqual(done.toSorted(), ended.toSorted());
  assert.ok(done.includes("alice~job-7") && done.length < 20);
  assert.equal(countOutcomes(outcomes).left, 100 - done.length);
});

test("a request that the server was too busy for is repeated, and a fault of the page is not hidden", async () => {
  let tries = 0;
  const busy: Action = () => {
    tries += 1;
    return tries === 1 ? Promise.reject(new ApiError("Too many requests.", 429)) : Promise.resolve("");
  };
  const outcomes = await forEachJob(names(1), busy, new AbortController().signal, () => undefined);
  assert.deepEqual([tries, outcomes[0]?.kind], [2, "done"]);
  const faulty = forEachJob(
    names(1),
    () => Promise.reject(new TypeError("fault")),
    new AbortController().signal,
    () => undefined,
  );
  await assert.rejects(faulty, TypeError);
});
