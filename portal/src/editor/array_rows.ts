// Values of the tasks of an array as a table, and as the command that `pai sub` makes of it.
import { parseTable } from "../files/csv.ts";
import { isVariableName, quote } from "./shell_words.ts";

export interface ValueColumn {
  readonly name: string;
  /** One for each task. */
  readonly values: readonly string[];
}

export const MAX_TASKS = 10_000;
// Of rows, and of combinations.
const COMMAND = /^case (?:\$PAI_TASK_INDEX|\$\(\(PAI_TASK_INDEX \/ \d+ % \d+\)\)) in\n/;

/** Whether a command sets the values of an array. */
export function setsValues(command: string): boolean {
  return COMMAND.test(command);
}

/** The shell command that sets the variables of the task it runs in. */
export function rowsCommand(columns: readonly ValueColumn[]): string {
  const rows = columns[0]?.values.map((_, at) => {
    const values = columns.map(({ name, values }) => `${name}=${quote(values[at] ?? "")}`);
    return `${at}) export ${values.join(" ")} ;;`;
  });
  return ["case $PAI_TASK_INDEX in", ...(rows ?? []), "esac"].join("\n");
}

/** The columns of a text with names in its first line; empty for an empty text. A string says what is wrong. */
export function columnsOf(text: string): readonly ValueColumn[] | string {
  if (!text.trim()) return [];
  const { head, rows: all } = parseTable(text, true, MAX_TASKS + 1);
  const names = head.map((name) => name.trim());
  const rows = all.filter((row) => row.length > 1 || row[0]?.trim());
  const problem = problemOfNames(names) || problemOfRows(names.length, rows);
  return problem || names.map((name, at) => ({ name, values: rows.map((row) => row[at]?.trimStart() ?? "") }));
}

function problemOfNames(names: readonly string[]): string {
  for (const [at, name] of names.entries()) {
    if (!name) return `Column ${at + 1} has no name in the first line.`;
    if (!isVariableName(name)) return `${name} cannot be the name of a variable: the first line names the columns.`;
    if (name.startsWith("PAI_")) return `${name}: names that start with PAI_ are the cluster's own.`;
    if (names.indexOf(name) !== at) return `The column ${name} is there twice.`;
  }
  return "";
}

function problemOfRows(columns: number, rows: readonly (readonly string[])[]): string {
  if (!rows.length) return "There are no rows below the names of the columns.";
  if (rows.length > MAX_TASKS) return `Each row is a task, and a job has ${MAX_TASKS} tasks at most.`;
  const at = rows.findIndex((row) => row.length !== columns);
  return at < 0 ? "" : `Row ${at + 1} has ${rows[at]?.length} values, and there are ${columns} columns.`;
}

export function tableOf(columns: readonly ValueColumn[]): string {
  const cell = (text: string) => (/[",\n\r]|^\s/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = columns[0]?.values.map((_, at) => columns.map(({ values }) => cell(values[at] ?? "")).join(","));
  return rows ? [columns.map(({ name }) => name).join(","), ...rows].join("\n") : "";
}
