// Files: folders and files of the storages. The address has the storage and the path.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { attempt, attemptEach } from "../components/forms.tsx";
import { Command } from "../components/command.tsx";
import { Confirm } from "../components/dialogs.tsx";
import { Empty, ErrorNotice, Loading } from "../components/notices.tsx";
import { toast } from "../components/toasts.tsx";
import { droppedFiles } from "../files/dropped.ts";
import { FileTable } from "../files/file_table.tsx";
import { parseOrder } from "../files/listing.ts";
import { ownFiles } from "../files/own_files.ts";
import { MoveDialog, NewFolderDialog } from "../files/path_dialogs.tsx";
import { baseName, decodePath, isBelow, join, namesOf, parentOf } from "../files/paths.ts";
import { Preview } from "../files/preview.tsx";
import { remoteFiles } from "../files/remote_files.ts";
import { isInCloud, isReadByCluster, listStorages, ownStorage, type Entry, type StorageFiles } from "../files/storage.ts";
import type { StorageDetail } from "../api_types.ts";
import { arrived, startUploads, type NewFile } from "../files/upload.ts";
import { UploadList } from "../files/upload_list.tsx";
import { counted, exactTime, fileSize } from "../format.ts";
import { usePolled } from "../live.ts";
import { address, filesHref, href, navigate, setQuery } from "../router.ts";

const STORAGES_REFRESH_MS = 60_000;
const FOLDER_REFRESH_MS = 15_000;
/** A folder of thousands takes several requests. */
const LARGE_REFRESH_MS = 120_000;
const LARGE_ENTRIES = 2000;

/** `rest`: what follows `/files` in the address. */
export function FilesPage({ rest }: { rest: string }) {
  const { error, value } = usePolled("storages", load, STORAGES_REFRESH_MS);
  const [name = "", ...names] = namesOf(decodePath(rest));
  const path = `/${names.join("/")}`;
  const first = value?.storages.find((candidate) => candidate.data.url === value.own.url);
  const firstName = first?.name;
  const home = value?.own.home;
  useEffect(() => {
    document.title = `${baseName(path) || "Files"} · OpenPAI`;
    if (!name && firstName !== undefined && home !== undefined) navigate(filesHref(firstName, home), { replace: true });
  }, [path, name, firstName, home]);

  if (error) return <ErrorNotice error={error} />;
  if (!value || (!name && first)) return <Loading what="the storages" />;
  const storage = value.storages.find((candidate) => candidate.name === name);
  return (
    <>
      <div class="head">
        <h1>Files</h1>
        <div class="actions">
          {first && path !== value.own.home && (
            <a class="button" href={filesHref(first.name, value.own.home)}>
              My files
            </a>
          )}
          {value.storages.length > 1 && (
            <select aria-label="Storage" value={name} onChange={(event) => navigate(filesHref(event.currentTarget.value, "/"))}>
              {!storage && <option value={name}>{name || "Choose a storage"}</option>}
              {value.storages.map((one) => (
                <option key={one.name} value={one.name}>
                  {one.name}
                </option>
              ))}
            </select>
          )}
        </div>
      </div>
      {!storage && <NoStorage name={name} />}
      {storage && <StorageView key={`${name}${path}`} storage={storage} path={path} isOwn={storage.data.url === value.own.url} />}
      <UploadList />
    </>
  );
}

async function load(signal: AbortSignal) {
  const [storages, own] = await Promise.all([listStorages(signal), ownStorage(signal)]);
  return { storages, own };
}

function NoStorage({ name }: { name: string }) {
  return (
    <div class="card">
      {name ? (
        <Empty title={`There is no storage called ${name}`}>
          <a href={href("/files")}>Your files</a>
        </Empty>
      ) : (
        <Empty title="No storage">
          <p>Your groups have access to no storage that this cluster serves. An administrator can change that.</p>
        </Empty>
      )}
    </div>
  );
}

/** The cluster serves its own storage and reads most others; of some it only knows the address. */
function StorageView({ storage, path, isOwn }: { storage: StorageDetail; path: string; isOwn: boolean }) {
  if (!isOwn && !isReadByCluster(storage)) return <OutsideStorage storage={storage} />;
  const files = isOwn ? ownFiles : remoteFiles(storage.name);
  return <Browser storage={storage} path={path} files={files} isEditable={!storage.readOnly} />;
}

/** A storage that the cluster only names: why the page does not show it, and what does. */
function OutsideStorage({ storage }: { storage: StorageDetail }) {
  const [reason, instead] = wayTo(storage);
  return (
    <div class="card">
      <Empty title={`${storage.name} is outside of this cluster`}>
        <p>{reason}</p>
        <Command text={instead} />
      </Empty>
    </div>
  );
}

function wayTo(storage: StorageDetail): readonly [string, string] {
  const { name, type, data } = storage;
  if (type === "nfs" && !data["server"] && typeof data["path"] === "string" && data["path"]) {
    return ["It is a folder on the machines of the cluster, which this page cannot show: tasks find it at this path.", data["path"]];
  }
  if (isInCloud(storage)) {
    const copied = "The cluster has no credentials for it, so this page cannot show it: pai lists and copies its files with yours.";
    return [copied, `pai listdir pai://CLUSTER/${name}/`];
  }
  const mounted = "It is a share of a file server, which this page cannot show: a job that names it in its extras finds it mounted.";
  return [mounted, `storages: [{name: ${name}}]`];
}

interface PathProps {
  readonly storage: StorageDetail;
  readonly path: string;
  readonly files: StorageFiles;
  readonly isEditable: boolean;
}

/** Of a storage whose credentials users have themselves. */
const NO_CREDENTIALS = "NoStorageCredentialsError";

function Browser({ storage, path, files, isEditable }: PathProps) {
  const partial = useSignal<readonly Entry[]>([]);
  const listing = usePolled(
    path,
    (signal) => files.list(path, signal, (entries) => (partial.value = entries)),
    ({ entries }) => (entries.length > LARGE_ENTRIES ? LARGE_REFRESH_MS : FOLDER_REFRESH_MS),
  );
  useEffect(() => {
    // Also a file in a folder below: the folder may be new.
    if (arrived.value.some((file) => isBelow(file, path))) listing.reload();
    // oxlint-disable-next-line react/exhaustive-deps -- only what arrives is a reason to read the folder again; `arrived` is a signal of its module
  }, [arrived.value]);

  const { value } = listing;
  const shown = { storage, path, files, isEditable };
  if (listing.error?.code === NO_CREDENTIALS) return <OutsideStorage storage={storage} />;
  return (
    <>
      <Breadcrumbs storage={storage.name} path={path} />
      {listing.error && <ErrorNotice error={listing.error} />}
      {!listing.error && !value && !partial.value.length && <Loading what="the folder" />}
      {value?.file && <FileView {...shown} file={value.file} />}
      {!value?.file && !listing.error && (value || partial.value.length > 0) && (
        <Folder
          {...shown}
          entries={value?.entries ?? partial.value}
          note={noteOf(value?.remaining, partial.value.length)}
          onChange={listing.reload}
        />
      )}
    </>
  );
}

/** What is missing in the table. `remaining` is undefined while the first listing arrives. */
function noteOf(remaining: number | undefined, listed: number): string {
  if (remaining === undefined) return `Loading … ${counted(listed, "entry", "entries")} so far.`;
  if (remaining === Infinity) return "More entries are not shown: the folder is too large for a page.";
  return remaining ? `${counted(remaining, "more entry", "more entries")} not shown: the folder is too large for a page.` : "";
}

function Breadcrumbs({ storage, path }: { storage: string; path: string }) {
  const names = namesOf(path);
  return (
    <nav class="crumbs" aria-label="Path">
      <ol>
        {[storage, ...names].map((name, at) => (
          <li key={at}>
            {at === names.length ? (
              <span aria-current="page">{name}</span>
            ) : (
              <a href={filesHref(storage, `/${names.slice(0, at).join("/")}`)}>{name}</a>
            )}
          </li>
        ))}
      </ol>
    </nav>
  );
}

// -- folder ----------------------------------------------------------------------------------------

interface FolderProps extends PathProps {
  readonly entries: readonly Entry[];
  readonly note: string;
  readonly onChange: () => void;
}

function Folder({ storage, path, files, isEditable, entries, note, onChange }: FolderProps) {
  const selected = useSignal<ReadonlySet<string>>(new Set());
  const dialog = useSignal<"new-folder" | "move" | "delete" | null>(null);
  const offered = useSignal<readonly NewFile[]>([]);
  const { query } = address.value;
  const chosen = entries.filter((entry) => selected.value.has(entry.name));
  const names = chosen.map((entry) => entry.name);
  const paths = names.map((name) => join(path, name));

  const upload = (added: readonly NewFile[]) => {
    if (!added.length) return;
    const taken = new Set(entries.map((entry) => entry.name));
    if (added.some((file) => taken.has(topName(file.path, path)))) offered.value = added;
    else startUploads(files, added, false);
  };
  const clear = () => {
    selected.value = new Set();
    onChange();
  };

  return (
    <DropArea folder={path} isActive={isEditable} onFiles={upload}>
      <div class="filters">
        <input
          type="search"
          aria-label="Filter by name"
          placeholder="Filter by name"
          value={query.get("name") ?? ""}
          onInput={(event) => setQuery({ name: event.currentTarget.value }, { replace: query.has("name") })}
        />
        {names.length > 0 ? (
          <SelectionActions
            names={names}
            isEditable={isEditable}
            onDownload={() => void downloadAll(files, chosen, path)}
            onMove={() => (dialog.value = "move")}
            onDelete={() => (dialog.value = "delete")}
          />
        ) : (
          isEditable && <FolderActions folder={path} onFiles={upload} onNewFolder={() => (dialog.value = "new-folder")} />
        )}
      </div>
      {entries.length === 0 ? (
        <div class="card">
          <Empty title="This folder is empty">{isEditable && <p>Drop files here, or use Upload.</p>}</Empty>
        </div>
      ) : (
        <FileTable
          entries={entries}
          filter={query.get("name") ?? ""}
          order={parseOrder(query.get("order") ?? "")}
          onOrder={(order) => setQuery({ order })}
          linkOf={(entry) => filesHref(storage.name, join(path, entry.name))}
          onDownload={(entry) => void downloadAll(files, [entry], path)}
          hasArchives={files.hasArchives}
          selection={{ names: selected.value, onChange: (changed) => (selected.value = changed) }}
        />
      )}
      <p class="quiet count" role="status">
        {note || (entries.length > 0 && counted(entries.length, "entry", "entries"))}
      </p>
      {dialog.value === "new-folder" && (
        <NewFolderDialog
          files={files}
          folder={path}
          taken={new Set(entries.map((entry) => entry.name))}
          onDone={onChange}
          onClose={() => (dialog.value = null)}
        />
      )}
      {dialog.value === "move" && <MoveDialog files={files} paths={paths} onDone={clear} onClose={() => (dialog.value = null)} />}
      {dialog.value === "delete" && <ConfirmRemoval files={files} paths={paths} onDone={clear} onClose={() => (dialog.value = null)} />}
      {offered.value.length > 0 && (
        <Confirm
          title="Replace what is there?"
          text={`${takenText(offered.value, entries, path)} Files of the same name are replaced.`}
          action="Replace"
          onConfirm={() => startUploads(files, offered.value, true)}
          onClose={() => (offered.value = [])}
        />
      )}
    </DropArea>
  );
}

/** The entry of the folder that a new file is, or is in. */
function topName(path: string, folder: string): string {
  return namesOf(path)[namesOf(folder).length] ?? "";
}

function takenText(files: readonly NewFile[], entries: readonly Entry[], folder: string): string {
  const known = new Set(entries.map((entry) => entry.name));
  const taken = [...new Set(files.map((file) => topName(file.path, folder)))].filter((name) => known.has(name));
  const [first = ""] = taken;
  return taken.length === 1 ? `The folder has ${first} already.` : `The folder has ${taken.length} of these already.`;
}

interface FolderActionsProps {
  readonly folder: string;
  readonly onFiles: (files: readonly NewFile[]) => void;
  readonly onNewFolder: () => void;
}

function FolderActions({ folder, onFiles, onNewFolder }: FolderActionsProps) {
  const choose = ({ currentTarget: input }: { currentTarget: HTMLInputElement }) => {
    // Of a chosen folder, the files have paths that begin with its name.
    onFiles([...(input.files ?? [])].map((file) => ({ file, path: join(folder, file.webkitRelativePath || file.name) })));
    // The same file can be chosen again.
    input.value = "";
  };
  return (
    <div class="actions">
      <label class="button primary">
        Upload
        <input class="sr" type="file" multiple aria-label="Upload" onChange={choose} />
      </label>
      <label class="button">
        Upload a folder
        <input class="sr" type="file" aria-label="Upload a folder" onChange={choose} ref={chooseFolders} />
      </label>
      <button class="button" type="button" onClick={onNewFolder}>
        New folder
      </button>
    </div>
  );
}

/** Let a field choose a folder with all that is in it. */
function chooseFolders(field: HTMLInputElement | null): void {
  if (field) field.webkitdirectory = true;
}

interface SelectionActionsProps {
  readonly names: readonly string[];
  readonly isEditable: boolean;
  readonly onDownload: () => void;
  readonly onMove: () => void;
  readonly onDelete: () => void;
}

function SelectionActions({ names, isEditable, onDownload, onMove, onDelete }: SelectionActionsProps) {
  return (
    <div class="actions selected">
      <span>{names.length.toLocaleString("en")} selected</span>
      <button class="button" type="button" onClick={onDownload}>
        Download
      </button>
      {isEditable && (
        <>
          <button class="button" type="button" onClick={onMove}>
            {names.length === 1 ? "Rename or move" : "Move"}
          </button>
          <button class="button danger" type="button" onClick={onDelete}>
            Delete
          </button>
        </>
      )}
    </div>
  );
}

async function downloadAll(files: StorageFiles, entries: readonly Entry[], folder: string): Promise<void> {
  const saved = entries.filter((entry) => !entry.isFolder || files.hasArchives);
  if (saved.length < entries.length) toast("Folders of this storage are not downloaded here: open them, and choose files.");
  for (const { name, isFolder } of saved) await attempt(() => files.download(join(folder, name), name, isFolder));
}

interface DropAreaProps {
  readonly folder: string;
  readonly isActive: boolean;
  readonly onFiles: (files: readonly NewFile[]) => void;
  readonly children: ComponentChildren;
}

function DropArea({ folder, isActive, onFiles, children }: DropAreaProps) {
  const isOver = useSignal(false);
  const over = (event: DragEvent) => {
    if (!isActive || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    isOver.value = true;
  };
  const leave = (event: DragEvent & { currentTarget: HTMLElement }) => {
    if (!event.currentTarget.contains(event.relatedTarget as Node | null)) isOver.value = false;
  };
  const drop = async (event: DragEvent) => {
    isOver.value = false;
    if (!isActive || !event.dataTransfer) return;
    event.preventDefault();
    try {
      onFiles(await droppedFiles(event.dataTransfer.items, folder));
    } catch {
      toast("A file or folder cannot be read, so nothing is uploaded: drop the files again.");
    }
  };
  return (
    <div class={isOver.value ? "drop over" : "drop"} onDragOver={over} onDragLeave={leave} onDrop={(event) => void drop(event)}>
      {children}
    </div>
  );
}

// -- file ------------------------------------------------------------------------------------------

function FileView({ storage, path, files, isEditable, file }: PathProps & { file: Entry }) {
  const dialog = useSignal<"move" | "delete" | null>(null);
  const name = baseName(path);
  const toFolder = () => navigate(filesHref(storage.name, parentOf(path)));
  return (
    <div class="stack">
      <div class="file-head">
        <span class="quiet">{[fileSize(file.size), exactTime(file.modified || null), file.owner].filter(Boolean).join(" · ")}</span>
        <div class="actions">
          <button class="button" type="button" onClick={() => void attempt(() => files.download(path, name))}>
            Download
          </button>
          {isEditable && (
            <>
              <button class="button" type="button" onClick={() => (dialog.value = "move")}>
                Rename or move
              </button>
              <button class="button danger" type="button" onClick={() => (dialog.value = "delete")}>
                Delete
              </button>
            </>
          )}
        </div>
      </div>
      <div>
        <Preview reader={files} path={path} name={name} entry={file} />
      </div>
      {dialog.value === "move" && (
        <MoveDialog
          files={files}
          paths={[path]}
          onDone={(target) => navigate(filesHref(storage.name, target))}
          onClose={() => (dialog.value = null)}
        />
      )}
      {dialog.value === "delete" && <ConfirmRemoval files={files} paths={[path]} onDone={toFolder} onClose={() => (dialog.value = null)} />}
    </div>
  );
}

// -- actions ---------------------------------------------------------------------------------------

interface RemovalProps {
  readonly files: StorageFiles;
  readonly paths: readonly string[];
  readonly onDone: () => void;
  readonly onClose: () => void;
}

function ConfirmRemoval({ files, paths, onDone, onClose }: RemovalProps) {
  const what = paths.length === 1 ? baseName(paths[0] ?? "") : counted(paths.length, "entry", "entries");
  return (
    <Confirm
      title={`Delete ${what}?`}
      text="A folder is deleted with everything in it. There is no trash: this cannot be undone."
      action="Delete"
      onConfirm={() => void removeAll(files, paths).then(onDone)}
      onClose={onClose}
    />
  );
}

async function removeAll(files: StorageFiles, paths: readonly string[]): Promise<void> {
  const problems = await attemptEach(paths, (path) =>
    files.remove(path, () => toast(`${baseName(path)} has many files: it is being deleted.`)),
  );
  const removed = paths.length - problems.length;
  if (removed) toast(paths.length === 1 ? `${baseName(paths[0] ?? "")} is deleted.` : `${counted(removed, "entry", "entries")} deleted.`);
  if (problems.length) toast(`${counted(problems.length, "entry", "entries")} not deleted: ${problems[0] ?? ""}`);
}
