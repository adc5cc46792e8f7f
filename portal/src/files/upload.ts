// Uploads: files in parts, and small files in packs, two at a time. They go on while the user looks at other pages, and after a lost
// connection; the same file, chosen again after a reload, continues where it was.
import { computed, signal } from "@preact/signals";
import { ApiError } from "../api.ts";
import { toast } from "../components/toasts.tsx";
import { counted } from "../format.ts";
import { backoffMs, pause } from "../pause.ts";
import { onOtherUser } from "../session.ts";
import { firstPack, SMALL_BYTES } from "./pack.ts";
import { UNREADABLE, type SentFile, type StorageFiles } from "./storage.ts";

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
/** Uploads that are not finished, and those that failed; finished ones until the last one is. */
export const uploads = signal<readonly Upload[]>([]);
export const isUploading = computed(() => uploads.value.some((upload) => upload.state === "waiting" || upload.state === "active"));
/** Paths of files that have just arrived, for the page that shows a folder of theirs. */
export const arrived = signal<readonly string[]>([]);

/** What is sent at a time: one file, or a pack of small ones. */
interface Transfer {
  readonly ids: ReadonlySet<number>;
  readonly abort: AbortController;
}

const transfers = new Set<Transfer>();
let lastId = 0;

// The next user of this page must not see them. When only the session has expired, they wait for the next one.
onOtherUser(() => {
  dropUploads(uploads.value);
});

addEventListener("beforeunload", (event) => {
  if (isUploading.value) event.preventDefault();
});

export function startUploads(storage: StorageFiles, files: readonly NewFile[], overwrite: boolean): void {
  const added = files.map(({ file, path }): Upload => ({
    id: ++lastId,
    storage,
    path,
    file,
    overwrite,
    state: "waiting",
    sent: 0,
    problem: "",
  }));
  uploads.value = [...uploads.value, ...added];
  startWaiting();
}

export function retryUpload(id: number): void {
  change(id, { state: "waiting", problem: "" });
  startWaiting();
}

/** Remove uploads from the list; those that are not finished end. */
export function dropUploads(dropped: readonly Upload[]): void {
  const ids = new Set(dropped.map((upload) => upload.id));
  uploads.value = uploads.value.filter((upload) => !ids.has(upload.id));
  for (const transfer of transfers) {
    // A pack ends when all of its files are dropped; before, also those that are dropped may arrive.
    if (!uploads.value.some((upload) => transfer.ids.has(upload.id))) transfer.abort.abort();
  }
}

function change(id: number, changes: Partial<Upload>): void {
  changeAll(new Set([id]), () => changes);
}

function changeAll(ids: ReadonlySet<number>, changes: (upload: Upload) => Partial<Upload>): void {
  uploads.value = uploads.value.map((upload) => (ids.has(upload.id) ? { ...upload, ...changes(upload) } : upload));
}

function startWaiting(): void {
  while (transfers.size < AT_ONCE) {
    const files = nextFiles();
    if (!files.length) return;
    const transfer = { ids: new Set(files.map((upload) => upload.id)), abort: new AbortController() };
    transfers.add(transfer);
    changeAll(transfer.ids, () => ({ state: "active" }));
    void run(files, transfer).finally(() => {
      transfers.delete(transfer);
      startWaiting();
      if (!isUploading.value) dropFinished();
    });
  }
}

function dropFinished(): void {
  const failed = uploads.value.filter((upload) => upload.state === "failed");
  const done = uploads.value.length - failed.length;
  if (done) toast(`${counted(done, "file")} uploaded.`);
  uploads.value = failed;
}

/** The file that waits longest; with other small ones if it is small. */
function nextFiles(): readonly Upload[] {
  const waiting = uploads.value.filter((upload) => upload.state === "waiting");
  const [first] = waiting;
  if (!first) return [];
  const goesWith = ({ storage, file, overwrite }: Upload) =>
    file.size <= SMALL_BYTES && storage.sendPack === first.storage.sendPack && overwrite === first.overwrite;
  return first.storage.sendPack && goesWith(first) ? firstPack(waiting.filter(goesWith)) : [first];
}

async function run(files: readonly Upload[], { ids, abort: { signal } }: Transfer): Promise<void> {
  let most = 0;
  for (let failures = 1; !signal.aborted; failures += 1) {
    const onSent = (sent: number) => {
      if (sent > most) failures = 0;
      most = Math.max(most, sent);
      changeAll(ids, () => ({ sent, problem: "" }));
    };
    try {
      const problems = await send(files, signal, onSent);
      changeAll(ids, ({ path, file }) => {
        const problem = problems.get(path);
        return problem === undefined ? { state: "done", sent: file.size, problem: "" } : { state: "failed", problem };
      });
      arrived.value = files.map(({ path }) => path);
      return;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) {
        // The file was changed or removed since it was chosen.
        changeAll(ids, () => ({ state: "failed", problem: UNREADABLE }));
        return;
      }
      if (!isPassing(error)) {
        changeAll(ids, () => ({ state: "failed", problem: [error.message, error.hint].filter(Boolean).join(" ") }));
        return;
      }
      changeAll(ids, () => ({ problem: "Waiting for the cluster …" }));
      await pause(backoffMs(Math.max(1, failures)), signal);
    }
  }
}

const NO_PROBLEMS: ReadonlyMap<string, string> = new Map();

async function send(files: readonly Upload[], signal: AbortSignal, onSent: (sent: number) => void): Promise<ReadonlyMap<string, string>> {
  const [first] = files;
  if (!first) return NO_PROBLEMS;
  if (files.length > 1 && first.storage.sendPack) return first.storage.sendPack(files, signal);
  await first.storage.send(first, signal, onSent);
  return NO_PROBLEMS;
}

/** Whether the same request may succeed later: no connection, a server that starts, too many requests. Space that is
 *  used up is not free soon. */
function isPassing({ status }: ApiError): boolean {
  return status === 0 || status === 429 || (status >= 500 && status !== 507);
}
