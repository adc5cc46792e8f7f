// Where the files of a job are on the storage.
import { withoutSlashesAtEnd } from "./paths.ts";

const USER_NAME = "${PAI_USER_NAME}";
const OUTPUT = "output";

/** Folder of a job's outputs; `config` is the job's configuration as JSON. */
export function outputFolder(config: string, user: string, name: string): string {
  const home = `/user/${user}`;
  const directory = workDirectory(config);
  if (!directory.replaceAll("/", "")) return `${home}/jobs/${name}/${OUTPUT}`;
  const folder = withoutSlashesAtEnd(directory).replaceAll(USER_NAME, user);
  return `${folder.startsWith("/") ? folder : `${home}/${folder}`}/${OUTPUT}`;
}

/** Folder on the cluster's storage that a job of version 1 names for its outputs, or has by default; "" if there is none. */
export function namedOutputFolder(config: string, user: string, name: string, host: string): string {
  const address = namedOutput(config);
  if (!address) return "";
  const [, authority, rest = ""] = /^(?:\w+:\/\/([^/]*))?(.*)$/.exec(address) ?? [];
  const path = withoutSlashesAtEnd(rest);
  if (!path.startsWith("/")) return path && !authority ? `/user/${user}/${path}` : "";
  return !authority || authority === host || path === `/Output/${user}/${name}` ? path : "";
}

function namedOutput(config: string): string {
  try {
    const { prerequisites } = JSON.parse(config) as { prerequisites?: { type?: string; name?: string; uri?: unknown }[] };
    const uri = prerequisites?.find((one) => one.type === "output" && one.name === "default")?.uri;
    return typeof uri === "string" ? uri : "";
  } catch {
    return "";
  }
}

function workDirectory(config: string): string {
  try {
    const { parameters } = JSON.parse(config) as { parameters?: Record<string, unknown> };
    const value = parameters?.["work_directory"];
    return typeof value === "string" ? value : "";
  } catch {
    return "";
  }
}
