// The command that runs a notebook in a task, as `pai notebook-job` writes it.
import { quote, split, type Variable } from "./shell_words.ts";

export interface NotebookRun {
  /** In the working directory. */
  readonly path: string;
  readonly parameters: readonly Variable[];
}

const RUNTIME = "pai-runtime";
/** `pai` adds the way to start the runtime that it sends to clusters of OpenPAI, which have none. */
const BY_PAI = /^if command -v pai-runtime >\/dev\/null 2>&1; then (pai-runtime notebook .*); else .*; fi$/s;

export function notebookCommand({ path, parameters }: NotebookRun): string {
  const options = parameters.flatMap(({ name, value }) => ["-p", `${name}=${value}`]);
  return [RUNTIME, "notebook", ...options, path].map(quote).join(" ");
}

/** The notebook that a command runs; null if it does something else. */
export function notebookOf(command: string): NotebookRun | null {
  const words = split(BY_PAI.exec(command)?.[1] ?? command);
  if (!words || words.shift() !== RUNTIME || words.shift() !== "notebook") return null;
  const path = words.pop();
  const parameters: Variable[] = [];
  while (words.length) {
    const [option, text = ""] = words.splice(0, 2);
    const at = text.indexOf("=");
    if (option !== "-p" || at < 1) return null;
    parameters.push({ name: text.slice(0, at), value: text.slice(at + 1) });
  }
  return path?.endsWith(".ipynb") ? { path, parameters } : null;
}
