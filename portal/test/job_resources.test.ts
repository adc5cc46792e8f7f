import assert from "node:assert/strict";
import { test } from "node:test";
import { requestedResources } from "../src/job_resources.ts";

test("resources of both versions of the protocol", () => {
  const one = { taskRoles: { main: { instances: 1, resourcePerInstance: { cpu: 1, memoryMB: 512, gpu: 0 } } } };
  assert.equal(requestedResources(JSON.stringify(one)), "1 CPU, 512 MB");
  const two = {
    taskRoles: {
      ps: { instances: 2, resourcePerInstance: { cpu: 2, memoryMB: 4096 } },
      worker: { instances: 1, resourcePerInstance: { cpu: 8, memoryMB: 32768, gpu: 4 } },
    },
  };
  assert.equal(requestedResources(JSON.stringify(two)), "ps: 2 tasks × 2 CPUs, 4 GB; worker: 4 GPUs, 8 CPUs, 32 GB");
  const old = { taskRoles: [{ name: "main", taskNumber: 3, cpuNumber: 4, memoryMB: 1024, gpuNumber: 1 }] };
  assert.equal(requestedResources(JSON.stringify(old)), "3 tasks × 1 GPU, 4 CPUs, 1 GB");
});

test("a configuration of another form has no resources", () => {
  for (const text of ["", "name: yaml", "{}", '{"taskRoles": null}', '{"taskRoles": [1]}', "[]"]) {
    assert.equal(requestedResources(text), "");
  }
});
