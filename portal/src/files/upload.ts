// Uploads: files in parts, two at a time. They go on while the user looks at other pages, and after a lost
// connection; the same file, chosen again after a reload, continues where it was.
import { computed, signal } from "@preact/signals";
import { ApiError } from "../api.ts";
import { backoffMs, pause } from "../live.ts";
import { onOtherUser } from "../session.ts";
import { parentOf } from "./paths.ts";
import type { SentFile, StorageFiles } from "./storage.ts";

export interface Upload extends SentFile {
  readonly id: number;
  readonly storage: StorageFiles;
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
export const isUploading = computed(() => uploads.value.some((upload) => upload.state === "waiting" || upload.state === "active"));
/** A folder that has a new file, and when; for the page that shows it. */
export const arrived = signal({ folder: "", at: 0 });

const aborts = new Map<number, AbortController>();
let lastId = 0;

// The next user of this page must not see them. When only the session has expired, they wait for the next one.
onOtherUser(() => {
  for (const upload of uploads.value) dropUpload(upload.id);
});

addEventListener("beforeunload", (event) => {
  if (isUploading.value) event.preventDefault();
});

export function startUploads(storage: StorageFiles, files: readonly NewFile[], overwrite: boolean): void {
  const kept = isUploading.value ? uploads.value : uploads.value.filter((upload) => upload.state === "failed");
  const added = files.map(
    ({ file, path }): Upload => ({ id: ++lastId, storage, path, file, overwrite, state: "waiting", sent: 0, problem: "" }),
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
  uploads.value = uploads.value.filter((upload) => upload.id !== id);
}

function change(id: number, changes: Partial<Upload>): void {
  uploads.value = uploads.value.map((upload) => (upload.id === id ? { ...upload, ...changes } : upload));
}

function startWaiting(): void {
  while (aborts.size < AT_ONCE) {
    const next = uploads.value.find((upload) => upload.state === "waiting");
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
  let most = 0;
  for (let failures = 1; !signal.aborted; failures += 1) {
    const onSent = (sent: number) => {
      if (sent > most) failures = 0;
      most = Math.max(most, sent);
      change(upload.id, { sent, problem: "" });
    };
    try {
      await upload.storage.send(upload, signal, onSent);
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

/** Whether the same request may succeed later: no connection, a server that starts, too many requests. Space that is
 *  used up is not free soon. */
function isPassing({ status }: ApiError): boolean {
  return status === 0 || status === 429 || (status >= 500 && status !== 507);
}
