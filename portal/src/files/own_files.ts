// Files of the storage that the cluster itself serves: WebHDFS, and uploads in parts.
import { request } from "../api.ts";
import { onceAborted } from "./cancel.ts";
import { combined, HASH, hashOf, hex, partBytes, partOffsets } from "./upload_parts.ts";
import { download, listFolder, makeFolder, move, readStart, remove, type SentFile, type StorageFiles } from "./storage.ts";

export const ownFiles: StorageFiles = { list: listFolder, readStart, download, hasArchives: true, makeFolder, move, remove, send };

/** Send the parts that the cluster does not have yet. */
async function send({ file, path, overwrite }: SentFile, signal: AbortSignal, onSent: (bytes: number) => void): Promise<void> {
  // Nanoseconds, as digits: beyond the precision of numbers, but the same every time.
  const mtime = file.lastModified * 1_000_000;
  const body = {
    path,
    key: `portal-${file.size}-${file.lastModified}`,
    size: file.size,
    mtime,
    hash: HASH,
    partBytes: partBytes(file.size),
    overwrite,
  };
  const begun = await request("POST", "api/v2/transfer/uploads", { body, signal });
  const { id, have } = (await begun.json()) as { id: string; have: Readonly<Record<string, string>> };
  // Cancelled: what has arrived takes no space any more.
  onceAborted(signal, () => request("DELETE", `api/v2/transfer/uploads/${id}`));
  const digests: Uint8Array[] = [];
  for (const offset of partOffsets(file.size)) {
    const bytes = new Uint8Array(await file.slice(offset, offset + partBytes(file.size)).arrayBuffer());
    const digest = await hashOf(bytes);
    signal.throwIfAborted();
    digests.push(digest);
    if (have[offset] !== hex(digest)) {
      const part = new Blob([bytes, digest as Uint8Array<ArrayBuffer>]);
      await request("PUT", `api/v2/transfer/uploads/${id}?offset=${offset}`, { bytes: part, signal });
    }
    onSent(offset + bytes.length);
  }
  const end = { size: file.size, mtime, digest: combined(digests) };
  await request("POST", `api/v2/transfer/uploads/${id}/finish`, { body: end, signal });
}
