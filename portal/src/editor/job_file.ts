// Job files as text: what the form shows of them, and changes of the form, which keep comments, order and
// everything that the form does not show.
import { isMap, isScalar, isSeq, parseDocument, stringify, type Document } from "yaml";
import { copyOf, MASK, type JobConfig } from "./job_copy.ts";
import { exportLine, exportOf, secretLine, secretOf, type Variable } from "./shell_words.ts";

/** Fields that jobs of both versions have. */
export interface BasicFields {
  readonly name: string;
  readonly command: string;
  readonly image: string;
  readonly instances: number;
  readonly gpu: number;
  readonly cpu: number;
  readonly memoryMB: number;
  readonly virtualCluster: string;
}

export interface StorageMount {
  readonly name: string;
  /** Empty: below `/mnt`. */
  readonly mountPath: string;
}

export interface SourcesReference {
  readonly sha256: string;
  readonly size: number;
}

/** Fields of version 2. */
export interface MoreFields {
  /** Variables and secrets of the role, which `preCommands` of the deployment export. */
  readonly environment: readonly Variable[];
  readonly secrets: readonly string[];
  /** Null: none; empty: the user's default ones. */
  readonly storages: readonly StorageMount[] | null;
  readonly sources: SourcesReference | null;
  readonly retries: number;
  readonly timeLimitS: number;
  readonly priority: string;
  readonly tags: readonly string[];
  readonly outputs: readonly string[];
}

export interface JobForm {
  readonly version: 1 | 2;
  readonly roles: readonly string[];
  /** The role that the form shows. */
  readonly role: string;
  readonly basics: BasicFields;
  /** Null for version 1. */
  readonly more: MoreFields | null;
}

type ChangeOf<F, Kind extends string> = { [K in keyof F]: { readonly [key in Kind]: K } & { readonly value: F[K] } }[keyof F];
export type Change = ChangeOf<BasicFields, "basic"> | ChangeOf<MoreFields, "more">;

// As `pai sub` names them.
const DEPLOYMENT = "sdk_deployment";
const IMAGE_NAME = "docker_image";

/** What the form shows of a job, of its first role unless another is named; null for what is no job. */
export function formOf(text: string, role = ""): JobForm | null {
  const file = JobFile.parse(text, role);
  return file && { version: file.version, roles: file.roles, role: file.role, basics: file.basics(), more: file.more() };
}

/** The text with one field changed. */
export function withChange(text: string, change: Change, role = ""): string {
  const file = JobFile.parse(text, role);
  if (!file) return text;
  file.apply(change);
  return file.text();
}

export function newJob({ name, image, command }: { name: string; image: string; command: string }): string {
  return stringify({
    protocolVersion: 2,
    name,
    type: "job",
    prerequisites: [{ name: IMAGE_NAME, type: "dockerimage", uri: image }],
    taskRoles: {
      main: {
        instances: 1,
        dockerImage: IMAGE_NAME,
        resourcePerInstance: { cpu: 1, memoryMB: 1024, gpu: 0 },
        commands: [command],
      },
    },
  });
}

/** A copy of a job under a new name: YAML, or JSON for version 1, which has no YAML. */
export function copyText(config: JobConfig, name: string): string {
  const copy = copyOf(config, name);
  return "protocolVersion" in copy ? stringify(copy, { lineWidth: 0 }) : `${JSON.stringify(copy, null, 2)}\n`;
}

// -- JSON and YAML ---------------------------------------------------------------------------------

export function isJson(text: string): boolean {
  return text.trimStart().startsWith("{");
}

/** As JSON; unreadable text stays as it is. */
export function asJson(text: string): string {
  const document = parseDocument(text);
  return document.errors.length ? text : JSON.stringify(document.toJS(), null, 2);
}

/** As YAML; unreadable text stays as it is. */
export function asYaml(text: string): string {
  const document = parseDocument(text);
  return document.errors.length ? text : stringify(document.toJS(), { lineWidth: 0 });
}

// -- secrets ---------------------------------------------------------------------------------------

/** The text as it is sent: masked secrets have their values. Lines stay where they are. */
export function withSecrets(text: string, values: ReadonlyMap<string, string>): string {
  let sent = text;
  // From the end, so that the places before stay right.
  for (const { name, range } of maskedSecrets(text).reverse()) {
    const value = values.get(name);
    if (value !== undefined) sent = `${sent.slice(0, range[0])}${JSON.stringify(value)}${sent.slice(range[1])}`;
  }
  return sent;
}

/** Masked secrets without a value. */
export function missingSecrets(text: string, values: ReadonlyMap<string, string>): string[] {
  return maskedSecrets(text)
    .map(({ name }) => name)
    .filter((name) => !values.has(name));
}

function maskedSecrets(text: string): { readonly name: string; readonly range: readonly [number, number] }[] {
  const document = parseDocument(text);
  const secrets = document.errors.length || !isMap(document.contents) ? null : document.getIn(["secrets"], true);
  if (!isMap(secrets)) return [];
  return secrets.items.flatMap(({ key, value }) =>
    isScalar(value) && value.value === MASK && value.range
      ? [{ name: String(key), range: [value.range[0], value.range[1]] as const }]
      : [],
  );
}

// -- form and document -----------------------------------------------------------------------------

type Path = readonly (string | number)[];

class JobFile {
  private constructor(
    private readonly document: Document,
    private readonly wasJson: boolean,
    readonly version: 1 | 2,
    readonly roles: readonly string[],
    readonly role: string,
    private readonly data: Record<string, unknown>,
  ) {}

  static parse(text: string, wanted: string): JobFile | null {
    const document = parseDocument(text);
    if (document.errors.length || !isMap(document.contents)) return null;
    const data = document.toJS() as Record<string, unknown>;
    const version = "jobName" in data && !("protocolVersion" in data) ? 1 : 2;
    const roles = version === 1 ? v1Roles(data["taskRoles"]) : v2Roles(data["taskRoles"]);
    const role = roles.includes(wanted) ? wanted : roles[0];
    if (role === undefined || (version === 2 && String(data["protocolVersion"]) !== "2")) return null;
    return new JobFile(document, isJson(text), version, roles, role, data);
  }

  text(): string {
    return this.wasJson ? `${JSON.stringify(this.document.toJS(), null, 2)}\n` : this.document.toString({ lineWidth: 0 });
  }

  basics(): BasicFields {
    const paths = this.paths();
    const commands = this.read(paths.command);
    return {
      name: this.words(paths.name),
      command: Array.isArray(commands) ? commands.map(String).join("\n") : this.version === 1 ? this.words(paths.command) : "",
      image: this.words(this.version === 1 ? ["image"] : this.imagePath()),
      instances: this.number(paths.instances) || 1,
      gpu: this.number(paths.gpu),
      cpu: this.number(paths.cpu),
      memoryMB: this.number(paths.memoryMB),
      virtualCluster: this.words(paths.virtualCluster),
    };
  }

  more(): MoreFields | null {
    if (this.version === 1) return null;
    const lines = this.preCommands();
    const exported = lines.flatMap((line) => secretOf(line) ?? []);
    const secrets = this.read(["secrets"]);
    const sources = this.read(OWN_EXTRAS("sources"));
    return {
      environment: lines.flatMap((line) => exportOf(line) ?? []),
      secrets: [...new Set([...(isObject(secrets) ? Object.keys(secrets) : []), ...exported])],
      storages: mountsOf(this.read(["extras", "storages"])),
      sources:
        isObject(sources) && typeof sources["sha256"] === "string"
          ? { sha256: sources["sha256"], size: Number(sources["size"]) || 0 }
          : null,
      retries: this.number(["jobRetryCount"]),
      timeLimitS: this.number(OWN_EXTRAS("timeLimit")),
      priority: this.words(PRIORITY),
      tags: texts(this.read(["extras", "tags"])),
      outputs: texts(this.read(OWN_EXTRAS("outputs"))),
    };
  }

  apply(change: Change): void {
    if ("basic" in change) this.changeBasic(change);
    else if (this.version === 2) this.changeMore(change);
  }

  private changeBasic(change: ChangeOf<BasicFields, "basic">): void {
    const paths = this.paths();
    switch (change.basic) {
      case "command":
        this.set(paths.command, this.version === 1 ? change.value : commandsOf(change.value));
        break;
      case "image":
        if (this.version === 1) this.set(["image"], change.value);
        else this.setImage(change.value);
        break;
      case "virtualCluster":
        this.setOrDelete(paths.virtualCluster, change.value);
        break;
      default:
        this.set(paths[change.basic], change.value);
    }
  }

  private changeMore(change: ChangeOf<MoreFields, "more">): void {
    switch (change.more) {
      case "environment":
        this.setVariables(change.value.map(({ name, value }) => exportLine(name, value)), (line) => exportOf(line) !== null);
        break;
      case "secrets":
        this.setSecrets(change.value);
        break;
      case "storages":
        this.setOrDelete(
          ["extras", "storages"],
          change.value?.map(({ name, mountPath }) => (mountPath ? { name, mountPath } : { name })) ?? "",
        );
        break;
      case "sources":
        this.setOrDelete(OWN_EXTRAS("sources"), change.value ?? "");
        break;
      case "retries":
        this.setOrDelete(["jobRetryCount"], change.value);
        break;
      case "timeLimitS":
        this.setOrDelete(OWN_EXTRAS("timeLimit"), change.value);
        break;
      case "priority":
        this.setOrDelete(PRIORITY, change.value);
        break;
      case "tags":
        this.setOrDelete(["extras", "tags"], change.value.length ? change.value : "");
        break;
      case "outputs":
        this.setOrDelete(OWN_EXTRAS("outputs"), change.value.length ? change.value : "");
        break;
    }
  }

  // -- variables and secrets -------------------------------------------------

  private setSecrets(names: readonly string[]): void {
    const known = this.read(["secrets"]);
    const values = isObject(known) ? known : {};
    const before = Object.keys(values);
    const exported = new Set(this.preCommands().flatMap((line) => secretOf(line) ?? []));
    // One that the commands use by themselves needs no export.
    const added = names.filter((name) => exported.has(name) || !before.includes(name));
    this.setVariables(added.map(secretLine), (line) => secretOf(line) !== null);
    if (!isObject(known) && names.length) this.set(["secrets"], {});
    for (const name of names) if (!before.includes(name)) this.set(["secrets", name], MASK);
    for (const name of before) if (!names.includes(name)) this.delete(["secrets", name]);
  }

  /** Replace the lines of one kind in the commands before the role's own. */
  private setVariables(lines: readonly string[], isOfKind: (line: string) => boolean): void {
    const before = this.preCommands();
    const first = before.findIndex(isOfKind);
    const others = before.filter((line) => !isOfKind(line));
    // New ones go before everything that may use them, secrets behind variables.
    const variables = others.filter((line) => exportOf(line) !== null).length;
    const at = first >= 0 ? first : variables;
    const after = [...others.slice(0, at), ...lines, ...others.slice(at)];
    if (!after.length) {
      if (before.length) this.deletePreCommands();
      return;
    }
    this.set([...this.deploymentPath(), "taskRoles", this.role, "preCommands"], after);
  }

  private preCommands(): string[] {
    const at = this.deployment();
    return at < 0 ? [] : texts(this.read(["deployments", at, "taskRoles", this.role, "preCommands"]));
  }

  /** Place of the deployment that is used; -1 if there is none. */
  private deployment(): number {
    const used = this.words(["defaults", "deployment"]);
    const all = this.read(["deployments"]);
    return used && Array.isArray(all) ? all.findIndex((one) => isObject(one) && one["name"] === used) : -1;
  }

  /** Path of the deployment that is used, which is made if there is none. */
  private deploymentPath(): Path {
    const at = this.deployment();
    if (at >= 0) return ["deployments", at];
    const all = this.read(["deployments"]);
    const count = Array.isArray(all) ? all.length : 0;
    if (!count) this.set(["deployments"], []);
    this.set(["deployments", count], { name: DEPLOYMENT });
    this.set(["defaults", "deployment"], DEPLOYMENT);
    return ["deployments", count];
  }

  private deletePreCommands(): void {
    const at = this.deployment();
    this.delete(["deployments", at, "taskRoles", this.role, "preCommands"]);
    const left = this.read(["deployments", at]);
    if (!isObject(left) || left["name"] !== DEPLOYMENT || left["taskRoles"] !== undefined) return;
    this.delete(["deployments", at]);
    this.delete(["defaults", "deployment"]);
  }

  // -- image -----------------------------------------------------------------

  /** Where the role's image is; in a job that names none for it, the first one. */
  private imagePath(): Path {
    const all = this.read(["prerequisites"]);
    const used = this.words(["taskRoles", this.role, "dockerImage"]);
    const images = (Array.isArray(all) ? all : []).map((one) => (isObject(one) && one["type"] === "dockerimage" ? one["name"] : null));
    const at = images.indexOf(used);
    return ["prerequisites", at >= 0 ? at : Math.max(0, images.findIndex((name) => name !== null)), "uri"];
  }

  private setImage(uri: string): void {
    const path = this.imagePath();
    if (this.read(path.slice(0, -1)) !== undefined) {
      this.set(path, uri);
      return;
    }
    this.set(["prerequisites"], [{ name: IMAGE_NAME, type: "dockerimage", uri }]);
    this.set(["taskRoles", this.role, "dockerImage"], IMAGE_NAME);
  }

  // -- paths -----------------------------------------------------------------

  private paths(): Readonly<Record<Exclude<keyof BasicFields, "image">, Path>> {
    if (this.version === 1) {
      const role = ["taskRoles", this.roles.indexOf(this.role)];
      return {
        name: ["jobName"],
        command: [...role, "command"],
        instances: [...role, "taskNumber"],
        gpu: [...role, "gpuNumber"],
        cpu: [...role, "cpuNumber"],
        memoryMB: [...role, "memoryMB"],
        virtualCluster: ["virtualCluster"],
      };
    }
    const role = ["taskRoles", this.role];
    return {
      name: ["name"],
      command: [...role, "commands"],
      instances: [...role, "instances"],
      gpu: [...role, "resourcePerInstance", "gpu"],
      cpu: [...role, "resourcePerInstance", "cpu"],
      memoryMB: [...role, "resourcePerInstance", "memoryMB"],
      virtualCluster: ["defaults", "virtualCluster"],
    };
  }

  private read(path: Path): unknown {
    let value: unknown = this.data;
    for (const name of path) {
      if (Array.isArray(value)) value = value[Number(name)];
      else if (isObject(value)) value = value[String(name)];
      else return undefined;
    }
    return value;
  }

  private words(path: Path): string {
    const value = this.read(path);
    return typeof value === "string" || typeof value === "number" ? String(value) : "";
  }

  private number(path: Path): number {
    return Number(this.words(path)) || 0;
  }

  private set(path: Path, value: unknown): void {
    // What is no mapping or list on the way is replaced: nothing can be set in it.
    for (let length = 1; length < path.length; length += 1) {
      const parent = path.slice(0, length);
      const node = this.document.getIn(parent, true);
      if (!isMap(node) && !isSeq(node)) this.document.setIn(parent, this.document.createNode({}));
    }
    this.document.setIn(path, this.document.createNode(value));
    this.refresh();
  }

  /** Set a value, or delete it if it is empty. */
  private setOrDelete(path: Path, value: unknown): void {
    if (value === "" || value === 0) this.delete(path);
    else this.set(path, value);
  }

  /** Delete a value, and the mappings and lists that it leaves empty. */
  private delete(path: Path): void {
    for (let length = path.length; length > 0; length -= 1) {
      const place = path.slice(0, length);
      if (this.read(place.slice(0, -1)) === undefined) continue;
      const value = this.read(place);
      const isEmpty = isObject(value) ? Object.keys(value).length === 0 : Array.isArray(value) && !value.length;
      if (length < path.length && !isEmpty) return;
      if (value !== undefined) this.document.deleteIn(place);
      this.refresh();
    }
  }

  private refresh(): void {
    for (const key of Object.keys(this.data)) delete this.data[key];
    Object.assign(this.data, this.document.toJS());
  }
}

const OWN_EXTRAS = (key: string): Path => ["extras", "openpaisdk", key];
const PRIORITY: Path = ["extras", "hivedScheduler", "jobPriorityClass"];

/** Lines of a command as commands. They are trimmed one by one, so indented lines stay together. */
function commandsOf(command: string): string[] {
  const lines = command.split("\n");
  return lines.every((line) => line !== "" && line === line.trim()) ? lines : [command];
}

function v1Roles(roles: unknown): string[] {
  return Array.isArray(roles) && roles.every(isObject) ? roles.map((role, at) => String(role["name"] ?? at)) : [];
}

function v2Roles(roles: unknown): string[] {
  return isObject(roles) && Object.values(roles).every(isObject) ? Object.keys(roles) : [];
}

function mountsOf(storages: unknown): StorageMount[] | null {
  if (!Array.isArray(storages)) return null;
  return storages.flatMap((one) =>
    isObject(one) && typeof one["name"] === "string"
      ? [{ name: one["name"], mountPath: typeof one["mountPath"] === "string" ? one["mountPath"] : "" }]
      : [],
  );
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === "string") : [];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
