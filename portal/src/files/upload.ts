// Uploads: files in parts, two at a time. They go on while the user looks at other pages, and after a lost
// connection; the same file, chosen again after a reload, continues where it was.
import { computed, effect, signal } from "@preact/signals";
import { ApiError, request } from "../api.ts";
import { backoffMs, pause } from "../live.ts";
import { session } from "../session.ts";
import { combined, HASH, hashOf, hex, partBytes, partOffsets } from "./parts.ts";
import { parentOf } from "./paths.ts";

export interface Upload {
  readonly id: number;
  readonly path: string;
  readonly file: File;
  readonly overwrite: boolean;
  readonly state: "waiting" | "active" | "done" | "failed";
  /** Bytes that have arrived. */
  readonly sent: number;
  /** Why it failed, or what it waits for. */
  readonly problem: string;
}

export interface NewFile {
  readonly file: File;
  readonly path: string;
}

const AT_ONCE = 2;

/** Uploads that are not finished, and those that failed; finished ones until the next begins. */
export const uploads = signal<readonly Upload[]>([]);
export const isUploading = computed(() => uploads.value.some((one) => one.state === "waiting" || one.state === "active"));
/** A folder that has a new file, and when; for the page that shows it. */
export const arrived = signal({ folder: "", at: 0 });

const aborts = new Map<number, AbortController>();
let lastId = 0;

// The next user of this page must not see them.
effect(() => {
  if (!session.value) for (const one of uploads.peek()) dropUpload(one.id);
});

addEventListener("beforeunload", (event) => {
  if (isUploading.value) event.preventDefault();
});

export function startUploads(files: readonly NewFile[], overwrite: boolean): void {
  const kept = isUploading.value ? uploads.value : uploads.value.filter((one) => one.state === "failed");
  const added = files.map(
    ({ file, path }): Upload => ({ id: ++lastId, path, file, overwrite, state: "waiting", sent: 0, problem: "" }),
  );
  uploads.value = [...kept, ...added];
  startWaiting();
}

export function retryUpload(id: number): void {
  change(id, { state: "waiting", problem: "" });
  startWaiting();
}

/** Remove an upload from the list; one that is not finished ends. */
export function dropUpload(id: number): void {
  aborts.get(id)?.abort();
  uploads.value = uploads.value.filter((one) => one.id !== id);
}

function change(id: number, changes: Partial<Upload>): void {
  uploads.value = uploads.value.map((one) => (one.id === id ? { ...one, ...changes } : one));
}

function startWaiting(): void {
  while (aborts.size < AT_ONCE) {
    const next = uploads.value.find((one) => one.state === "waiting");
    if (!next) return;
    const abort = new AbortController();
    aborts.set(next.id, abort);
    change(next.id, { state: "active" });
    void run(next, abort.signal).finally(() => {
      aborts.delete(next.id);
      startWaiting();
    });
  }
}

async function run(upload: Upload, signal: AbortSignal): Promise<void> {
  for (let failures = 1; !signal.aborted; failures += 1) {
    try {
      await send(upload, signal, () => (failures = 0));
      change(upload.id, { state: "done", sent: upload.file.size, problem: "" });
      arrived.value = { folder: parentOf(upload.path), at: Date.now() };
      return;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) {
        // The file was changed or removed since it was chosen.
        change(upload.id, { state: "failed", problem: "The file cannot be read any more: choose it again." });
        return;
      }
      if (!isPassing(error)) {
        change(upload.id, { state: "failed", problem: [error.message, error.hint].filter(Boolean).join(" ") });
        return;
      }
      change(upload.id, { problem: "Waiting for the cluster …" });
      await pause(backoffMs(Math.max(1, failures)), signal);
    }
  }
}

/** Whether the same request may succeed later: no connection, a server that starts, too many requests. */
function isPassing(error: ApiError): boolean {
  return error.status === 0 || error.status === 429 || error.status >= 500;
}

/** Of uploads that are deleted from the cluster when they are cancelled. */
const cancellable = new WeakSet<AbortSignal>();

/** Send the parts that the cluster does not have yet. */
async function send(upload: Upload, signal: AbortSignal, onProgress: () => void): Promise<void> {
  const { file, path, overwrite } = upload;
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
  // Cancelled: what has arrived takes no space any more. A retry has the same id, and must not delete it once more.
  if (!cancellable.has(signal)) {
    cancellable.add(signal);
    const remove = () => void request("DELETE", `api/v2/transfer/uploads/${id}`).catch(() => undefined);
    signal.addEventListener("abort", remove, { once: true });
  }
  const digests: Uint8Array[] = [];
  for (const offset of partOffsets(file.size)) {
    const bytes = new Uint8Array(await file.slice(offset, offset + partBytes(file.size)).arrayBuffer());
    const digest = await hashOf(bytes);
    signal.throwIfAborted();
    digests.push(digest);
    if (have[offset] !== hex(digest)) {
      const part = new Blob([bytes, digest as Uint8Array<ArrayBuffer>]);
      await request("PUT", `api/v2/transfer/uploads/${id}?offset=${offset}`, { bytes: part, signal });
      onProgress();
    }
    change(upload.id, { sent: offset + bytes.length, problem: "" });
  }
  const end = { size: file.size, mtime, digest: combined(digests) };
  await request("POST", `api/v2/transfer/uploads/${id}/finish`, { body: end, signal });
}
