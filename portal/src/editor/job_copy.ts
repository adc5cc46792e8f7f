// Copies of jobs: a new name, secrets to enter again, other resources. Plain data; also loaded without the editor.
import { withoutSlashesAtEnd } from "../files/paths.ts";

export type JobConfig = Readonly<Record<string, unknown>>;

/** What clusters show in place of secrets. */
export const MASK = "******";

export interface RoleResources {
  readonly role: string;
  readonly instances: number;
  readonly gpu: number;
  readonly cpu: number;
  readonly memoryMB: number;
}

const SUFFIX = /_[a-z0-9]{6,8}$/;
const SECRET = /<%\s*\$secrets\.(\w+)/g;
/** Letters and digits that do not look alike. */
const LETTERS = "abcdefghijkmnpqrstuvwxyz23456789";

/** A name that no other job has: the old one with another ending. */
export function nextName(name: string): string {
  const random = crypto.getRandomValues(new Uint8Array(6));
  return `${name.replace(SUFFIX, "")}_${Array.from(random, (byte) => LETTERS[byte % LETTERS.length]).join("")}`;
}

export function nameOf(config: JobConfig): string {
  return String(config["protocolVersion"] === undefined ? config["jobName"] : config["name"]);
}

/** Names of the secrets that the job uses; clusters do not return their values. */
export function secretsOf(config: JobConfig): string[] {
  if (config["secrets"] === undefined) return [];
  const listed = isObject(config["secrets"]) ? Object.keys(config["secrets"]) : [];
  const used = [...JSON.stringify(config).matchAll(SECRET)].map((match) => match[1] ?? "");
  return [...new Set([...listed, ...used])];
}

/** Whether the job calls a Python function: a copy needs calls of its own on the storage, which `pai resubmit` makes. */
export function isFunctionCall(config: JobConfig): boolean {
  return /-u [^ ]*pairuntime\.pyz[^ ]* call /.test(JSON.stringify(config).replaceAll("\\", ""));
}

/** The job under another name. Its secrets are masked, each by itself; its outputs get a folder of their own. */
export function copyOf(config: JobConfig, name: string): Record<string, unknown> {
  if (config["protocolVersion"] === undefined) return { ...config, jobName: name };
  const copy: Record<string, unknown> = { ...config, name };
  const secrets = secretsOf(config);
  delete copy["secrets"];
  if (secrets.length) copy["secrets"] = Object.fromEntries(secrets.map((secret) => [secret, MASK]));
  const parameters = copy["parameters"];
  const old = `/jobs/${nameOf(config)}`;
  if (isObject(parameters) && typeof parameters["work_directory"] === "string") {
    const folder = withoutSlashesAtEnd(parameters["work_directory"]);
    if (folder.endsWith(old)) {
      copy["parameters"] = { ...parameters, work_directory: `${folder.slice(0, -old.length)}/jobs/${name}` };
    }
  }
  return copy;
}

/** Resources of each role, of either version. */
export function resourcesOf(config: JobConfig): RoleResources[] {
  const roles = config["taskRoles"];
  if (Array.isArray(roles)) {
    return roles.filter(isObject).map((role) => ({
      role: String(role["name"]),
      instances: Number(role["taskNumber"] ?? 1),
      gpu: Number(role["gpuNumber"] ?? 0),
      cpu: Number(role["cpuNumber"] ?? 1),
      memoryMB: Number(role["memoryMB"] ?? 0),
    }));
  }
  return Object.entries(isObject(roles) ? roles : {}).map(([name, value]) => {
    const role = isObject(value) ? value : {};
    const resources = isObject(role["resourcePerInstance"]) ? role["resourcePerInstance"] : {};
    return {
      role: name,
      instances: Number(role["instances"] ?? 1),
      gpu: Number(resources["gpu"] ?? 0),
      cpu: Number(resources["cpu"] ?? 1),
      memoryMB: Number(resources["memoryMB"] ?? 0),
    };
  });
}

/** The job with other resources of its roles. */
export function withResources(config: JobConfig, wanted: readonly RoleResources[]): Record<string, unknown> {
  const byRole = new Map(wanted.map((resources) => [resources.role, resources]));
  const roles = config["taskRoles"];
  if (Array.isArray(roles)) {
    const changed = roles.map((role: unknown) => {
      const to = isObject(role) ? byRole.get(String(role["name"])) : undefined;
      return isObject(role) && to
        ? { ...role, taskNumber: to.instances, gpuNumber: to.gpu, cpuNumber: to.cpu, memoryMB: to.memoryMB }
        : role;
    });
    return { ...config, taskRoles: changed };
  }
  const changed = Object.entries(isObject(roles) ? roles : {}).map(([name, role]) => {
    const to = byRole.get(name);
    if (!isObject(role) || !to) return [name, role];
    const before = isObject(role["resourcePerInstance"]) ? role["resourcePerInstance"] : {};
    const resourcePerInstance = { ...before, gpu: to.gpu, cpu: to.cpu, memoryMB: to.memoryMB };
    // Not written where it was not: one is what it means.
    const instances = to.instances === 1 && role["instances"] === undefined ? {} : { instances: to.instances };
    return [name, { ...role, ...instances, resourcePerInstance }];
  });
  return { ...config, taskRoles: Object.fromEntries(changed) as unknown };
}

export function withSecretValues(config: JobConfig, values: Readonly<Record<string, string>>): Record<string, unknown> {
  return Object.keys(values).length ? { ...config, secrets: { ...values } } : { ...config };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
