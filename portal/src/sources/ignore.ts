// Ignore files (`.paiignore`, else `.gitignore`), with git's patterns, as `pai sub` reads them.

export const IGNORE_FILES = [".paiignore", ".gitignore"] as const;

/** No job needs these, and some of them contain secrets or grow without limit. */
export const ALWAYS_IGNORED: ReadonlySet<string> = new Set([
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

/** One pattern of an ignore file, for paths below `root`, the file's folder. */
export interface Rule {
  readonly root: string;
  readonly pattern: RegExp;
  readonly isNegated: boolean;
  readonly foldersOnly: boolean;
}

export function readRules(text: string, root: string): Rule[] {
  return text.split(/\r?\n/).flatMap((line) => readRule(line, root) ?? []);
}

/** Whether a path is ignored. The last matching rule decides. */
export function isIgnored(path: string, isFolder: boolean, rules: readonly Rule[]): boolean {
  for (let at = rules.length - 1; at >= 0; at -= 1) {
    const rule = rules[at];
    if (!rule || (rule.foldersOnly && !isFolder) || !path.startsWith(rule.root)) continue;
    if (rule.pattern.test(path.slice(rule.root.length))) return !rule.isNegated;
  }
  return false;
}

function readRule(line: string, root: string): Rule | null {
  let text = line.replace(/(?<!\\) +$/, "");
  if (!text || text.startsWith("#")) return null;
  const isNegated = text.startsWith("!");
  if (isNegated) text = text.slice(1);
  const foldersOnly = text.endsWith("/");
  text = text.replace(/\/$/, "");
  if (!text) return null;
  const start = text.includes("/") ? "" : "(?:.*/)?";
  try {
    return { root, pattern: new RegExp(`^${start}${regexOf(text.replace(/^\//, ""))}$`, "s"), isNegated, foldersOnly };
  } catch {
    // git, too, ignores an invalid pattern.
    return null;
  }
}

function regexOf(glob: string): string {
  return glob.replace(
    /(^|\/)\*\*\/|(^|\/)\*\*$|\*+|\?|\[([!^]?)(\]?[^\]]*)\]|\\?(.)/gs,
    (match, before: string | undefined, last: string | undefined, negation: string | undefined, members: string | undefined, letter: string | undefined) => {
      if (before !== undefined) return `${before}(?:.*/)?`;
      if (last !== undefined) return `${last}.*`;
      if (members !== undefined) return `[${negation ? "^/" : ""}${members.replace(/[\\\]^[]/g, "\\$&")}]`;
      if (match.startsWith("*")) return "[^/]*";
      if (match === "?") return "[^/]";
      // An open bracket is an invalid pattern.
      if (match === "[") return "[";
      return (letter ?? match).replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
    },
  );
}
