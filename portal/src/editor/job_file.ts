// Job files as text: what the form shows of them, and changes of the form, which keep comments and order.
import { isMap, parseDocument, stringify, type Document } from "yaml";

export interface JobFields {
  readonly name: string;
  readonly command: string;
  readonly image: string;
  readonly instances: number;
  readonly gpu: number;
  readonly cpu: number;
  readonly memoryMB: number;
  readonly virtualCluster: string;
}

export type FieldName = keyof JobFields;

/** The fields of a job that the form can show: version 2, one task role. Null for any other. */
export function fieldsOf(text: string): JobFields | null {
  const document = parseDocument(text);
  const role = roleOf(document);
  if (role === null) return null;
  const words = (path: readonly unknown[]) => {
    const value: unknown = document.getIn(path);
    return typeof value === "string" || typeof value === "number" ? String(value) : "";
  };
  const number = (path: readonly unknown[]) => Number(words(path)) || 0;
  const commands: unknown = document.toJS().taskRoles?.[role]?.commands;
  const resources = ["taskRoles", role, "resourcePerInstance"];
  return {
    name: words(["name"]),
    command: Array.isArray(commands) ? commands.join("\n") : "",
    image: words(imagePath(document)),
    instances: number(["taskRoles", role, "instances"]) || 1,
    gpu: number([...resources, "gpu"]),
    cpu: number([...resources, "cpu"]),
    memoryMB: number([...resources, "memoryMB"]),
    virtualCluster: words(["defaults", "virtualCluster"]),
  };
}

/** The text with one field changed. */
export function withField(text: string, field: FieldName, value: string): string {
  const document = parseDocument(text);
  const role = roleOf(document);
  if (role === null) return text;
  const isJson = text.trimStart().startsWith("{");
  const resources = ["taskRoles", role, "resourcePerInstance"];
  const count = Math.max(0, Math.trunc(Number(value)) || 0);
  switch (field) {
    case "name":
      document.setIn(["name"], value);
      break;
    case "command":
      document.setIn(["taskRoles", role, "commands"], value.split("\n"));
      break;
    case "image":
      document.setIn(imagePath(document), value);
      break;
    case "instances":
      document.setIn(["taskRoles", role, "instances"], Math.max(1, count));
      break;
    case "virtualCluster":
      if (value) document.setIn(["defaults", "virtualCluster"], value);
      else document.deleteIn(["defaults", "virtualCluster"]);
      break;
    default:
      document.setIn([...resources, field], count);
  }
  return isJson ? `${JSON.stringify(document.toJS(), null, 2)}\n` : document.toString({ lineWidth: 0 });
}

/** As JSON, for the text box; unreadable text stays as it is. */
export function asJson(text: string): string {
  const document = parseDocument(text);
  return document.errors.length ? text : JSON.stringify(document.toJS(), null, 2);
}

export function newJob(name: string, image: string, command: string): string {
  return stringify({
    protocolVersion: 2,
    name,
    type: "job",
    prerequisites: [{ name: "image", type: "dockerimage", uri: image }],
    taskRoles: {
      main: {
        instances: 1,
        dockerImage: "image",
        resourcePerInstance: { cpu: 1, memoryMB: 1024, gpu: 0 },
        commands: [command],
      },
    },
  });
}

/** A copy of a job as YAML, under a new name. */
export function cloneOf(config: string, name: string): string {
  const job = parseDocument(config).toJS() as Record<string, unknown>;
  return stringify({ ...job, name }, { lineWidth: 0 });
}

function roleOf(document: Document): string | null {
  const roles = document.errors.length ? null : document.getIn(["taskRoles"]);
  if (!isMap(roles) || roles.items.length !== 1 || String(document.getIn(["protocolVersion"])) !== "2") return null;
  const [first] = roles.items;
  return first ? String(first.key) : null;
}

function imagePath(document: Document): readonly unknown[] {
  const prerequisites: unknown = document.toJS().prerequisites;
  const found = Array.isArray(prerequisites)
    ? prerequisites.findIndex((one: unknown) => (one as { type?: unknown } | null)?.type === "dockerimage")
    : -1;
  return ["prerequisites", Math.max(found, 0), "uri"];
}
