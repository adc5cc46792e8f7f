// Files that travel with a job: chosen, packed while the user goes on, sent with the submission.
import { computed, signal } from "@preact/signals";
import { ApiError } from "../api_error.ts";
import type { SourcesReference } from "../editor/job_file.ts";
import type { NewFile } from "../files/upload.ts";
import { fileSize } from "../format.ts";
import { packed, type SourceArchive } from "./archive.ts";
import { sourcesOf, withoutCommonFolder } from "./selection.ts";

/** As `pai sub`: more are a data set, not the sources of a job. */
const MAX_FILES = 20_000;

/** Archives on the cluster. */
export interface ArchiveStore {
  readonly has: (sha256: string) => Promise<boolean>;
  readonly put: (archive: SourceArchive, signal: AbortSignal, onProgress: (sent: number) => void) => Promise<void>;
}

/** Share of the files that is read or sent. */
interface Progress {
  readonly word: "Reading" | "Uploading";
  readonly share: number;
}

export class SourceFiles {
  /** With the paths under which they were chosen. */
  readonly #chosen = signal<readonly NewFile[]>([]);
  readonly #files = computed(() => withoutCommonFolder(this.#chosen.value));
  readonly #ignored = signal<ReadonlySet<string>>(new Set());
  /** Of all chosen files; null while they are read. */
  readonly #archive = signal<SourceArchive | null>(null);
  readonly #progress = signal<Progress | null>(null);
  readonly #problem = signal("");
  /** SHA-256 of files that the cluster does not have for this user. */
  readonly #absent = signal("");
  readonly #page = new AbortController();
  #packing = new AbortController();
  /** All choices and packings until now; none is rejected. */
  #work: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly maxBytes: number,
    private readonly store: ArchiveStore,
    private readonly onPacked: (archive: SourceArchive | null) => void,
  ) {}

  get chosen(): readonly NewFile[] {
    return this.#chosen.value;
  }

  /** With their paths in the job's working directory. */
  get files(): readonly NewFile[] {
    return this.#files.value;
  }

  /** How many files ignore files exclude. */
  get ignored(): number {
    return this.#ignored.value.size;
  }

  get archive(): SourceArchive | null {
    return this.#archive.value;
  }

  /** Null when nothing goes on. */
  get progress(): Progress | null {
    return this.#progress.value;
  }

  get problem(): string {
    return this.#problem.value;
  }

  /** Look whether the cluster has what the job names, unless that is what was chosen here. */
  async look(named: SourcesReference | null): Promise<void> {
    if (!named || named.sha256 === this.#archive.value?.sha256) return;
    try {
      const isThere = await this.store.has(named.sha256);
      if (!isThere) this.#absent.value = named.sha256;
      else if (this.#absent.value === named.sha256) this.#absent.value = "";
    } catch {
      // What cannot be asked now is reported by the submission.
    }
  }

  /** Whether the job names files that are neither chosen here nor on the cluster for this user, as `look` found. */
  isMissing(named: SourcesReference | null): boolean {
    return named !== null && named.sha256 === this.#absent.value && named.sha256 !== this.#archive.value?.sha256 && !this.#progress.value;
  }

  /** Add files; whether they are accepted. Dropped ones are still to be found in their folders. */
  add(chosen: readonly NewFile[] | Promise<readonly NewFile[]>): Promise<boolean> {
    const adding = this.#add(chosen);
    this.#await(adding);
    return adding;
  }

  remove({ file }: NewFile): void {
    this.#replace(this.#chosen.value.filter((chosen) => chosen.file !== file));
  }

  clear(): void {
    this.#ignored.value = new Set();
    this.#replace([]);
  }

  /** Go on with the files that were accepted. */
  dismissProblem(): void {
    this.#problem.value = "";
  }

  /**
   * Wait for the packing; then send the archive if the job names it by then, and the cluster does not have it.
   * Rejected with the signal's reason when the page is left.
   */
  async send(named: () => SourcesReference | null): Promise<void> {
    await this.#settled();
    this.#page.signal.throwIfAborted();
    if (this.#problem.value) throw new ApiError(this.#problem.value, 0, "", "Change the files of the job, or dismiss the message there.");
    const made = this.#archive.value;
    if (!made && this.#chosen.value.length) {
      throw new ApiError("The files of the job are not packed.", 0, "", "Remove them, and choose them again.");
    }
    if (!made || named()?.sha256 !== made.sha256) return;
    const isThere = await this.store.has(made.sha256);
    this.#page.signal.throwIfAborted();
    if (isThere) return;
    this.#progress.value = { word: "Uploading", share: 0 };
    try {
      await this.store.put(made, this.#page.signal, (sent) => {
        this.#progress.value = { word: "Uploading", share: sent / made.size };
      });
    } finally {
      this.#progress.value = null;
    }
  }

  /** The page is left. */
  close(): void {
    this.#packing.abort();
    this.#page.abort();
  }

  #await(work: Promise<unknown>): void {
    this.#work = Promise.all([this.#work, work]);
  }

  /** Wait for the work that goes on, and for what it or the user starts meanwhile. */
  async #settled(): Promise<void> {
    let seen: Promise<unknown> | null = null;
    while (seen !== this.#work) {
      seen = this.#work;
      await seen;
    }
  }

  async #add(chosen: readonly NewFile[] | Promise<readonly NewFile[]>): Promise<boolean> {
    try {
      const { files, ignored } = await sourcesOf(await chosen);
      const isAccepted = this.#replace(merged(this.#chosen.value, files, new Set(ignored)));
      if (isAccepted) this.#ignored.value = new Set([...this.#ignored.value, ...ignored]);
      return isAccepted;
    } catch {
      this.#problem.value = "A file or folder cannot be read, so nothing was added: choose the files again.";
      return false;
    }
  }

  /** Whether the job may have these files. */
  #replace(chosen: readonly NewFile[]): boolean {
    this.#problem.value = this.#refusal(chosen);
    if (this.#problem.value || this.#page.signal.aborted) return false;
    this.#packing.abort();
    this.#packing = new AbortController();
    this.#chosen.value = chosen;
    this.#archive.value = null;
    this.#await(this.#pack(this.#packing.signal));
    return true;
  }

  #refusal(chosen: readonly NewFile[]): string {
    const size = chosen.reduce((sum, { file }) => sum + file.size, 0);
    if (chosen.length > MAX_FILES) {
      return `These are more than ${MAX_FILES.toLocaleString("en")} files. Leave some out with a .paiignore file, or pack them into one.`;
    }
    if (size > this.maxBytes) {
      return `These files have ${fileSize(size)}; a job may bring ${fileSize(this.maxBytes)}. Put large data on a storage (Files), and choose the storage below.`;
    }
    return "";
  }

  /** Pack the chosen files; nothing is changed after `signal` is aborted. */
  async #pack(signal: AbortSignal): Promise<void> {
    const { files } = this;
    this.#progress.value = { word: "Reading", share: 0 };
    try {
      const made = files.length ? await packed(files, signal, (share) => (this.#progress.value = { word: "Reading", share })) : null;
      if (signal.aborted) return;
      this.#archive.value = made;
      this.onPacked(made);
    } catch {
      if (signal.aborted) return;
      this.#problem.value = "A file cannot be read any more: remove it, or choose the files again.";
    }
    this.#progress.value = null;
  }
}

/** Files of both choices; one that was chosen again replaces the earlier one. */
function merged(before: readonly NewFile[], added: readonly NewFile[], ignored: ReadonlySet<string>): NewFile[] {
  const kept = before.filter(({ path }) => !ignored.has(path));
  const byPath = new Map([...kept, ...added].map((one) => [one.path, one]));
  return [...byPath.values()].sort((one, other) => (one.path < other.path ? -1 : 1));
}
