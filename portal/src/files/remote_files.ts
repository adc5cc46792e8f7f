// Files of a remote storage (in a cloud, on an HDFS, of a file server), which the cluster reads and changes.
import { ApiError, get, request, uploadBody } from "../api.ts";
import type { ContentLink, DeletedObjects, MovedObjects, StorageEntries, StorageEntry, UploadOffset } from "../api_types.ts";
import { onOtherUser, session } from "../session.ts";
import { onceAborted } from "./cancel.ts";
import { MAX_ENTRIES, save, type Entry, type StorageFiles } from "./storage.ts";

/** As much of a file as arrives whole, whatever is answered; of a larger one a refusal could get lost. */
const SMALL_BYTES = 64 << 10;
/** Moves of folders that were interrupted, by their addresses: the same move goes on. */
const unfinishedMoves = new Set<string>();
onOtherUser(() => unfinishedMoves.clear());

export function remoteFiles(storage: string): StorageFiles {
  const of = (what: string, values: Readonly<Record<string, string>>) =>
    `api/v2/storages/${encodeURIComponent(storage)}/${what}?${new URLSearchParams(values).toString()}`;
  return {
    hasArchives: false,
    sendPack: null,
    async list(path, signal, onPage = () => undefined) {
      const entries: Entry[] = [];
      for (let cursor = ""; ;) {
        const page = await get<StorageEntries>(of("entries", { path, cursor }), signal);
        if (page.file) return { file: remoteEntry(page.file), entries: [], remaining: 0 };
        for (const entry of page.entries) entries.push(remoteEntry(entry));
        cursor = page.next;
        if (!cursor || entries.length >= MAX_ENTRIES) {
          return { file: null, entries, remaining: cursor || page.isTruncated ? Infinity : 0 };
        }
        onPage(entries.slice());
      }
    },
    async readStart(path, length, signal) {
      const response = await request("GET", of("content", { path, length: String(length) }), { signal });
      return new Uint8Array(await response.arrayBuffer());
    },
    async download(path, name) {
      const response = await request("POST", of("content-link", { path }));
      save(((await response.json()) as ContentLink).url, name);
    },
    async makeFolder(path) {
      await request("PUT", of("entries", { path }));
    },
    async move(path, target) {
      const move = of("moves", { path, target });
      const checkUser = sameUser();
      for (;;) {
        const isResumed = unfinishedMoves.has(move);
        if (await isLastStep(request("POST", isResumed ? `${move}&resume=true` : move), isResumed)) break;
        checkUser();
        unfinishedMoves.add(move);
      }
      unfinishedMoves.delete(move);
    },
    async remove(path, onStep) {
      const checkUser = sameUser();
      let isResumed = false;
      while (!(await isLastStep(request("DELETE", of("entries", { path })), isResumed))) {
        checkUser();
        if (!isResumed) onStep();
        isResumed = true;
      }
    },
    async send({ file, path, overwrite }, signal, onSent) {
      const upload = { path, overwrite: String(overwrite) };
      if (file.size <= SMALL_BYTES) return uploadBody(of("content", upload), file, signal, onSent);
      const key = { ...upload, upload: `portal-${file.size}-${file.lastModified}` };
      const whole = of("uploads", { ...key, size: String(file.size) });
      const begun = await request("POST", whole, { signal });
      const { offset } = (await begun.json()) as UploadOffset;
      onceAborted(signal, () => request("DELETE", whole));
      onSent(offset);
      return uploadBody(of("content", { ...key, offset: String(offset) }), file.slice(offset), signal, (sent) => onSent(offset + sent));
    },
  };
}

/** A check between the steps of a change: no step is made in the name of the next user. */
function sameUser(): () => void {
  const user = session.value?.user;
  return () => {
    if (session.value?.user !== user) throw new ApiError("The user has signed out meanwhile.", 401);
  };
}

/** Whether a step was the last one. Nothing is left to be changed, either, if another program did the rest. */
async function isLastStep(step: Promise<Response>, isResumed: boolean): Promise<boolean> {
  try {
    return ((await (await step).json()) as DeletedObjects | MovedObjects).isComplete;
  } catch (error) {
    if (isResumed && error instanceof ApiError && error.status === 404) return true;
    throw error;
  }
}

function remoteEntry({ name, type, size, modifiedTime: modified }: StorageEntry): Entry {
  return { name, isFolder: type === "directory", size, modified, owner: "", permission: "" };
}
