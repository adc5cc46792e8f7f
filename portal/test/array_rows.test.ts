import assert from "node:assert/strict";
import { test } from "node:test";
import { columnsOf, rowsCommand, setsValues, tableOf } from "../src/editor/array_rows.ts";
import { formOf, newJob, withChange } from "../src/editor/job_file.ts";

const TABLE = 'lr,name\n0.10,"a,b"\n2,it\'s';
const COLUMNS = [
  { name: "lr", values: ["0.10", "2"] },
  { name: "name", values: ["a,b", "it's"] },
];

test("a table becomes the command that pai sub makes", () => {
  assert.deepEqual(columnsOf(TABLE), COLUMNS);
  const command = rowsCommand(COLUMNS);
  assert.equal(command, `case $PAI_TASK_INDEX in\n0) export lr=0.10 name=a,b ;;\n1) export lr=2 name='it'"'"'s' ;;\nesac`);
  assert.ok(setsValues(command) && setsValues("case $((PAI_TASK_INDEX / 1 % 2)) in\n0) export a=1 ;;\nesac"));
  assert.ok(!setsValues("case $1 in\na) ;;\nesac"));
  assert.equal(tableOf(COLUMNS), TABLE);
  assert.deepEqual(columnsOf(" \n"), []);
});

test("what is wrong with a table is said", () => {
  for (const [text, says] of [
    ["0.1,3\n1,2", "0.1 cannot be the name of a variable"],
    ["a,a\n1,2", "The column a is there twice"],
    ["a,\n1,2", "Column 2 has no name"],
    ["PAI_X\n1", "the cluster's own"],
    ["a,b", "no rows"],
    ["a,b\n1,2\n3", "Row 2 has 1 values, and there are 2 columns"],
    ["a,b\n1,2,3", "Column 3 has no name"],
    [`a\n${"1\n".repeat(10_001)}`, "a job has 10000 tasks at most"],
  ] as const) {
    const problem = columnsOf(text);
    assert.ok(typeof problem === "string" && problem.includes(says), `${text.slice(0, 20)}: ${String(problem)}`);
  }
});

test("the job has the rows of the form, and nothing of them when they are deleted", () => {
  const job = withChange(newJob({ name: "x", image: "host", command: "echo $lr" }), {
    more: "environment",
    value: [{ name: "A", value: "1" }],
  });
  const swept = withChange(job, { more: "rows", value: COLUMNS });
  const form = formOf(swept);
  assert.deepEqual(form?.more?.rows, COLUMNS);
  assert.equal(form?.basics.instances, 2);
  assert.match(swept, /minFailedInstances: -1/);
  assert.match(swept, /gangAllocation: false/);
  assert.ok(swept.indexOf("export A=1") < swept.indexOf("case $PAI_TASK_INDEX in"));
  const one = withChange(swept, { more: "rows", value: [{ name: "lr", values: ["3"] }] });
  assert.equal(one.split("case $PAI_TASK_INDEX in").length, 2);
  assert.equal(formOf(one)?.basics.instances, 1);
  assert.equal(withChange(one, { more: "rows", value: [] }), job);
});

test("combinations are shown as rows, and rows replace them", () => {
  const grid = JSON.stringify({
    protocolVersion: 2,
    name: "x",
    taskRoles: { main: { instances: 4, commands: ["true"] } },
    deployments: [
      {
        name: "d",
        taskRoles: {
          main: {
            preCommands: [
              "case $((PAI_TASK_INDEX / 2 % 2)) in\n0) export a=1 ;;\n1) export a=2 ;;\nesac",
              "case $((PAI_TASK_INDEX / 1 % 2)) in\n0) export b=x ;;\n1) export b=y ;;\nesac",
            ],
          },
        },
      },
    ],
    defaults: { deployment: "d" },
    extras: { openpaisdk: { array: { a: ["1", "2"], b: ["x", "y"] }, arrayLimit: 2 } },
  });
  const rows = [
    { name: "a", values: ["1", "1", "2", "2"] },
    { name: "b", values: ["x", "y", "x", "y"] },
  ];
  assert.deepEqual(formOf(grid)?.more?.rows, rows);
  const changed = JSON.parse(withChange(grid, { more: "rows", value: rows }));
  assert.deepEqual(changed.extras.openpaisdk, { arrayLimit: 2, arrayRows: { a: rows[0]?.values, b: rows[1]?.values } });
  assert.deepEqual(changed.deployments[0].taskRoles.main.preCommands, [rowsCommand(rows)]);
});
