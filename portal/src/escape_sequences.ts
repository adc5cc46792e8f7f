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

/** Text without escape sequences; of a line that was overwritten, its last version. */
export function cleanText(text: string): string {
  // By lines: a pattern for all of this would look at the rest of a long line from each of its characters.
  const lines = withoutEscapes(text).split("\n");
  return lines.map((line, at) => lastVersion(line, at < lines.length - 1)).join("\n");
}

/** What is left of a line after its carriage returns; `hasEnd`: a line end follows. */
function lastVersion(line: string, hasEnd: boolean): string {
  let end = line.length;
  if (hasEnd) while (line[end - 1] === "\r") end -= 1;
  // One at the end has overwritten nothing yet.
  const last = end > 1 ? line.lastIndexOf("\r", end - 2) : -1;
  return line.slice(last + 1, end);
}
