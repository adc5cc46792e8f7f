// Choice of the files that travel with a job: by picker or drag and drop, files and folders.
import { useSignal } from "@preact/signals";
import { Bar } from "../components/bar.tsx";
import type { SourcesReference } from "../editor/job_file.ts";
import { droppedFiles } from "../files/dropped.ts";
import type { NewFile } from "../files/upload.ts";
import { counted, fileSize } from "../format.ts";
import type { SourceFiles } from "./source_files.ts";

/** More files than these are counted, not listed. */
const LISTED = 8;

interface Props {
  readonly sources: SourceFiles;
  /** What the job names. */
  readonly named: SourcesReference | null;
  readonly onName: (sources: SourcesReference | null) => void;
}

export function SourcesField({ sources, named, onName }: Props) {
  const isOver = useSignal(false);
  const { files, archive, progress } = sources;
  const add = (chosen: readonly NewFile[]) => void sources.add(chosen);
  const drop = (event: DragEvent) => {
    event.preventDefault();
    isOver.value = false;
    if (event.dataTransfer) void sources.add(droppedFiles(event.dataTransfer.items, ""));
  };
  const isPacked = files.length === 0 || archive !== null;
  const isOther = named !== null && isPacked && named.sha256 !== archive?.sha256 && !progress;
  return (
    <div
      class={`drop-zone ${isOver.value ? "over" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        isOver.value = true;
      }}
      onDragLeave={() => (isOver.value = false)}
      onDrop={drop}
    >
      <div class="drop-head">
        <p class="quiet">Drop files or a folder here. They are in the job's working directory.</p>
        <div class="actions">
          <Picker label="Add files" onChoose={add} />
          <Picker label="Add a folder" isFolder onChoose={add} />
        </div>
      </div>
      {isOther && <EarlierSources named={named} isMissing={sources.isMissing(named)} onRemove={() => onName(null)} />}
      {files.length > 0 && <Chosen sources={sources} />}
      {files.length > 0 && archive && !progress && named === null && (
        <p class="field-problem">
          The job file does not name these files.{" "}
          <button class="link" type="button" onClick={() => onName({ sha256: archive.sha256, size: archive.size })}>
            Send them with the job
          </button>
        </p>
      )}
      {progress && (
        <div class="drop-progress" role="status">
          <Bar used={Math.round(progress.share * 100)} total={100} label={`${progress.word} the files`} />
          <span class="quiet">
            {progress.word} {Math.round(progress.share * 100)} %
          </span>
        </div>
      )}
      {sources.problem && (
        <p class="field-problem" role="alert">
          {sources.problem}{" "}
          <button class="link" type="button" onClick={() => sources.dismissProblem()}>
            Dismiss
          </button>
        </p>
      )}
    </div>
  );
}

function Picker({
  label,
  isFolder = false,
  onChoose,
}: {
  label: string;
  isFolder?: boolean;
  onChoose: (files: readonly NewFile[]) => void;
}) {
  const choose = (event: Event) => {
    const field = event.currentTarget as HTMLInputElement;
    const files = [...(field.files ?? [])].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
    // The same files may be chosen again, after a change.
    field.value = "";
    onChoose(files);
  };
  return (
    <label class="button small">
      {label}
      <input
        class="sr"
        type="file"
        name={isFolder ? "folder" : "files"}
        multiple
        ref={(field) => {
          if (field) field.webkitdirectory = isFolder;
        }}
        onChange={choose}
      />
    </label>
  );
}

function Chosen({ sources }: { sources: SourceFiles }) {
  const { files, ignored } = sources;
  const size = files.reduce((sum, { file }) => sum + file.size, 0);
  return (
    <>
      <ul class="chosen" aria-label="Files of the job">
        {files.slice(0, LISTED).map((chosen) => (
          <li key={chosen.path}>
            <code>{chosen.path}</code>
            <span class="quiet">{fileSize(chosen.file.size)}</span>
            <button class="link" type="button" aria-label={`Remove ${chosen.path}`} onClick={() => sources.remove(chosen)}>
              ×
            </button>
          </li>
        ))}
      </ul>
      <p class="quiet">
        {files.length > LISTED && `and ${files.length - LISTED} more; `}
        {counted(files.length, "file")}, {fileSize(size)}
        {ignored > 0 && `; ${ignored} left out by ignore files or as caches`}.{" "}
        <button class="link" type="button" onClick={() => sources.clear()}>
          Remove all
        </button>
      </p>
    </>
  );
}

/** Files of the job or template that this one is a copy of. */
function EarlierSources({ named, isMissing, onRemove }: { named: SourcesReference; isMissing: boolean; onRemove: () => void }) {
  const remove = (
    <button class="link" type="button" onClick={onRemove}>
      Remove
    </button>
  );
  return isMissing ? (
    <p class="field-problem">The files that this job names are missing. Files that you add replace them. {remove}</p>
  ) : (
    <p class="quiet">
      The files of the earlier job, {fileSize(named.size)}. Files that you add replace them. {remove}
    </p>
  );
}
