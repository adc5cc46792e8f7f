// Files of the storage that the cluster itself serves: WebHDFS, and uploads in parts.
import { request } from "../api.ts";
import { onceAborted } from "./cancel.ts";
import { combined, HASH, hashOf, hex, partBytes, partOffsets } from "./upload_parts.ts";
import { packOf, type PackedFile } from "./pack.ts";
import { download, listFolder, makeFolder, move, readStart, remove, UNREADABLE, type SentFile, type StorageFiles } from "./storage.ts";

export const ownFiles: StorageFiles = {
  list: listFolder,
  readStart,
  download,
  hasArchives: true,
  makeFolder,
  move,
  remove,
  send,
  sendPack,
};

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

/** Send small files in one request; returns the problems of those that cannot be read or are refused, by path. */
async function sendPack(files: readonly SentFile[], signal: AbortSignal): Promise<Map<string, string>> {
  const unreadable: string[] = [];
  const packed: PackedFile[] = [];
  for (const { file, path } of files) {
    const content = await file.arrayBuffer().catch(() => null);
    if (content) packed.push({ path, modifiedMs: file.lastModified, content: new Uint8Array(content) });
    else unreadable.push(path);
  }
  const bytes = await packOf(packed);
  signal.throwIfAborted();
  const query = new URLSearchParams({ path: "/", overwrite: String(files[0]?.overwrite ?? false) });
  const response = await request("POST", `api/v2/transfer/pack?${query.toString()}`, { bytes, signal });
  const { problems } = (await response.json()) as { problems: readonly { name: string; message: string }[] };
  const refused = problems.map(({ name, message }) => [`/${name}`, message] as const);
  return new Map([...unreadable.map((path) => [path, UNREADABLE] as const), ...refused]);
}
