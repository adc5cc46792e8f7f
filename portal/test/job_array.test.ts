import assert from "node:assert/strict";
import { test } from "node:test";
import { taskValuesOf } from "../src/job_array.ts";

const jobWith = (openpaisdk: unknown) => JSON.stringify({ extras: { openpaisdk } });

test("of combinations the last variable changes fastest", () => {
  const values = taskValuesOf(jobWith({ array: { lr: ["0.1", "0.01"], seed: ["1", "2", "3"] } }));
  assert.deepEqual(values?.names, ["lr", "seed"]);
  assert.deepEqual(
    [0, 1, 3, 5].map((index) => values?.of(index)),
    [
      ["0.1", "1"],
      ["0.1", "2"],
      ["0.01", "1"],
      ["0.01", "3"],
    ],
  );
});

test("a task has the row of its index", () => {
  const values = taskValuesOf(jobWith({ arrayRows: { PAI_TASK_INDEX: ["3", "7"], lr: ["0.1", "0.2"] } }));
  assert.deepEqual(values?.names, ["PAI_TASK_INDEX", "lr"]);
  assert.deepEqual(
    [values?.of(1), values?.of(2)],
    [
      ["7", "0.2"],
      ["", ""],
    ],
  );
});

test("other jobs have no values", () => {
  for (const config of ["jobName: x", "{}", "null", jobWith({}), jobWith({ array: [] }), jobWith({ array: { a: [] } })]) {
    assert.equal(taskValuesOf(config), null);
  }
});
