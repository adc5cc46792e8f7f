// Job files as text: what the form shows of them, and changes of the form, which keep comments, order and
// everything that the form does not show.
import { isAlias, isMap, isNode, isScalar, isSeq, Pair, parseDocument, stringify, visit, type Alias, type Document } from "yaml";
import { taskValues } from "../job_array.ts";
import { MAX_TASKS, rowsCommand, setsValues, type ValueColumn } from "./array_rows.ts";
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

export interface Secret {
  readonly name: string;
  /** Its value is not in the text, but entered in the form. In a change, false leaves what the text has. */
  readonly isMasked: boolean;
}

export interface SourcesReference {
  readonly sha256: string;
  readonly size: number;
}

/** Fields of version 2. */
export interface MoreFields {
  /** Variables of the role, which `preCommands` of the deployment export. */
  readonly environment: readonly Variable[];
  /** Values of the tasks of an array; none for other jobs. */
  readonly rows: readonly ValueColumn[];
  /** Those that the role exports, and those that no role exports: commands may use them by themselves. */
  readonly secrets: readonly Secret[];
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

/** The protocol version of a text, also of one that cannot be read yet. Version 1 has a `jobName`, and no YAML. */
export function versionOf(text: string): 1 | 2 {
  return isJson(text) && /"jobName"\s*:/.test(text) && !/"protocolVersion"\s*:/.test(text) ? 1 : 2;
}

/** As JSON; unreadable text stays as it is. */
export function asJson(text: string): string {
  const job = parsed(text);
  return job ? JSON.stringify(job.data, null, 2) : text;
}

/** As YAML; unreadable text stays as it is. */
export function asYaml(text: string): string {
  const job = parsed(text);
  return job ? stringify(job.data, { lineWidth: 0 }) : text;
}

/** Null for unreadable text. */
function parsed(text: string): { readonly document: Document; readonly data: unknown } | null {
  const document = parseDocument(text);
  if (document.errors.length) return null;
  try {
    return { document, data: document.toJS() as unknown };
  } catch {
    // An alias without its anchor, as `- *.csv` is, or more aliases than anyone writes.
    return null;
  }
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

/** Values of secrets after a change of the form, which shows some of them. */
export function changedValues(
  values: ReadonlyMap<string, string>,
  shown: readonly Secret[],
  rows: readonly Variable[],
): ReadonlyMap<string, string> {
  const others = [...values].filter(([name]) => !shown.some((one) => one.name === name));
  return new Map([...others, ...rows.filter((row) => row.value).map((row) => [row.name, row.value] as const)]);
}

function maskedSecrets(text: string): { readonly name: string; readonly range: readonly [number, number] }[] {
  const document = parsed(text)?.document;
  const secrets = isMap(document?.contents) ? document.getIn(["secrets"], true) : null;
  if (!isMap(secrets)) return [];
  return secrets.items.flatMap(({ key, value }) =>
    isScalar(value) && value.value === MASK && value.range ? [{ name: String(key), range: [value.range[0], value.range[1]] as const }] : [],
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
    const { document, data } = parsed(text) ?? {};
    if (!document || !isObject(data)) return null;
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
      image: this.words(this.version === 1 ? ["image"] : this.imagePath(this.role)),
      instances: this.number(paths.instances) || 1,
      gpu: this.number(paths.gpu),
      cpu: this.number(paths.cpu),
      memoryMB: this.number(paths.memoryMB),
      virtualCluster: this.words(paths.virtualCluster),
    };
  }

  more(): MoreFields | null {
    if (this.version === 1) return null;
    const lines = this.preCommands(this.role);
    const sources = this.read(OWN_EXTRAS("sources"));
    return {
      environment: lines.flatMap((line) => exportOf(line) ?? []),
      rows: this.rows(),
      secrets: this.secrets(),
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
        this.setVariables(
          this.role,
          change.value.map(({ name, value }) => exportLine(name, value)),
          (line) => exportOf(line) !== null,
        );
        break;
      case "rows":
        this.setRows(change.value);
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

  // -- arrays ----------------------------------------------------------------

  /** Of combinations, too, as far as there are tasks. */
  private rows(): ValueColumn[] {
    const found = this.roles.length === 1 ? taskValues(this.data) : null;
    const tasks = Math.min(MAX_TASKS, this.number(this.paths().instances) || 1);
    const rows = found ? Array.from({ length: tasks }, (_, index) => found.of(index)) : [];
    return found ? found.names.map((name, at) => ({ name, values: rows.map((row) => row[at] ?? "") })) : [];
  }

  /** Make the job an array with these values, as `pai sub` does; without values, a job that is none. */
  private setRows(columns: readonly ValueColumn[]): void {
    const tasks = columns[0]?.values.length ?? 0;
    this.set(this.paths().instances, Math.max(1, tasks));
    this.setVariables(this.role, tasks ? [rowsCommand(columns)] : [], setsValues);
    this.delete(OWN_EXTRAS("array"));
    if (tasks) {
      this.set(["taskRoles", this.role, "completion"], { minFailedInstances: -1, minSucceededInstances: -1 });
      this.set(["extras", "gangAllocation"], false);
      this.set(OWN_EXTRAS("arrayRows"), Object.fromEntries(columns.map(({ name, values }) => [name, values])));
    } else {
      this.delete(["taskRoles", this.role, "completion"]);
      this.delete(OWN_EXTRAS("arrayRows"));
      this.delete(OWN_EXTRAS("arrayLimit"));
      this.delete(["extras", "gangAllocation"]);
    }
  }

  // -- variables and secrets -------------------------------------------------

  private secrets(): Secret[] {
    const values = this.secretValues();
    const here = this.exportedSecrets(this.role);
    const elsewhere = new Set(this.roles.filter((role) => role !== this.role).flatMap((role) => this.exportedSecrets(role)));
    const declared = Object.keys(values).filter((name) => here.includes(name) || !elsewhere.has(name));
    return [...new Set([...declared, ...here])].map((name) => ({ name, isMasked: (values[name] ?? MASK) === MASK }));
  }

  /** Replace the secrets that the form shows. One that is renamed or removed is so in all roles that export it. */
  private setSecrets(secrets: readonly Secret[]): void {
    const before = this.secrets().map(({ name }) => name);
    const after = secrets.map(({ name }) => name);
    const renamed = renames(before, after);
    const isRemoved = (name: string) => before.includes(name) && !after.includes(name) && !renamed.has(name);
    for (const role of this.roles) {
      const exported = this.exportedSecrets(role);
      const kept = exported.filter((name) => !isRemoved(name)).map((name) => renamed.get(name) ?? name);
      // One that the commands use by themselves needs no export; one that is new to the role does.
      const added = role === this.role ? after.filter((name) => !before.includes(name)) : [];
      const lines = [...new Set([...kept, ...added])];
      if (lines.join() !== exported.join()) this.setVariables(role, lines.map(secretLine), (line) => secretOf(line) !== null);
    }
    const others = Object.keys(this.secretValues()).map((name) => (before.includes(name) || after.includes(name) ? null : name));
    this.declareSecrets(filled(others, after), renamed);
    for (const { name, isMasked } of secrets) {
      if (isMasked && this.secretValues()[name] !== MASK) this.set(["secrets", name], MASK);
    }
  }

  /** Have exactly these secrets, in this order; new ones are masked. */
  private declareSecrets(names: readonly string[], renamed: ReadonlyMap<string, string>): void {
    if (!names.length) {
      this.delete(["secrets"]);
      return;
    }
    if (!isObject(this.read(["secrets"]))) this.set(["secrets"], {});
    this.resolveAliases(["secrets"]);
    const secrets = this.document.getIn(["secrets"], true);
    if (!isMap(secrets)) return;
    const pairs = new Map(secrets.items.map((pair) => [nameOfKey(pair.key), pair]));
    const oldNames = new Map([...renamed].map(([from, to]) => [to, from]));
    secrets.items = names.map((name) => {
      const old = pairs.get(oldNames.get(name) ?? "");
      return pairs.get(name) ?? new Pair(this.document.createNode(name), old?.value ?? this.document.createNode(MASK));
    });
    this.refresh();
  }

  private secretValues(): Readonly<Record<string, unknown>> {
    const secrets = this.read(["secrets"]);
    return isObject(secrets) ? secrets : {};
  }

  private exportedSecrets(role: string): string[] {
    return this.preCommands(role).flatMap((line) => secretOf(line) ?? []);
  }

  /** Replace the lines of one kind in the commands before the role's own. */
  private setVariables(role: string, lines: readonly string[], isOfKind: (line: string) => boolean): void {
    const before = this.preCommands(role);
    const first = before.findIndex(isOfKind);
    const others = before.filter((line) => !isOfKind(line));
    // New ones go before everything that may use them, secrets behind variables.
    const variables = others.filter((line) => exportOf(line) !== null).length;
    const at = first >= 0 ? first : variables;
    const after = [...others.slice(0, at), ...lines, ...others.slice(at)];
    if (!after.length) {
      if (before.length) this.deletePreCommands(role);
      return;
    }
    this.set([...this.deploymentPath(), "taskRoles", role, "preCommands"], after);
  }

  private preCommands(role: string): string[] {
    const at = this.deployment();
    return at < 0 ? [] : texts(this.read(["deployments", at, "taskRoles", role, "preCommands"]));
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

  private deletePreCommands(role: string): void {
    const at = this.deployment();
    this.delete(["deployments", at, "taskRoles", role, "preCommands"]);
    const deployment = this.read(["deployments", at]);
    if (!isObject(deployment) || deployment["name"] !== DEPLOYMENT || deployment["taskRoles"] !== undefined) return;
    this.delete(["deployments", at]);
    this.delete(["defaults", "deployment"]);
  }

  // -- image -----------------------------------------------------------------

  /** Where a role's image is, in a job that names none for it, the first one; or where it would be. */
  private imagePath(role: string): Path {
    const used = this.words(["taskRoles", role, "dockerImage"]);
    const images = this.prerequisites().map((prerequisite) =>
      isObject(prerequisite) && prerequisite["type"] === "dockerimage" ? prerequisite["name"] : null,
    );
    const places = [images.indexOf(used), images.findIndex((name) => name !== null), images.length];
    return ["prerequisites", places.find((at) => at >= 0) ?? 0, "uri"];
  }

  private setImage(uri: string): void {
    const path = this.imagePath(this.role);
    const hasImage = this.read(path.slice(0, -1)) !== undefined;
    const isShared = hasImage && this.roles.some((role) => role !== this.role && this.imagePath(role)[1] === path[1]);
    if (hasImage && !isShared) {
      this.set(path, uri);
      return;
    }
    const all = this.prerequisites();
    const names = all.map((prerequisite) => (isObject(prerequisite) ? prerequisite["name"] : null));
    let name = isShared ? `${IMAGE_NAME}_${this.role}` : IMAGE_NAME;
    while (names.includes(name)) name += "_";
    if (!all.length) this.set(["prerequisites"], []);
    this.set(["prerequisites", all.length], { name, type: "dockerimage", uri });
    this.set(["taskRoles", this.role, "dockerImage"], name);
  }

  private prerequisites(): readonly unknown[] {
    const all = this.read(["prerequisites"]);
    return Array.isArray(all) ? all : [];
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
    this.resolveAliases(path);
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
      if (value !== undefined) {
        this.resolveAliases(place);
        this.document.deleteIn(place);
      }
      this.refresh();
    }
  }

  /** Put copies in place of aliases on the way to a value, and of those that mean the value or something in it. */
  private resolveAliases(path: Path): void {
    const copy = (alias: Alias) => this.document.createNode(alias.toJS(this.document));
    for (let length = 1; length <= path.length; length += 1) {
      const place = path.slice(0, length);
      const node = this.document.getIn(place, true);
      if (isAlias(node)) this.document.setIn(place, copy(node));
    }
    const value = this.document.getIn(path, true);
    if (!isNode(value)) return;
    const inside = new Set<unknown>();
    visit(value, { Node: (_, node) => void inside.add(node) });
    visit(this.document, {
      Alias: (_, alias) => {
        const meant = alias.resolve(this.document);
        return meant && inside.has(meant) ? copy(alias) : undefined;
      },
    });
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

/** Old and new names, if the lists differ in names only. */
function renames(before: readonly string[], after: readonly string[]): ReadonlyMap<string, string> {
  if (before.length !== after.length) return new Map();
  return new Map(
    before.flatMap((name, at) => {
      const to = after[at];
      return to !== undefined && !after.includes(name) && !before.includes(to) ? [[name, to] as const] : [];
    }),
  );
}

/** The names in their order, in the empty places first, then at the end. */
function filled(places: readonly (string | null)[], names: readonly string[]): string[] {
  const remaining = [...names];
  return [...places.flatMap((name) => name ?? remaining.splice(0, 1)), ...remaining];
}

function nameOfKey(key: unknown): string {
  return String(isScalar(key) ? key.value : key);
}

function mountsOf(storages: unknown): StorageMount[] | null {
  if (!Array.isArray(storages)) return null;
  return storages.flatMap((storage) =>
    isObject(storage) && typeof storage["name"] === "string"
      ? [{ name: storage["name"], mountPath: typeof storage["mountPath"] === "string" ? storage["mountPath"] : "" }]
      : [],
  );
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === "string") : [];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
