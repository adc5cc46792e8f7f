import assert from "node:assert/strict";
import { test } from "node:test";
import { completionsAt, type Schema } from "../src/editor/completion.ts";

const SCHEMA: Schema = {
  type: "object",
  properties: {
    name: { type: "string", description: "Its name." },
    type: { enum: ["job"] },
    prerequisites: {
      type: "array",
      items: {
        oneOf: [
          { type: "object", properties: { name: {}, type: { enum: ["dockerimage"] }, uri: {} } },
          { type: "object", properties: { name: {}, type: { enum: ["data"] }, plugin: {} } },
        ],
      },
    },
    taskRoles: {
      type: "object",
      additionalProperties: {
        type: "object",
        properties: {
          instances: { type: "integer" },
          dockerImage: { type: "string" },
          commands: { type: "array", items: { type: "string" } },
          resourcePerInstance: { type: "object", properties: { cpu: { type: "integer" }, gpu: {} } },
        },
      },
    },
    extras: {
      type: "object",
      properties: {
        gangAllocation: { type: "boolean" },
        hivedScheduler: { anyOf: [{ type: "object", properties: { jobPriorityClass: { enum: ["prod", "test"] } } }, { type: "null" }] },
        storages: { type: "array", items: { type: "object", properties: { name: { type: "string" } } } },
      },
    },
  },
};

/** Labels that are offered where the text has a `|`. */
function offered(text: string, names: (path: readonly string[]) => readonly string[] = () => []): string[] {
  const at = text.indexOf("|");
  return completionsAt(SCHEMA, text.replace("|", ""), at, names)?.options.map((one) => one.label) ?? [];
}

test("keys of the document, without those that are there", () => {
  assert.deepEqual(offered("name: x\n|\ntype: job\n"), ["prerequisites", "taskRoles", "extras"]);
  assert.deepEqual(offered("na|"), ["name", "type", "prerequisites", "taskRoles", "extras"]);
});

test("keys of mappings at their indentation", () => {
  assert.deepEqual(offered("taskRoles:\n  main:\n    instances: 1\n    |"), ["dockerImage", "commands", "resourcePerInstance"]);
  assert.deepEqual(offered("taskRoles:\n  main:\n    resourcePerInstance:\n      cpu: 1\n      g|\n    instances: 1"), ["gpu"]);
  assert.deepEqual(offered("taskRoles:\n  main:\n    instances: 1\n  other:\n    # a comment\n\n    i|"), [
    "instances",
    "dockerImage",
    "commands",
    "resourcePerInstance",
  ]);
  assert.deepEqual(offered("taskRoles:\n  |"), []);
});

test("keys of items of lists, of the kind that the item has", () => {
  assert.deepEqual(offered("prerequisites:\n  - |"), ["name", "type", "uri", "plugin"]);
  assert.deepEqual(offered("prerequisites:\n- name: x\n  type: data\n  |"), ["plugin"]);
  assert.deepEqual(offered("prerequisites:\n  - type: data\n    name: x\n  - type: dockerimage\n    |"), ["name", "uri"]);
});

test("values that are known", () => {
  assert.deepEqual(offered("type: |"), ["job"]);
  assert.deepEqual(offered("extras:\n  gangAllocation: f|"), ["true", "false"]);
  assert.deepEqual(offered("extras:\n  hivedScheduler:\n    jobPriorityClass: |"), ["prod", "test"]);
  assert.deepEqual(offered("name: |"), []);
  const names = (path: readonly string[]) => (path.join(".") === "extras.storages.*.name" ? ["home"] : []);
  assert.deepEqual(offered("extras:\n  storages:\n    - name: |", names), ["home"]);
});

test("nothing in the text of a command or a comment", () => {
  assert.deepEqual(offered("taskRoles:\n  main:\n    commands:\n      - ec|"), []);
  assert.deepEqual(offered("# na|"), []);
});

test("JSON", () => {
  assert.deepEqual(offered('{"name": "x", "|'), ["type", "prerequisites", "taskRoles", "extras"]);
  assert.deepEqual(offered('{"taskRoles": {"main": {"instances": 1, |'), ["dockerImage", "commands", "resourcePerInstance"]);
  assert.deepEqual(offered('{"prerequisites": [{"type": "data", "|'), ["name", "plugin"]);
  assert.deepEqual(offered('{"type": "|'), ["job"]);
  assert.deepEqual(offered('{"extras": {"gangAllocation": |'), ["true", "false"]);
  assert.deepEqual(offered('{"name": "a { \\" b |'), []);
});

test("what is inserted goes on where the user types next", () => {
  const applied = (text: string, label: string) =>
    completionsAt(SCHEMA, text, text.length)?.options.find((one) => one.label === label)?.apply;
  assert.equal(applied("na", "name"), "name: ");
  assert.equal(applied("", "taskRoles"), "taskRoles:\n  ");
  assert.equal(applied("taskRoles:\n  main:\n    ", "commands"), "commands:\n      - ");
  assert.equal(applied('{"', "name"), 'name": ');
  assert.equal(applied("{", "name"), '"name": ');
  assert.equal(applied('{"type": ', "job"), '"job"');
  assert.equal(applied('{"type": "j', "job"), 'job"');
  assert.equal(completionsAt(SCHEMA, '{""}', 2)?.to, 3);
});
