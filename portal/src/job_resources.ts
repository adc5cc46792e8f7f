// What a job requested, in words: "2 tasks × 4 GPUs, 8 CPUs, 32 GB".
import { resourcesOf, type JobConfig, type RoleResources } from "./editor/job_copy.ts";
import { counted, memory } from "./format.ts";

/** Of a configuration as JSON; empty where it has another form. */
export function requestedResources(config: string): string {
  const roles = rolesOf(config);
  return roles.map((one) => `${roles.length > 1 ? `${one.role}: ` : ""}${described(one)}`).join("; ");
}

function rolesOf(config: string): readonly RoleResources[] {
  try {
    return resourcesOf(JSON.parse(config) as JobConfig);
  } catch {
    return []; // what is no JSON is shown as it is, in its tab
  }
}

function described({ instances, gpu, cpu, memoryMB }: RoleResources): string {
  const each = [gpu > 0 && counted(gpu, "GPU"), counted(cpu, "CPU"), memory(memoryMB)].filter(Boolean).join(", ");
  return instances > 1 ? `${counted(instances, "task")} × ${each}` : each;
}
