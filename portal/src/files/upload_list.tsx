// What is being uploaded, and what failed.
import { Bar } from "../components/bar.tsx";
import { counted, fileSize } from "../format.ts";
import { baseName } from "./paths.ts";
import { dropUploads, isUploading, retryUpload, uploads, type Upload } from "./upload.ts";

/** More files than these are counted, not listed. */
const MAX_LISTED = 8;

export function UploadList() {
  const all = uploads.value;
  if (!all.length) return null;
  const done = all.filter((upload) => upload.state === "done").length;
  const failed = all.filter((upload) => upload.state === "failed");
  const listed = [...failed, ...all.filter((upload) => upload.state === "active"), ...all.filter((upload) => upload.state === "waiting")];
  const rows = listed.slice(0, MAX_LISTED);
  const more = listed.length - Math.min(listed.length, MAX_LISTED);
  return (
    <section class="card padded uploads" aria-labelledby="uploads">
      <div class="uploads-head">
        <h2 id="uploads">Uploads</h2>
        <span class="quiet" role="status">
          {isUploading.value ? `${done} of ${counted(all.length, "file")} done` : `${counted(all.length, "file")} failed`}
        </span>
        <button class="button" type="button" onClick={() => dropUploads(all)}>
          {isUploading.value ? "Cancel all" : "Close"}
        </button>
      </div>
      <ul class="rows">
        {rows.map((upload) => (
          <Row key={upload.id} upload={upload} />
        ))}
      </ul>
      {more > 0 && <p class="quiet">{counted(more, "more file")}</p>}
    </section>
  );
}

function Row({ upload }: { upload: Upload }) {
  const { id, file, path, state, sent, problem } = upload;
  const name = baseName(path);
  return (
    <li>
      <span class="upload-name">{name}</span>
      <span class="quiet">{`${fileSize(sent)} of ${fileSize(file.size)}`}</span>
      {state === "failed" && (
        <button class="link" type="button" aria-label={`Try ${name} again`} onClick={() => retryUpload(id)}>
          Try again
        </button>
      )}
      <button class="link" type="button" aria-label={`Cancel ${name}`} onClick={() => dropUploads([upload])}>
        {state === "failed" ? "Close" : "Cancel"}
      </button>
      {state !== "failed" && (
        <div class="whole">
          <Bar used={sent} total={file.size || 1} label={`Upload of ${name}`} />
        </div>
      )}
      {problem && <span class={state === "failed" ? "whole bad-text" : "whole quiet"}>{problem}</span>}
    </li>
  );
}
