// Escape sequences of terminals (ECMA-48), removed from text. `paiprotocol.jobs.escape_sequences` is the same in
// Python; one table of cases tests both.

// A sequence ends within its line, as no line may hide another: of one that does not, only the introducer is removed.
// CSI with its final byte; OSC, DCS, SOS, PM and APC with their terminator (BEL or ST); two and three characters, such
// as those that choose a character set; all other control characters except tabs and line ends.
const SEQUENCES =
  /(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x00-\x08\n-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)|\x1b[ -/]+[0-~]|\x1b[0-~]|[\x00-\x08\v\f\x0e-\x1f\x7f-\x9f]/g;

/** Text without control characters, except tabs and line ends. */
export function withoutEscapes(text: string): string {
  return text.replace(SEQUENCES, "");
}

export interface Sequence {
  readonly text: string;
  /** Its place in the text without the sequences. */
  readonly at: number;
}

/** Text without control characters, except tabs and line ends, and the sequences that set colours and the like (SGR). */
export function splitSequences(text: string): { readonly plain: string; readonly styles: readonly Sequence[] } {
  const styles: Sequence[] = [];
  let removed = 0;
  const plain = text.replace(SEQUENCES, (sequence: string, offset: number) => {
    if (sequence.endsWith("m") && /^(?:\x1b\[|\x9b)[\d;]*m$/.test(sequence)) styles.push({ text: sequence, at: offset - removed });
    removed += sequence.length;
    return "";
  });
  return { plain, styles };
}

export interface Part {
  readonly start: number;
  readonly end: number;
}

/** What is shown of a text without escape sequences: of a line that was overwritten, its last version. */
export function shownParts(plain: string): Part[] {
  const parts: Part[] = [];
  // By lines: a pattern for all of this would look at the rest of a long line from each of its characters.
  for (let start = 0; start <= plain.length;) {
    const lineEnd = plain.indexOf("\n", start);
    const line = lastVersion(plain, start, lineEnd < 0 ? plain.length : lineEnd, lineEnd >= 0);
    const last = parts[parts.length - 1];
    // Lines that are shown whole are one part.
    if (last?.end === line.start) parts[parts.length - 1] = { start: last.start, end: line.end };
    else parts.push(line);
    if (lineEnd < 0) break;
    const shown = parts[parts.length - 1] as Part;
    if (shown.end === lineEnd) parts[parts.length - 1] = { start: shown.start, end: lineEnd + 1 };
    else parts.push({ start: lineEnd, end: lineEnd + 1 });
    start = lineEnd + 1;
  }
  return parts;
}

/** Text without escape sequences; of a line that was overwritten, its last version. */
export function cleanText(text: string): string {
  const plain = withoutEscapes(text);
  return plain.includes("\r")
    ? shownParts(plain)
        .map(({ start, end }) => plain.slice(start, end))
        .join("")
    : plain;
}

/** What is left of a line after its carriage returns; `hasEnd`: a line end follows. */
function lastVersion(text: string, from: number, to: number, hasEnd: boolean): Part {
  let end = to;
  if (hasEnd) while (end > from && text[end - 1] === "\r") end -= 1;
  // One at the end has overwritten nothing yet.
  const last = end > from + 1 ? text.lastIndexOf("\r", end - 2) : -1;
  return { start: Math.max(from, last + 1), end };
}
