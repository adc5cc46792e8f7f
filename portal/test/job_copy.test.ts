import assert from "node:assert/strict";
import { test } from "node:test";
import { copyOf, isFunctionCall, nextName, resourcesOf, secretsOf, withResources, withSecretValues } from "../src/editor/job_copy.ts";

const V2 = {
  protocolVersion: 2,
  name: "train_abc234",
  parameters: { work_directory: "/alice/jobs/train_abc234", lr: 1 },
  secrets: "******",
  taskRoles: {
    ps: { resourcePerInstance: { cpu: 1, memoryMB: 64, gpu: 0, ports: { web: 1 } }, commands: ["<% $secrets.TOKEN %> <%$secrets.B%>"] },
    worker: { instances: 4, resourcePerInstance: { cpu: 2, memoryMB: 128, gpu: 1 }, commands: ["<% $secrets.TOKEN %>"] },
  },
};
const V1 = {
  jobName: "old",
  image: "x",
  taskRoles: [{ name: "main", taskNumber: 2, cpuNumber: 1, memoryMB: 64, gpuNumber: 0, command: "a" }],
};

test("a copy has another ending of the name", () => {
  assert.match(nextName("train_abc234"), /^train_[a-z2-9]{6}$/);
  assert.match(nextName("train"), /^train_[a-z2-9]{6}$/);
  assert.notEqual(nextName("train"), nextName("train"));
});

test("a copy has its own folder for outputs, and its secrets are to be entered", () => {
  const copy = copyOf(V2, "second");
  assert.equal(copy["name"], "second");
  assert.deepEqual(copy["parameters"], { work_directory: "/alice/jobs/second", lr: 1 });
  assert.deepEqual(copy["secrets"], { TOKEN: "******", B: "******" });
  assert.deepEqual(secretsOf(V2), ["TOKEN", "B"]);
  assert.deepEqual(withSecretValues(copy, { TOKEN: "x", B: "y" })["secrets"], { TOKEN: "x", B: "y" });
});

test("a copy of version 1 stays one", () => {
  assert.deepEqual(copyOf(V1, "new"), { ...V1, jobName: "new" });
});

test("resources of the roles are read and replaced, in both versions", () => {
  assert.deepEqual(resourcesOf(V2), [
    { role: "ps", instances: 1, gpu: 0, cpu: 1, memoryMB: 64 },
    { role: "worker", instances: 4, gpu: 1, cpu: 2, memoryMB: 128 },
  ]);
  assert.deepEqual(withResources(V2, resourcesOf(V2)), V2);
  const wanted = resourcesOf(V2).map((one) => ({ ...one, gpu: one.gpu * 2, instances: 2 }));
  const changed = withResources(V2, wanted);
  assert.deepEqual(resourcesOf(changed), wanted);
  assert.deepEqual((changed["taskRoles"] as typeof V2.taskRoles).ps.resourcePerInstance.ports, { web: 1 });
  const old = resourcesOf(V1).map((one) => ({ ...one, memoryMB: 128 }));
  assert.deepEqual(resourcesOf(withResources(V1, old)), old);
});

test("a job that calls a function is recognised", () => {
  const line = `exec "$(command -v python || echo python3)" -u "\${pai_runtime:-\${PAI_RUNTIME_DIR:-/usr/local/pai}/pairuntime.pyz}" call '{}'`;
  assert.ok(isFunctionCall({ taskRoles: { main: { commands: [line] } } }));
  assert.ok(!isFunctionCall(V2));
});
