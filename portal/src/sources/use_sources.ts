// Files that travel with a job: chosen, packed while the user goes on, sent with the submission.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { hasSources, putSources } from "../api.ts";
import type { NewFile } from "../files/upload.ts";
import { fileSize } from "../format.ts";
import type { SourcesReference } from "../editor/job_file.ts";
import { packed, type SourceArchive } from "./archive.ts";
import { sourcesOf } from "./selection.ts";

/** As `pai sub`: more are a data set, not the sources of a job. */
const MAX_FILES = 20_000;

export interface Sources {
  readonly files: readonly NewFile[];
  /** Files that ignore files exclude. */
  readonly ignored: number;
  readonly archive: SourceArchive | null;
  /** Share of the files that is read or sent; null when nothing goes on. */
  readonly progress: { readonly word: "Reading" | "Uploading"; readonly share: number } | null;
  readonly problem: string;
  readonly add: (files: readonly NewFile[]) => Promise<void>;
  readonly remove: (path: string) => void;
  readonly clear: () => void;
  /** Wait for the packing; then send the archive if the job names it by then, and the cluster does not have it. */
  readonly send: (named: () => SourcesReference | null) => Promise<void>;
}

export function useSources(maxBytes: number, onPacked: (archive: SourceArchive | null) => void): Sources {
  const files = useSignal<readonly NewFile[]>([]);
  const ignored = useSignal(0);
  const archive = useSignal<SourceArchive | null>(null);
  const progress = useSignal<Sources["progress"]>(null);
  const problem = useSignal("");
  const packing = useRef<{ abort: AbortController; done: Promise<void> } | null>(null);
  const page = useRef(new AbortController());
  useEffect(
    () => () => {
      packing.current?.abort.abort();
      page.current.abort();
    },
    [],
  );

  const pack = async (chosen: readonly NewFile[], signal: AbortSignal) => {
    progress.value = { word: "Reading", share: 0 };
    try {
      const made = chosen.length
        ? await packed(chosen, signal, (share) => (progress.value = { word: "Reading", share }))
        : null;
      if (signal.aborted) return;
      archive.value = made;
      onPacked(made);
    } catch {
      if (signal.aborted) return;
      problem.value = "A file cannot be read any more: choose the files again.";
    }
    progress.value = null;
  };
  const replace = (chosen: readonly NewFile[]) => {
    const size = chosen.reduce((sum, { file }) => sum + file.size, 0);
    problem.value = "";
    if (chosen.length > MAX_FILES) {
      problem.value = `These are more than ${MAX_FILES.toLocaleString("en")} files. Leave some out with a .paiignore file, or pack them into one.`;
      return;
    }
    if (size > maxBytes) {
      problem.value = `These files have ${fileSize(size)}; a job may bring ${fileSize(maxBytes)}. Put large data on a storage (Files), and choose the storage below.`;
      return;
    }
    packing.current?.abort.abort();
    files.value = chosen;
    const abort = new AbortController();
    packing.current = { abort, done: pack(chosen, abort.signal) };
  };

  return {
    files: files.value,
    ignored: ignored.value,
    archive: archive.value,
    progress: progress.value,
    problem: problem.value,
    add: async (chosen) => {
      const found = await sourcesOf(chosen);
      const byPath = new Map([...files.value, ...found.files].map((one) => [one.path, one]));
      ignored.value = found.ignored;
      replace([...byPath.values()].sort((one, other) => (one.path < other.path ? -1 : 1)));
    },
    remove: (path) => replace(files.value.filter((one) => one.path !== path)),
    clear: () => {
      ignored.value = 0;
      replace([]);
    },
    send: async (named) => {
      await packing.current?.done;
      const made = archive.value;
      if (!made || named()?.sha256 !== made.sha256 || (await hasSources(made.sha256))) return;
      progress.value = { word: "Uploading", share: 0 };
      try {
        await putSources(made.sha256, made.blob, page.current.signal, (sent) => {
          progress.value = { word: "Uploading", share: sent / made.size };
        });
      } finally {
        progress.value = null;
      }
    },
  };
}
