// Patterns of ignore files, which mean what they mean for git; loaded when there is such a file.
import ignore from "ignore";

/** Patterns of several ignore files; those of outer folders are added first. The last one that matches decides. */
export class IgnoreRules {
  private readonly rules = ignore({ ignorecase: false });

  /** Add the patterns of a file in the folder `root`, which is empty or ends with a slash. */
  add(text: string, root: string): void {
    const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/);
    this.rules.add(lines.flatMap((line) => patternBelow(root, asBytes(line)) ?? []));
  }

  /** Whether a path is left out, or a folder in which it is. */
  ignores(path: string, isFolder: boolean): boolean {
    return this.rules.ignores(asBytes(`${path}${isFolder ? "/" : ""}`));
  }
}

/** The same pattern for paths from the outermost folder on. */
function patternBelow(root: string, line: string): string | null {
  if (!line || line.startsWith("#")) return null;
  if (!root) return line;
  const [, negation = "", pattern = ""] = /^(!?)(.*)$/s.exec(line) ?? [];
  const written = pattern.replace(/(?<!\\) +$/, "");
  if (!written || written === "/") return null;
  const isAnywhere = !written.slice(0, -1).includes("/");
  const folder = asBytes(root).replace(/[\\*?[\]!# ]/g, "\\$&");
  return `${negation}/${folder}${isAnywhere ? "**/" : ""}${pattern.replace(/^\//, "")}`;
}

/** A letter for each byte, as git matches bytes: a `?` is one of the two of an ü. */
function asBytes(text: string): string {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}
