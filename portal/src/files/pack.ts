// Pack format of the transfer API: many small files in one request.
import type { SentFile } from "./storage.ts";
import { hashOf } from "./upload_parts.ts";

/** Of larger files, requests cost little, and progress and resuming matter. */
export const SMALL_BYTES = 256 << 10;
const PACK_BYTES = 4 << 20;
const PACK_FILES = 1000;
const HEADER_BYTES = 40;
const FILE = 1;
const END = 0;
/** Index of BLAKE2b among the algorithms of the format. */
const BLAKE2B = 1;
const MODE = 0o644;

export interface PackedFile {
  readonly path: string;
  readonly modifiedMs: number;
  readonly content: Uint8Array;
}

/** The first of these files that fit into one pack. */
export function firstPack<T extends SentFile>(files: readonly T[]): T[] {
  let bytes = 0;
  const fits = (file: T) => (bytes += file.file.size) <= PACK_BYTES || file === files[0];
  const end = files.findIndex((file, at) => at === PACK_FILES || !fits(file));
  return files.slice(0, end < 0 ? files.length : end);
}

export async function packOf(files: readonly PackedFile[]): Promise<Blob> {
  const parts: Uint8Array[] = [];
  for (const { path, modifiedMs, content } of files) {
    // Relative to the root of the storage.
    const name = new TextEncoder().encode(path.slice(1));
    parts.push(header(FILE, name.length, content.length, modifiedMs, await hashOf(content)), name, content);
  }
  parts.push(header(END, 0, files.length, 0));
  return new Blob(parts as Uint8Array<ArrayBuffer>[]);
}

function header(kind: number, nameBytes: number, size: number, modifiedMs: number, digest?: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, kind);
  view.setUint8(1, digest ? BLAKE2B : 0);
  view.setUint16(2, nameBytes);
  view.setUint32(4, digest ? MODE : 0);
  view.setBigUint64(8, BigInt(size));
  view.setBigInt64(16, BigInt(modifiedMs) * 1_000_000n);
  if (digest) bytes.set(digest, 24);
  return bytes;
}
