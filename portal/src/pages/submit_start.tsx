// What a job can start from: an example, a template, an earlier job, a file.
import { useSignal } from "@preact/signals";
import { listJobs } from "../api.ts";
import type { JobTemplateSummary } from "../api_types.ts";
import { Dialog } from "../components/dialogs.tsx";
import { ErrorNotice, Loading, State } from "../components/notices.tsx";
import { EXAMPLES, type Example } from "../editor/examples.ts";
import { shortTime } from "../format.ts";
import { usePolled } from "../live.ts";
import { session } from "../session.ts";
import { TemplateList } from "./submit_templates.tsx";

const JOBS_SHOWN = 8;
const REFRESH_MS = 30_000;

interface Props {
  readonly onExample: (example: Example) => void;
  readonly onTemplate: (template: JobTemplateSummary) => void;
  readonly onJob: (framework: string) => void;
  readonly onFile: (file: File) => void;
  readonly onClose: () => void;
}

export function StartDialog({ onExample, onTemplate, onJob, onFile, onClose }: Props) {
  const pick = (action: () => void) => () => {
    action();
    onClose();
  };
  return (
    <Dialog title="Start from" isWide onClose={onClose}>
      <div class="start">
        <section aria-label="An example">
          <h3>An example</h3>
          <ul class="examples">
            {EXAMPLES.map((example) => (
              <li class="example" key={example.name}>
                <button type="button" onClick={pick(() => onExample(example))}>
                  {example.title}
                </button>
                <span class="quiet">{example.about}</span>
              </li>
            ))}
          </ul>
        </section>
        <section aria-label="A template">
          <h3>A template</h3>
          <TemplateList onTemplate={(template) => pick(() => onTemplate(template))()} />
        </section>
        <section aria-label="An earlier job">
          <h3>An earlier job</h3>
          <EarlierJobs onJob={(framework) => pick(() => onJob(framework))()} />
        </section>
        <section aria-label="A file">
          <h3>A file</h3>
          <div class="notebook-choice">
            <label class="button">
              Open a file
              <input
                class="sr"
                type="file"
                name="jobFile"
                accept=".yaml,.yml,.json"
                onChange={(event) => {
                  const file = event.currentTarget.files?.[0];
                  if (file) pick(() => onFile(file))();
                }}
              />
            </label>
            <span class="quiet">YAML or JSON, protocol version 1 or 2.</span>
          </div>
        </section>
      </div>
      <div class="dialog-actions">
        <button class="button" type="button" onClick={onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}

function EarlierJobs({ onJob }: { onJob: (framework: string) => void }) {
  const keyword = useSignal("");
  const query = new URLSearchParams({
    username: session.value?.user ?? "",
    keyword: keyword.value,
    limit: String(JOBS_SHOWN),
    order: "submissionTime,DESC",
    withTotalCount: "true",
  });
  const jobs = usePolled(query.toString(), (signal) => listJobs(query, signal), REFRESH_MS);
  const now = Date.now();
  return (
    <>
      <input
        type="search"
        aria-label="Find a job of yours"
        placeholder="Find a job of yours"
        value={keyword.value}
        onInput={(event) => (keyword.value = event.currentTarget.value)}
      />
      {jobs.error && <ErrorNotice error={jobs.error} />}
      {!jobs.value && !jobs.error && <Loading what="your jobs" />}
      {jobs.value?.data.length === 0 && (
        <p class="quiet">{keyword.value ? "No job of yours has this name." : "You have submitted no job yet."}</p>
      )}
      <ul class="rows earlier">
        {jobs.value?.data.map((job) => (
          <li key={job.name}>
            <button class="link" type="button" onClick={() => onJob(`${job.username}~${job.name}`)}>
              {job.name}
            </button>
            <span class="earlier-state">
              <State state={job.state} />
              <span class="quiet">{shortTime(job.submissionTime, now)}</span>
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}
