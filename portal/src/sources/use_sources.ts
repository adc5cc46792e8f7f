// The files of the job that a page edits: kept while the page is open.
import { useLayoutEffect, useMemo } from "preact/hooks";
import { hasSources, putSources } from "../api.ts";
import type { SourceArchive } from "./archive.ts";
import { SourceFiles } from "./source_files.ts";

const STORE = {
  has: hasSources,
  put: ({ sha256, blob }: SourceArchive, signal: AbortSignal, onProgress: (sent: number) => void) =>
    putSources(sha256, blob, signal, onProgress),
};

export function useSources(maxBytes: number, onPacked: (archive: SourceArchive | null) => void): SourceFiles {
  // oxlint-disable-next-line react/exhaustive-deps -- one for the life of the page
  const sources = useMemo(() => new SourceFiles(maxBytes, STORE, onPacked), []);
  // At once: other effects end after the next frame, when the job could be sent already.
  useLayoutEffect(() => () => sources.close(), [sources]);
  return sources;
}
