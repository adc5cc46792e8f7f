// Parts of a file that is uploaded: where they begin, and their hashes as the transfer API wants them.
import { blake2b } from "@noble/hashes/blake2.js";

/** The transfer API's name of the hash. Browsers have none of its hashes, and SHA-256 only over HTTPS. */
export const HASH = "blake2b-128";
const DIGEST_BYTES = 16;
const MIN_PART_BYTES = 4 << 20;
/** An upload has at most 131072 parts. */
const MAX_PARTS = 100_000;
/** Hashed at once; then the page gets a turn. */
const TURN_BYTES = 512 << 10;

/** Size of the parts of a file. The same for the same file: an upload goes on only with the same parts. */
export function partBytes(size: number): number {
  let bytes = MIN_PART_BYTES;
  while (bytes * MAX_PARTS < size) bytes *= 2;
  return bytes;
}

export function partOffsets(size: number): number[] {
  const step = partBytes(size);
  return Array.from({ length: Math.ceil(size / step) }, (_, at) => at * step);
}

/** Hash of some bytes; the page stays responsive meanwhile. */
export async function hashOf(bytes: Uint8Array): Promise<Uint8Array> {
  const hasher = blake2b.create({ dkLen: DIGEST_BYTES });
  for (let at = 0; at < bytes.length; at += TURN_BYTES) {
    hasher.update(bytes.subarray(at, at + TURN_BYTES));
    await nextTurn();
  }
  return hasher.digest();
}

/** Hash of a whole file: that of the hashes of its parts. */
export function combined(digests: readonly Uint8Array[]): string {
  const hasher = blake2b.create({ dkLen: DIGEST_BYTES });
  for (const digest of digests) hasher.update(digest);
  return hex(hasher.digest());
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Unlike timers, not slowed down in a tab in the background. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      channel.port1.close();
      resolve();
    };
    channel.port2.postMessage(null);
  });
}
