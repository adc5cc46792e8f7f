// Where the files of a job are on the storage.

const USER_NAME = "${PAI_USER_NAME}";
const OUTPUT = "output";

/** Folder of a job's outputs; `config` is the job's configuration as JSON. */
export function outputFolder(config: string, user: string, name: string): string {
  const home = `/user/${user}`;
  const directory = workDirectory(config);
  if (!directory.replaceAll("/", "")) return `${home}/jobs/${name}/${OUTPUT}`;
  const folder = directory.replace(/\/+$/, "").replaceAll(USER_NAME, user);
  return `${folder.startsWith("/") ? folder : `${home}/${folder}`}/${OUTPUT}`;
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
