// Outputs of a job: what its tasks left on the storage.
import { useSignal } from "@preact/signals";
import { jobConfig } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { ApiError } from "../api_error.ts";
import { attempt } from "../components/forms.tsx";
import { Empty, ErrorNotice, Loading } from "../components/notices.tsx";
import { FileTable } from "../files/file_table.tsx";
import { namedOutputFolder, outputFolder } from "../files/job_folder.ts";
import { parseOrder } from "../files/listing.ts";
import { join } from "../files/paths.ts";
import { download, listFolder, listStorages, ownStorage } from "../files/storage.ts";
import { isFinished } from "../format.ts";
import { usePolled } from "../live.ts";
import { filesHref } from "../router.ts";

const REFRESH_MS = 5000;
const FINISHED_REFRESH_MS = 60_000;

export function JobOutputs({ framework, job }: { framework: string; job: JobDetail }) {
  const order = useSignal("");
  const hasEnded = isFinished(job.jobStatus.state);
  const { error, value } = usePolled(
    `outputs ${framework} ${hasEnded}`,
    (signal) => load(framework, job, signal),
    hasEnded ? FINISHED_REFRESH_MS : REFRESH_MS,
  );
  if (error?.status === 404 || value?.entries.length === 0) {
    return (
      <div class="card">
        <Empty title={hasEnded ? "The job left no files" : "No files yet"}>
          <p>
            What a task writes to <code>$PAI_OUTPUT_DIR</code>, or the job names under <code>outputs</code>, appears here when the task
            ends.
          </p>
        </Empty>
      </div>
    );
  }
  if (error) return <ErrorNotice error={error} />;
  if (!value) return <Loading what="the outputs" />;
  const { folder, storage, entries } = value;
  return (
    <>
      <div class="file-head">
        <code class="quiet">{folder}</code>
        <a class="button" href={filesHref(storage, folder)}>
          Open in Files
        </a>
      </div>
      <FileTable
        entries={entries}
        order={parseOrder(order.value)}
        onOrder={(changed) => (order.value = changed ?? "")}
        linkOf={(entry) => filesHref(storage, join(folder, entry.name))}
        onDownload={({ name, isFolder }) => void attempt(() => download(join(folder, name), name, isFolder))}
      />
    </>
  );
}

async function load(framework: string, job: JobDetail, signal: AbortSignal) {
  const [config, storages, own] = await Promise.all([jobConfig(framework, signal), listStorages(signal), ownStorage(signal)]);
  const storage = storages.find((storage) => storage.data.url === own.url)?.name ?? "home";
  const { username } = job.jobStatus;
  const named = namedOutputFolder(config, username, job.name, location.host);
  if (named) {
    // What a task put there itself; without it, the folder that every job has.
    const entries = await entriesOf(named, signal);
    if (entries.length) return { folder: named, storage, entries };
  }
  const folder = outputFolder(config, username, job.name);
  return { folder, storage, entries: (await listFolder(folder, signal)).entries };
}

/** Entries of a folder; none if there is no such folder. */
async function entriesOf(folder: string, signal: AbortSignal) {
  try {
    return (await listFolder(folder, signal)).entries;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return [];
    throw error;
  }
}
