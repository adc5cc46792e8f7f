// Source files of a job as a tar, named by its SHA-256. Files are read in pieces: an archive may be larger than memory.
import { sha256 } from "@noble/hashes/sha2.js";
import type { NewFile } from "../files/upload.ts";
import { hex } from "../files/upload_parts.ts";

export interface SourceArchive {
  readonly sha256: string;
  readonly size: number;
  /** Refers to the files, which are read again when it is sent. */
  readonly blob: Blob;
}

const BLOCK = 512;
const PIECE_BYTES = 1 << 20;
/** Longest name in the header itself; longer ones are in an extended header before it. */
const MAX_NAME_BYTES = 100;
const PROGRAM_MODE = 0o755;
const FILE_MODE = 0o644;
const encoder = new TextEncoder();

/** Pack the files. `onProgress` gets the share that has been read; rejected when `signal` is aborted. */
export async function packed(
  files: readonly NewFile[],
  signal: AbortSignal,
  onProgress: (share: number) => void = () => undefined,
): Promise<SourceArchive> {
  const hash = sha256.create();
  const parts: BlobPart[] = [];
  let size = 0;
  const add = (bytes: Uint8Array<ArrayBuffer>) => {
    hash.update(bytes);
    parts.push(bytes);
    size += bytes.length;
  };
  const total = files.reduce((sum, { file }) => sum + file.size, 0);
  let read = 0;
  for (const { file, path } of [...files].sort((one, other) => (one.path < other.path ? -1 : 1))) {
    signal.throwIfAborted();
    add(headerOf(path, file, (await isProgram(file)) ? PROGRAM_MODE : FILE_MODE));
    for (let at = 0; at < file.size; at += PIECE_BYTES) {
      hash.update(new Uint8Array(await file.slice(at, at + PIECE_BYTES).arrayBuffer()));
      signal.throwIfAborted();
      read += Math.min(PIECE_BYTES, file.size - at);
      onProgress(read / total);
    }
    parts.push(file);
    size += file.size;
    add(new Uint8Array(padding(file.size)));
  }
  add(new Uint8Array(2 * BLOCK));
  return { sha256: hex(hash.digest()), size, blob: new Blob(parts) };
}

/** A browser does not say which files are programs. */
async function isProgram(file: File): Promise<boolean> {
  const start = await file.slice(0, 4).text();
  return start.startsWith("#!") || start === "\x7fELF";
}

function padding(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

function headerOf(path: string, file: File, mode: number): Uint8Array<ArrayBuffer> {
  const name = encoder.encode(path);
  const mtime = Math.max(0, Math.trunc(file.lastModified / 1000));
  const own = block(name.subarray(0, MAX_NAME_BYTES), "0", mode, file.size, mtime);
  if (name.length <= MAX_NAME_BYTES) return own;
  const record = paxRecord("path", path);
  const extended = new Uint8Array(2 * BLOCK + record.length + padding(record.length));
  extended.set(block(encoder.encode("pax"), "x", FILE_MODE, record.length, 0));
  extended.set(record, BLOCK);
  extended.set(own, extended.length - BLOCK);
  return extended;
}

function block(name: Uint8Array, kind: string, mode: number, size: number, mtime: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(BLOCK);
  const put = (at: number, text: string) => bytes.set(encoder.encode(text), at);
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, "0")}\0`;
  bytes.set(name);
  put(100, octal(mode, 7));
  put(108, octal(0, 7));
  put(116, octal(0, 7));
  put(124, octal(size, 11));
  put(136, octal(mtime, 11));
  // The checksum is computed with its own field as blanks.
  put(148, " ".repeat(8));
  put(156, kind);
  put(257, "ustar\x0000");
  put(329, octal(0, 7));
  put(337, octal(0, 7));
  put(
    148,
    `${bytes
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, "0")}\0 `,
  );
  return bytes;
}

/** `LENGTH key=value`; the length includes its own digits. */
function paxRecord(key: string, value: string): Uint8Array<ArrayBuffer> {
  const rest = encoder.encode(` ${key}=${value}\n`);
  let length = rest.length;
  while (length !== String(length).length + rest.length) length = String(length).length + rest.length;
  const record = new Uint8Array(length);
  record.set(encoder.encode(String(length)));
  record.set(rest, length - rest.length);
  return record;
}
