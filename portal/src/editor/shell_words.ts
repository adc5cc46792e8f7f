// Lines of shell that `pai sub` writes into a job: words, exported variables, exported secrets.

export interface Variable {
  readonly name: string;
  readonly value: string;
}

const SAFE = /^[\w@%+=:,./-]+$/;
const NAME = /^[A-Za-z_]\w*$/;
const EXPORT = /^export ([A-Za-z_]\w*)=/;
const END_OF_SECRET = "PAI_END_OF_SECRET";

export function isVariableName(name: string): boolean {
  return NAME.test(name);
}

/** One word that a shell reads as this text. */
export function quote(text: string): string {
  return SAFE.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

/** The words of a line; null if a shell would expand something in it, or run more than one command. */
export function split(line: string): string[] | null {
  const words: string[] = [];
  const part = /\s+|'([^']*)'|"([^"$`\\]*)"|([^\s'"\\$`;&|<>()*?[\]{}~#!]+)/y;
  let word: string | null = null;
  while (part.lastIndex < line.length) {
    const match = part.exec(line);
    if (!match) return null;
    const text = match[1] ?? match[2] ?? match[3];
    if (text !== undefined) {
      word = (word ?? "") + text;
    } else if (word !== null) {
      words.push(word);
      word = null;
    }
  }
  if (word !== null) words.push(word);
  return words;
}

export function exportLine(name: string, value: string): string {
  return `export ${name}=${quote(value)}`;
}

/** The variable that a line exports, if that is all it does. */
export function exportOf(line: string): Variable | null {
  const name = EXPORT.exec(line)?.[1];
  const words = name ? split(line.slice(`export ${name}=`.length)) : null;
  if (!name || !words || words.length > 1) return null;
  return { name, value: words[0] ?? "" };
}

/** Lines that export a secret. Its value is inserted as it is in the task, so no shell may parse it. */
export function secretLine(name: string): string {
  return `${name}=$(cat <<'${END_OF_SECRET}'\n<% $secrets.${name} %>\n${END_OF_SECRET}\n)\nexport ${name}`;
}

export function secretOf(lines: string): string | null {
  const name = lines.slice(0, Math.max(0, lines.indexOf("=")));
  return NAME.test(name) && lines === secretLine(name) ? name : null;
}
