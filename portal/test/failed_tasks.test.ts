import assert from "node:assert/strict";
import { test } from "node:test";
import cases from "../../tests/openpaisdk/jobs/repeated_tasks.json";
import { failedTasks, repeatTasks } from "../src/editor/failed_tasks.ts";

// Those of `pai resubmit --failed`.
for (const { what, job, indexes, repeated } of cases) {
  test(`failed tasks of ${what} are repeated with their values and indexes`, () => {
    assert.deepEqual(repeatTasks(job, indexes), repeated);
  });
}

test("of a job that still runs, tasks that may succeed are not repeated", () => {
  const states = ["SUCCEEDED", "FAILED", "RUNNING", "STOPPED", "WAITING"] as const;
  const tasks = states.map((taskState, taskIndex) => ({ taskIndex, taskState }));
  assert.deepEqual(failedTasks("RUNNING", tasks), [1, 3]);
  assert.deepEqual(failedTasks("SUCCEEDED", tasks), [1, 2, 3, 4]);
});
