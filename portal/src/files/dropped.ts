// Files that are dropped on the page, with those in folders.
import type { NewFile } from "./upload.ts";
import { join } from "./paths.ts";

export async function droppedFiles(items: DataTransferItemList, folder: string): Promise<NewFile[]> {
  // Both calls work only while the event is handled: no `await` before them.
  const dropped = [...items].map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  const files: NewFile[] = [];
  for (const { entry, file } of dropped) {
    if (entry?.isDirectory) await addEntry(entry, folder, files);
    else if (file) files.push({ file, path: join(folder, file.name) });
  }
  return files;
}

async function addEntry(entry: FileSystemEntry, folder: string, files: NewFile[]): Promise<void> {
  const path = join(folder, entry.name);
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    files.push({ file, path });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    // Browsers answer with a hundred entries at a time, and with none at the end.
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return;
    for (const child of some) await addEntry(child, path, files);
  }
}
