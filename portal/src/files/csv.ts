// Tables in text files: rows of texts, and nothing else.

const DELIMITERS = [",", "\t", ";", "|"] as const;

export interface Table {
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** Whether there are more rows than these. */
  readonly isCut: boolean;
}

/** The rows of a text; `isComplete`: the text is the whole file, else its last row is left out. */
export function parseTable(text: string, isComplete: boolean, maxRows: number): Table {
  const { rows, isCut } = parseRows(text.replace(/^\uFEFF/, ""), delimiterOf(text), isComplete, maxRows + 1);
  const [head = [], ...rest] = rows;
  const columns = rest.reduce((most, row) => Math.max(most, row.length), head.length);
  return { head: Array.from({ length: columns }, (_, at) => head[at] ?? ""), rows: rest, isCut };
}

/** The delimiter that occurs most often in the first line, outside of quotes. */
function delimiterOf(text: string): string {
  const line =
    text
      .slice(0, 64 << 10)
      .replace(/"(?:[^"]|"")*"/g, "")
      .split(/\r?\n/, 1)[0] ?? "";
  const counts = DELIMITERS.map((one) => line.split(one).length);
  return DELIMITERS[counts.indexOf(Math.max(...counts))] ?? ",";
}

function parseRows(text: string, delimiter: string, isComplete: boolean, maxRows: number) {
  const rows: string[][] = [];
  let row: string[] = [];
  let at = 0;
  let isOpen = false;
  while (at < text.length && rows.length < maxRows) {
    isOpen = true;
    const [value, next] = text[at] === '"' ? quotedValue(text, at, delimiter) : plainValue(text, at, delimiter);
    row.push(value);
    at = next;
    const mark = text[at];
    if (mark === delimiter) {
      at += 1;
      if (at < text.length) continue;
      row.push("");
    }
    if (at >= text.length && !isComplete) break;
    at += mark === "\r" && text[at + 1] === "\n" ? 2 : at < text.length ? 1 : 0;
    rows.push(row);
    row = [];
    isOpen = false;
  }
  return { rows, isCut: isOpen || at < text.length || !isComplete };
}

/** The value that begins here, and where it ends. */
function plainValue(text: string, start: number, delimiter: string): [string, number] {
  let at = start;
  while (at < text.length && text[at] !== delimiter && text[at] !== "\n" && text[at] !== "\r") at += 1;
  return [text.slice(start, at), at];
}

function quotedValue(text: string, start: number, delimiter: string): [string, number] {
  let value = "";
  let at = start + 1;
  for (;;) {
    const quote = text.indexOf('"', at);
    if (quote < 0) return [value + text.slice(at), text.length];
    value += text.slice(at, quote);
    at = quote + 1;
    if (text[at] !== '"') break;
    value += '"';
    at += 1;
  }
  // What follows a closing quote belongs to the value: programs write such files.
  const [rest, end] = plainValue(text, at, delimiter);
  return [value + rest, end];
}
