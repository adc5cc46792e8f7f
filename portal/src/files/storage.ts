// Client of the cluster's storage (WebHDFS) and of the list of storages.
import { ApiError, get, request } from "../api.ts";
import type { StorageDetail, StorageList } from "../api_types.ts";
import { encodePath, parentOf } from "./paths.ts";

/** Types of storages in a cloud. */
const CLOUD_TYPES: readonly string[] = ["s3", "azureBlob"];
/** A share of a file server that the cluster reads. */
const SHARE_TYPE = "samba";

export interface Entry {
  readonly name: string;
  readonly isFolder: boolean;
  readonly size: number;
  readonly modified: number;
  readonly owner: string;
  readonly permission: string;
}

export interface Listing {
  /** The file, if the path is one; else null. */
  readonly file: Entry | null;
  readonly entries: readonly Entry[];
  /** Entries that are not listed; Infinity: some, but the storage does not tell how many. */
  readonly remaining: number;
}

/** More than a page can sort and show at once without a pause; filter in a shell beyond it. */
export const MAX_ENTRIES = 100_000;

interface FileStatus {
  readonly pathSuffix: string;
  readonly type: "FILE" | "DIRECTORY";
  readonly length: number;
  readonly modificationTime: number;
  readonly owner: string;
  readonly permission: string;
}

export const isInCloud = (storage: StorageDetail) => CLOUD_TYPES.includes(storage.type);

/** Whether the cluster reads a storage that is not its own: in a cloud, a share, or at the address of an HDFS. */
export const isReadByCluster = (storage: StorageDetail) =>
  isInCloud(storage) || storage.type === SHARE_TYPE || storage.data["url"] !== undefined;

/** How the files of a storage are read. */
export interface StorageReader {
  readonly list: (path: string, signal: AbortSignal, onPage?: (entries: readonly Entry[]) => void) => Promise<Listing>;
  readonly readStart: (path: string, length: number, signal: AbortSignal) => Promise<Uint8Array>;
  readonly download: (path: string, name: string, isFolder?: boolean) => Promise<void>;
  /** Whether it has folders as tar files. */
  readonly hasArchives: boolean;
}

/** A file that is uploaded, and its path on the storage. */
export interface SentFile {
  readonly file: File;
  readonly path: string;
  readonly overwrite: boolean;
}

/** Why a file that a user has chosen is not uploaded. */
export const UNREADABLE = "The file cannot be read any more: choose it again.";

/** How the files of a storage are read and changed. */
export interface StorageFiles extends StorageReader {
  readonly makeFolder: (path: string) => Promise<void>;
  /** Move or rename; what has the new path already is an error. */
  readonly move: (path: string, target: string) => Promise<void>;
  /** Delete a file, or a folder with everything in it; `onStep` hears of what takes long. */
  readonly remove: (path: string, onStep: () => void) => Promise<void>;
  /** Upload a file, and say how many bytes of it have arrived. An interrupted upload goes on. */
  readonly send: (sent: SentFile, signal: AbortSignal, onSent: (bytes: number) => void) => Promise<void>;
  /** Upload small files in one request, all of them with the same `overwrite`: problems by path. Null: one by one. */
  readonly sendPack: ((files: readonly SentFile[], signal: AbortSignal) => Promise<ReadonlyMap<string, string>>) | null;
}

function address(path: string, op: string, values: Readonly<Record<string, string>> = {}): string {
  return `webhdfs/v1${encodePath(path)}?${new URLSearchParams({ op, ...values }).toString()}`;
}

// -- storages --------------------------------------------------------------------------------------

export async function listStorages(signal?: AbortSignal): Promise<readonly StorageDetail[]> {
  const { storages } = await get<StorageList>("api/v2/storages", signal);
  return Promise.all(storages.map(({ name }) => get<StorageDetail>(`api/v2/storages/${encodeURIComponent(name)}?secrets=false`, signal)));
}

interface Offer {
  readonly home: string;
  readonly url: string;
}

/** The caller's home folder, and the address of the storage that the cluster itself serves. */
export function ownStorage(signal?: AbortSignal): Promise<Offer> {
  return get("api/v2/transfer", signal);
}

// -- folders and files -----------------------------------------------------------------------------

/** List a folder in pages; `onPage` gets what has arrived so far. */
export async function listFolder(
  path: string,
  signal: AbortSignal,
  onPage: (entries: readonly Entry[]) => void = () => undefined,
): Promise<Listing> {
  const entries: Entry[] = [];
  for (;;) {
    const after = entries.at(-1)?.name ?? "";
    const page = await get<{
      DirectoryListing: {
        partialListing: { FileStatuses: { FileStatus: FileStatus[] } };
        remainingEntries: number;
      };
    }>(address(path, "LISTSTATUS_BATCH", after ? { startafter: after } : {}), signal);
    const { partialListing, remainingEntries: remaining } = page.DirectoryListing;
    const statuses = partialListing.FileStatuses.FileStatus;
    // HDFS lists a file as one entry without a name.
    if (statuses.length === 1 && statuses[0]?.pathSuffix === "") return { file: entryOf(statuses[0]), entries: [], remaining: 0 };
    for (const status of statuses) entries.push(entryOf(status));
    if (!remaining || !statuses.length || entries.length >= MAX_ENTRIES) return { file: null, entries, remaining };
    onPage(entries.slice());
  }
}

function entryOf(status: FileStatus): Entry {
  return {
    name: status.pathSuffix,
    isFolder: status.type === "DIRECTORY",
    size: status.length,
    modified: status.modificationTime,
    owner: status.owner,
    permission: status.permission,
  };
}

export async function makeFolder(path: string): Promise<void> {
  await request("PUT", address(path, "MKDIRS"));
}

export async function move(path: string, target: string): Promise<void> {
  const moving = request("PUT", address(path, "RENAME", { destination: target, renameoptions: "NONE" }));
  await moving.catch((error: unknown) => {
    // HDFS names the new path as the file that does not exist.
    if (!(error instanceof ApiError && error.status === 404 && error.message.endsWith(target))) throw error;
    throw new ApiError(`There is no folder ${parentOf(target)}.`, 404, error.code, "Make it first, or choose another.");
  });
}

export async function remove(path: string): Promise<void> {
  await request("DELETE", address(path, "DELETE", { recursive: "true" }));
}

/** The first bytes of a file. */
export async function readStart(path: string, length: number, signal: AbortSignal): Promise<Uint8Array> {
  const response = await request("GET", address(path, "OPEN", { data: "true", length: String(length) }), { signal });
  return new Uint8Array(await response.arrayBuffer());
}

/** Address of a file's bytes, or of a folder as a tar; valid for ten minutes, and needs no header. */
async function downloadAddress(path: string, isFolder: boolean): Promise<string> {
  const op = isFolder ? "GETARCHIVE" : "OPEN";
  const { Location } = await get<{ Location: string }>(address(path, op, { noredirect: "true" }));
  // Relative to the page: the cluster may be below a path of another server.
  return `webhdfs/v1${encodePath(path)}?${Location.slice(Location.indexOf("?") + 1)}`;
}

/** Let the browser save a file, or a folder as one tar file. */
export async function download(path: string, name: string, isFolder = false): Promise<void> {
  save(await downloadAddress(path, isFolder), isFolder ? `${name}.tar` : name);
}

/** Let the browser save what an address has. */
export function save(from: string, name: string): void {
  const link = document.createElement("a");
  link.href = from;
  link.download = name;
  link.click();
}
