import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import {
  asJson,
  asYaml,
  changedValues,
  copyText,
  formOf,
  missingSecrets,
  newJob,
  versionOf,
  withChange,
  withSecrets,
} from "../src/editor/job_file.ts";
import { secretLine } from "../src/editor/shell_words.ts";

const START = newJob({ name: "hello", image: "python:3.12", command: "echo hello" });

const V1 = JSON.stringify({
  jobName: "old",
  image: "tensorflow",
  virtualCluster: "vc1",
  taskRoles: [{ name: "default", taskNumber: 2, cpuNumber: 4, memoryMB: 8192, gpuNumber: 1, command: "python a.py" }],
});

function changed(text: string, ...changes: Parameters<typeof withChange>[1][]) {
  let now = text;
  for (const change of changes) now = withChange(now, change);
  return now;
}

function formIn(text: string) {
  const form = formOf(text);
  assert.ok(form);
  return form;
}

/** Secrets whose values are entered in the form. */
const masked = (...names: string[]) => names.map((name) => ({ name, isMasked: true }));

/** Secrets as the form of a role shows them. */
const secretNames = (text: string, role = "") => formOf(text, role)?.more?.secrets.map((one) => one.name);

test("the form shows what a new job has", () => {
  const form = formIn(START);
  assert.equal(form.version, 2);
  assert.deepEqual(form.roles, ["main"]);
  assert.deepEqual(form.basics, {
    name: "hello",
    image: "python:3.12",
    command: "echo hello",
    instances: 1,
    gpu: 0,
    cpu: 1,
    memoryMB: 1024,
    virtualCluster: "",
  });
  assert.deepEqual(form.more, {
    environment: [],
    rows: [],
    secrets: [],
    storages: null,
    sources: null,
    retries: 0,
    timeLimitS: 0,
    priority: "",
    tags: [],
    outputs: [],
  });
});

test("a change keeps comments, order and what the form does not show", () => {
  const text = `# mine\n${START}extras:\n  # of another program\n  submitFrom: vscode\n`;
  const now = changed(text, { basic: "name", value: "second" }, { more: "retries", value: 3 });
  assert.ok(now.startsWith("# mine\nprotocolVersion: 2\nname: second\n"));
  assert.ok(now.includes("  # of another program\n  submitFrom: vscode\n"));
  assert.equal(parse(now).jobRetryCount, 3);
});

test("a change back removes what the first one added", () => {
  const there = changed(
    START,
    { more: "environment", value: [{ name: "A", value: "1" }] },
    { more: "storages", value: [{ name: "data", mountPath: "" }] },
    { more: "timeLimitS", value: 60 },
    { more: "priority", value: "prod" },
    { more: "tags", value: ["x"] },
    { more: "outputs", value: ["model"] },
    { basic: "virtualCluster", value: "vc1" },
  );
  assert.equal(parse(there).extras.openpaisdk.timeLimit, 60);
  const back = changed(
    there,
    { more: "environment", value: [] },
    { more: "storages", value: null },
    { more: "timeLimitS", value: 0 },
    { more: "priority", value: "" },
    { more: "tags", value: [] },
    { more: "outputs", value: [] },
    { basic: "virtualCluster", value: "" },
  );
  assert.deepEqual(parse(back), parse(START));
});

test("variables and secrets are written as pai sub writes them", () => {
  const text = changed(
    START,
    { more: "environment", value: [{ name: "GREETING", value: "it's me" }] },
    { more: "secrets", value: masked("TOKEN") },
  );
  const job = parse(text);
  assert.equal(job.defaults.deployment, "sdk_deployment");
  assert.deepEqual(job.deployments, [
    {
      name: "sdk_deployment",
      taskRoles: { main: { preCommands: [`export GREETING='it'"'"'s me'`, secretLine("TOKEN")] } },
    },
  ]);
  assert.deepEqual(job.secrets, { TOKEN: "******" });
  const { more } = formIn(text);
  assert.deepEqual(more?.environment, [{ name: "GREETING", value: "it's me" }]);
  assert.deepEqual(more?.secrets, masked("TOKEN"));
  assert.deepEqual(parse(changed(text, { more: "environment", value: [] }, { more: "secrets", value: [] })), parse(START));
});

test("other commands of a deployment stay, in their order", () => {
  const text = `${START}deployments:
  - name: mine
    taskRoles:
      main:
        preCommands: [set -x, export A=1, pip install x]
        postCommands: [cp a b]
defaults:
  deployment: mine
`;
  const now = parse(changed(text, { more: "environment", value: [{ name: "B", value: "2" }] }));
  assert.deepEqual(now.deployments[0].taskRoles.main, {
    preCommands: ["set -x", "export B=2", "pip install x"],
    postCommands: ["cp a b"],
  });
});

test("values of secrets are in what is sent, and not in the text", () => {
  const text = changed(START, { more: "secrets", value: masked("TOKEN", "OTHER") });
  assert.deepEqual(missingSecrets(text, new Map([["TOKEN", "x"]])), ["OTHER"]);
  const values = new Map([
    ["TOKEN", 'a: "b"\n# c'],
    ["OTHER", "******"],
  ]);
  const sent = withSecrets(text, values);
  assert.deepEqual(parse(sent).secrets, { TOKEN: 'a: "b"\n# c', OTHER: "******" });
  assert.equal(sent.split("\n").length, text.split("\n").length);
  const asSent = withSecrets(asJson(text), values);
  assert.deepEqual(JSON.parse(asSent).secrets, { TOKEN: 'a: "b"\n# c', OTHER: "******" });
});

test("a secret that is written into the text is sent as it is until one is entered", () => {
  const text = `${START}secrets:\n  TOKEN: plain # mine\n  OTHER: too\n`;
  const values = new Map([["TOKEN", "entered"]]);
  assert.equal(withSecrets(text, new Map()), text);
  assert.deepEqual(missingSecrets(text, new Map()), []);
  assert.deepEqual(formIn(text).more?.secrets, [
    { name: "TOKEN", isMasked: false },
    { name: "OTHER", isMasked: false },
  ]);
  const now = changed(text, { more: "secrets", value: [...masked("TOKEN"), { name: "OTHER", isMasked: false }] });
  assert.ok(!now.includes("plain"));
  assert.deepEqual(parse(withSecrets(now, values)).secrets, { TOKEN: "entered", OTHER: "too" });
});

test("a secret that is renamed stays at its place", () => {
  let text = `${START}secrets:\n  # of the registry\n  A: plain\n  B: "******" # asked\n`;
  text = changed(text, { more: "secrets", value: [{ name: "AX", isMasked: false }, ...masked("B")] });
  assert.deepEqual(parse(text).secrets, { AX: "plain", B: "******" });
  assert.ok(text.includes('B: "******" # asked'));
  text = changed(START, { more: "secrets", value: masked("A", "B", "C") });
  for (const name of ["NE", "NEW", "NEW_", "NEW_N"]) {
    text = changed(text, { more: "secrets", value: masked("A", name, "C") });
    assert.deepEqual(secretNames(text), ["A", name, "C"]);
    assert.deepEqual(Object.keys(parse(text).secrets), ["A", name, "C"]);
    assert.deepEqual(parse(text).deployments[0].taskRoles.main.preCommands, ["A", name, "C"].map(secretLine));
  }
  assert.deepEqual(secretNames(changed(text, { more: "secrets", value: masked("C", "A") })), ["C", "A"]);
});

const TWO_ROLES = `protocolVersion: 2
name: both
type: job
prerequisites:
  - {name: cpu, type: dockerimage, uri: ubuntu}
taskRoles:
  ps: {dockerImage: cpu, resourcePerInstance: {cpu: 1, memoryMB: 1, gpu: 0}, commands: [a]}
  worker: {dockerImage: cpu, resourcePerInstance: {cpu: 2, memoryMB: 2, gpu: 1}, commands: [b]}
`;

test("a role shows the secrets that it exports, and those that no role exports", () => {
  const start = `${TWO_ROLES}secrets: {USED: "******"}\n`;
  let text = withChange(start, { more: "secrets", value: masked("USED", "OF_PS") }, "ps");
  text = withChange(text, { more: "secrets", value: masked("USED", "OF_WORKER") }, "worker");
  assert.deepEqual(secretNames(text, "ps"), ["USED", "OF_PS"]);
  assert.deepEqual(secretNames(text, "worker"), ["USED", "OF_WORKER"]);
  assert.deepEqual(Object.keys(parse(text).secrets), ["USED", "OF_PS", "OF_WORKER"]);
  text = withChange(text, { more: "secrets", value: masked("USED", "OF_WORKER", "OF_PS") }, "worker");
  assert.deepEqual(parse(text).deployments[0].taskRoles.ps.preCommands, [secretLine("OF_PS")]);
  assert.deepEqual(parse(text).deployments[0].taskRoles.worker.preCommands, ["OF_WORKER", "OF_PS"].map(secretLine));
});

test("a secret that is renamed or removed is so in all roles", () => {
  let text = withChange(TWO_ROLES, { more: "secrets", value: masked("TOKEN") }, "ps");
  text = withChange(text, { more: "secrets", value: masked("TOKEN", "OTHER") }, "worker");
  text = withChange(text, { more: "secrets", value: masked("KEY") }, "ps");
  assert.deepEqual(parse(text).deployments[0].taskRoles, {
    ps: { preCommands: [secretLine("KEY")] },
    worker: { preCommands: ["KEY", "OTHER"].map(secretLine) },
  });
  assert.deepEqual(Object.keys(parse(text).secrets), ["KEY", "OTHER"]);
  text = withChange(text, { more: "secrets", value: [] }, "ps");
  assert.deepEqual(parse(text).deployments[0].taskRoles, { worker: { preCommands: [secretLine("OTHER")] } });
  assert.deepEqual(parse(text).secrets, { OTHER: "******" });
  assert.deepEqual(parse(withChange(text, { more: "secrets", value: [] }, "worker")), parse(TWO_ROLES));
});

test("values of secrets that the form does not show stay", () => {
  const values = new Map([
    ["A", "1"],
    ["B", "2"],
    ["C", "3"],
  ]);
  const rows = [
    { name: "BX", value: "2" },
    { name: "C", value: "" },
  ];
  assert.deepEqual(
    [...changedValues(values, masked("B", "C"), rows)],
    [
      ["A", "1"],
      ["BX", "2"],
    ],
  );
});

test("an image that another role uses as well stays that role's", () => {
  let text = withChange(TWO_ROLES, { basic: "image", value: "p" }, "worker");
  text = withChange(text, { basic: "image", value: "pytorch" }, "worker");
  const job = parse(text);
  assert.deepEqual(
    job.prerequisites.map((one: { uri: string }) => one.uri),
    ["ubuntu", "pytorch"],
  );
  assert.equal(formOf(text, "ps")?.basics.image, "ubuntu");
  assert.equal(formOf(text, "worker")?.basics.image, "pytorch");
});

test("an alias without its anchor is unreadable text", () => {
  const text = `${START}extras:\n  openpaisdk:\n    outputs:\n      - *.csv\n`;
  assert.equal(formOf(text), null);
  assert.equal(withChange(text, { basic: "name", value: "x" }), text);
  assert.equal(asJson(text), text);
  assert.equal(asYaml(text), text);
  assert.equal(withSecrets(text, new Map()), text);
  assert.deepEqual(missingSecrets(text, new Map()), []);
});

const ALIASES = `protocolVersion: 2
name: both
type: job
taskRoles:
  worker: &worker {resourcePerInstance: &small {cpu: 2, memoryMB: 2, gpu: 1}, commands: &run [b, c]}
  ps: *worker
  extra: {resourcePerInstance: *small, commands: *run}
`;

test("a change of a role that is an alias keeps the role, and leaves the other one", () => {
  const { worker } = parse(ALIASES).taskRoles;
  const now = parse(withChange(ALIASES, { basic: "gpu", value: 4 }, "ps")).taskRoles;
  assert.deepEqual(now, {
    worker,
    ps: { ...worker, resourcePerInstance: { cpu: 2, memoryMB: 2, gpu: 4 } },
    extra: worker,
  });
});

test("what aliases mean stays when the form replaces it", () => {
  const now = parse(withChange(ALIASES, { basic: "command", value: "new" }, "worker")).taskRoles;
  assert.deepEqual(now.worker.commands, ["new"]);
  assert.deepEqual(now.extra.commands, ["b", "c"]);
  const extras = `${START}extras: &own {tags: [x]}\nparameters: *own\n`;
  // An alias follows a change in what it means, and is a mapping of its own when that one is deleted.
  assert.deepEqual(parse(changed(extras, { more: "tags", value: ["y"] })).parameters, { tags: ["y"] });
  assert.deepEqual(parse(changed(extras, { more: "tags", value: [] })).parameters, {});
  const secrets = `${START}secrets: {A: &value "1", B: *value}\n`;
  const left = changed(secrets, { more: "secrets", value: [{ name: "B", isMasked: false }] });
  assert.deepEqual(parse(left).secrets, { B: "1" });
});

test("the lines of a command are its commands, unless their indentation matters", () => {
  const commands = (value: string) => parse(changed(START, { basic: "command", value })).taskRoles.main.commands;
  assert.deepEqual(commands("echo one\necho two"), ["echo one", "echo two"]);
  const loop = "for i in 1 2\ndo\n  echo $i\ndone\n";
  assert.deepEqual(commands(loop), [loop]);
  for (const value of ["a\nb", loop, "a\n", "", "\n\n", "a: b # c", "- x"]) {
    assert.equal(formIn(changed(START, { basic: "command", value })).basics.command, value);
  }
});

test("JSON stays JSON", () => {
  const now = changed(asJson(START), { basic: "gpu", value: 2 });
  assert.equal(JSON.parse(now).taskRoles.main.resourcePerInstance.gpu, 2);
  assert.equal(asYaml(now), changed(START, { basic: "gpu", value: 2 }));
});

test("one of several roles is shown and changed", () => {
  const text = `protocolVersion: 2
name: both
type: job
prerequisites:
  - {name: cpu, type: dockerimage, uri: ubuntu}
  - {name: cuda, type: dockerimage, uri: pytorch}
taskRoles:
  ps: {dockerImage: cpu, resourcePerInstance: {cpu: 1, memoryMB: 1, gpu: 0}, commands: [a]}
  worker: {dockerImage: cuda, instances: 3, resourcePerInstance: {cpu: 2, memoryMB: 2, gpu: 1}, commands: [b]}
`;
  assert.deepEqual(formIn(text).roles, ["ps", "worker"]);
  assert.equal(formIn(text).role, "ps");
  assert.equal(formOf(text, "worker")?.basics.image, "pytorch");
  assert.equal(formOf(text, "worker")?.basics.instances, 3);
  const now = parse(withChange(withChange(text, { basic: "gpu", value: 8 }, "worker"), { basic: "image", value: "x" }, "worker"));
  assert.equal(now.taskRoles.worker.resourcePerInstance.gpu, 8);
  assert.deepEqual(
    now.prerequisites.map((one: { uri: string }) => one.uri),
    ["ubuntu", "x"],
  );
});

test("the version of a text that is being typed", () => {
  assert.equal(versionOf('{"jobName": "x", "taskRoles": [{"na'), 1);
  assert.equal(versionOf('{"protocolVersion": 2, "name": "x", "jobName": 1'), 2);
  assert.equal(versionOf("protocolVersion: 2\nname: x"), 2);
  assert.equal(versionOf(""), 2);
});

test("a job of version 1 has the basic fields", () => {
  const form = formIn(V1);
  assert.equal(form.version, 1);
  assert.equal(form.more, null);
  assert.equal(form.basics.command, "python a.py");
  assert.equal(form.basics.virtualCluster, "vc1");
  const now = JSON.parse(
    changed(
      V1,
      { basic: "name", value: "new" },
      { basic: "memoryMB", value: 64 },
      { basic: "instances", value: 3 },
      { basic: "image", value: "x" },
    ),
  );
  assert.equal(now.jobName, "new");
  assert.equal(now.image, "x");
  assert.equal(now.taskRoles[0].memoryMB, 64);
  assert.equal(now.taskRoles[0].taskNumber, 3);
});

test("what is no job, or is unfinished, has no form and does not change", () => {
  for (const text of [
    "",
    "taskRoles: [",
    "a: 1",
    "[1, 2]",
    '"x"',
    "protocolVersion: 2\ntaskRoles: {}",
    "protocolVersion: 2\ntaskRoles: {main: 3}",
  ]) {
    assert.equal(formOf(text), null);
    assert.equal(withChange(text, { basic: "name", value: "x" }), text);
  }
});

test("values of other types than expected do not break the form", () => {
  const odd = START.replace("cpu: 1", "cpu: many").replace("- echo hello", "3");
  const text = `${odd}extras: {storages: 3, tags: [1, a], hivedScheduler: null, openpaisdk: {timeLimit: soon}}\nsecrets: 3\n`;
  const form = formIn(text);
  assert.equal(form.basics.cpu, 0);
  assert.equal(form.basics.command, "");
  assert.deepEqual(form.more?.secrets, []);
  assert.deepEqual(form.more?.tags, ["a"]);
  assert.equal(form.more?.timeLimitS, 0);
  assert.equal(parse(withChange(text, { more: "priority", value: "prod" })).extras.hivedScheduler.jobPriorityClass, "prod");
});

test("a job without an image gets one", () => {
  const bare =
    "protocolVersion: 2\nname: x\ntype: job\ntaskRoles:\n  main:\n    resourcePerInstance: {cpu: 1, memoryMB: 1, gpu: 0}\n    commands: [a]\n";
  const now = parse(withChange(bare, { basic: "image", value: "ubuntu" }));
  assert.deepEqual(now.prerequisites, [{ name: "docker_image", type: "dockerimage", uri: "ubuntu" }]);
  assert.equal(now.taskRoles.main.dockerImage, "docker_image");
  const withData = parse(withChange(`${bare}prerequisites: [{name: d, type: data, uri: [x]}]\n`, { basic: "image", value: "ubuntu" }));
  assert.deepEqual(withData.prerequisites, [{ name: "d", type: "data", uri: ["x"] }, now.prerequisites[0]]);
});

test("a copy as text has its new name and asks for its secrets", () => {
  const text = copyText({ ...parse(START), secrets: "******", taskRoles: { main: { commands: ["<% $secrets.TOKEN %>"] } } }, "hello_abc");
  assert.equal(parse(text).name, "hello_abc");
  assert.deepEqual(parse(text).secrets, { TOKEN: "******" });
});
