// Files of a job that a user chose: their paths in the working directory, without what `pai sub` leaves out, too.
import type { NewFile } from "../files/upload.ts";
import type { IgnoreRules } from "./ignore.ts";

export interface Selection {
  /** Sorted by path; paths are relative, with the chosen folder. */
  readonly files: readonly NewFile[];
  /** Paths of those that are left out. */
  readonly ignored: readonly string[];
}

/** The first one of a folder counts. */
const IGNORE_FILES = [".paiignore", ".gitignore"] as const;

/** No job needs these, and some of them contain secrets or grow without limit. */
const ALWAYS_IGNORED: ReadonlySet<string> = new Set([
  ".git",
  ".hg",
  ".svn",
  ".openpai",
  ".pai",
  ".DS_Store",
  "__pycache__",
  ".mypy_cache",
  ".pytest_cache",
  ".ruff_cache",
  ".ipynb_checkpoints",
]);

/** What makes a folder an environment, which works only in its own place. */
const ENVIRONMENT_MARKS = ["pyvenv.cfg", "conda-meta"];

export async function sourcesOf(chosen: readonly NewFile[]): Promise<Selection> {
  const all = chosen.map(({ file, path }) => ({ file, path: path.replace(/^\/+/, "") }));
  // What is left out depends on paths below the chosen folder: that one is wanted, whatever its name.
  const start = commonFolder(all).length;
  const below = withoutCommonFolder(all);
  const rules = await rulesOf(below);
  const environments = new Set(
    below.flatMap(({ path }) => {
      const names = path.split("/");
      const at = names.findIndex((name) => ENVIRONMENT_MARKS.includes(name));
      return at > 0 ? [names.slice(0, at).join("/")] : [];
    }),
  );
  const isIn = ({ path }: NewFile) => !isLeftOut(path.slice(start), rules, environments);
  return {
    files: all.filter(isIn).sort((one, other) => (one.path < other.path ? -1 : 1)),
    ignored: all.filter((one) => !isIn(one)).map(({ path }) => path),
  };
}

/** The files in a folder that was chosen alone are in the working directory, as with `pai sub` in that folder. */
export function withoutCommonFolder(files: readonly NewFile[]): NewFile[] {
  const start = commonFolder(files).length;
  return files.map(({ file, path }) => ({ file, path: path.slice(start) }));
}

/** With its slash; empty if there is none. */
function commonFolder(files: readonly NewFile[]): string {
  const first = files[0]?.path ?? "";
  const folder = first.slice(0, first.indexOf("/") + 1);
  return files.every(({ path }) => path.startsWith(folder)) ? folder : "";
}

/** Rules of all ignore files, those of outer folders first. */
async function rulesOf(files: readonly NewFile[]): Promise<IgnoreRules | null> {
  const byFolder = new Map<string, Map<string, File>>();
  for (const { file, path } of files) {
    const folder = path.slice(0, path.lastIndexOf("/") + 1);
    const name = path.slice(folder.length);
    if (!IGNORE_FILES.some((one) => one === name)) continue;
    byFolder.set(folder, (byFolder.get(folder) ?? new Map<string, File>()).set(name, file));
  }
  if (!byFolder.size) return null;
  const { IgnoreRules } = await import("./ignore.ts");
  const rules = new IgnoreRules();
  for (const [folder, ignoreFiles] of [...byFolder].sort(([one], [other]) => one.length - other.length)) {
    const file = IGNORE_FILES.map((name) => ignoreFiles.get(name)).find((one) => one !== undefined);
    if (file) rules.add(await file.text(), folder);
  }
  return rules;
}

function isLeftOut(path: string, rules: IgnoreRules | null, environments: ReadonlySet<string>): boolean {
  const names = path.split("/");
  return names.some((name, at) => {
    const here = names.slice(0, at + 1).join("/");
    return ALWAYS_IGNORED.has(name) || environments.has(here) || rules?.ignores(here, at < names.length - 1) === true;
  });
}
