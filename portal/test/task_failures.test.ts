import assert from "node:assert/strict";
import { test } from "node:test";
import cases from "../../tests/openpaisdk/jobs/failure_groups.json";
import type { TaskDetail } from "../src/api_types.ts";
import { taskValues } from "../src/job_array.ts";
import { commonValues, failureGroups, groupTitle } from "../src/task_failures.ts";

function failed(taskIndex: number, cause: string) {
  return { role: "main", taskIndex, taskState: "FAILED" as const, containerExitCode: 255, originUserExitCode: 1, cause };
}

// Those of `pai job-status`.
for (const { what, job, tasks, groups } of cases) {
  test(`failed tasks are grouped by cause: ${what}`, () => {
    const values = taskValues({ extras: { openpaisdk: job } });
    const all = tasks.map((task) => ({ ...task, role: "main", taskState: task.taskState as TaskDetail["taskState"] }));
    const found = failureGroups(all).map((group) => ({
      exitCode: group.exitCode,
      cause: group.cause,
      tasks: group.tasks.map(({ taskIndex }) => taskIndex),
      values: Object.fromEntries(values ? commonValues(group.tasks, values, all) : []),
    }));
    assert.deepEqual(found, groups);
  });
}

test("a long value is shortened", () => {
  const values = taskValues({ extras: { openpaisdk: { arrayRows: { text: ["x".repeat(50), "y"] } } } });
  const tasks = [failed(0, "bad"), { ...failed(1, ""), taskState: "SUCCEEDED" as const }];
  const [group] = failureGroups(tasks);
  assert.equal(group && groupTitle(group, values, tasks), `1 task exited with 1 (text=${"x".repeat(40)}...)`);
});

test("failed tasks are grouped by cause, with the values that they have in common", () => {
  const values = taskValues({ extras: { openpaisdk: { array: { lr: ["5", "0.1"], seed: ["1", "2", "3"], data: ["all"] } } } });
  const tasks = [
    failed(4, "Exit code 1: lost at 0x1f"),
    ...[0, 1, 2].map((index) => failed(index, `ValueError: step ${index}.5`)),
    { ...failed(3, ""), taskState: "SUCCEEDED" as const },
    failed(5, "Exit code 1"),
  ];
  const groups = failureGroups(tasks);
  assert.deepEqual(
    groups.map((group) => [groupTitle(group, values, tasks), group.cause]),
    [
      ["3 tasks exited with 1 (lr=5)", "ValueError: step 0.5"],
      ["1 task exited with 1 (lr=0.1 seed=2)", "lost at 0x1f"],
      ["1 task exited with 1 (lr=0.1 seed=3)", ""],
    ],
  );
  assert.deepEqual(
    groups.slice(0, 1).map((group) => groupTitle(group, null, tasks)),
    ["3 tasks exited with 1"],
  );
});

test("thousands of tasks are few groups", () => {
  const tasks = Array.from({ length: 8000 }, (_, index) => failed(index, `Exit code 1: ${index % 2 ? "lost" : "late"} at ${index}`));
  assert.deepEqual(
    failureGroups(tasks).map((group) => group.tasks.length),
    [4000, 4000],
  );
});
