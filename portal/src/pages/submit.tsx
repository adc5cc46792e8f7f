// Submit: a form for the common case and an editor for everything, which show the same job.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ApiError, checkJob, clusterInfo, jobConfig, jobSchema, jobTemplate, submitJob, virtualClusters } from "../api.ts";
import type { Info, JobCheck, JobTemplateSummary } from "../api_types.ts";
import { Dialog } from "../components/dialogs.tsx";
import { ErrorNotice, Loading } from "../components/notices.tsx";
import { toast } from "../components/toasts.tsx";
import type { Schema } from "../editor/completion.ts";
import { isFunctionCall, nameOf, nextName, type JobConfig } from "../editor/job_copy.ts";
import { draftOf, dropDraft, keepDraft, type Draft } from "../editor/draft.ts";
import { createEditor, type JobEditor } from "../editor/job_editor.ts";
import {
  asJson,
  asYaml,
  copyText,
  formOf,
  isJson,
  missingSecrets,
  newJob,
  versionOf,
  withChange,
  withSecrets,
  type Change,
} from "../editor/job_file.ts";
import { jobOfTemplate, missingFiles } from "../editor/job_template.ts";
import { chosenText } from "../files/chosen_text.ts";
import { saveFile } from "../files/save_file.ts";
import { listStorages } from "../files/storage.ts";
import { counted } from "../format.ts";
import { href, navigate } from "../router.ts";
import { session } from "../session.ts";
import { useSources } from "../sources/use_sources.ts";
import { theme } from "../theme.ts";
import { SubmitFields } from "./submit_form.tsx";
import { StartDialog } from "./submit_start.tsx";
import { SaveTemplate } from "./submit_templates.tsx";

const TYPING_MS = 300;
/** Larger files are no jobs. */
const MAX_FILE_BYTES = 8 << 20;

export function SubmitPage({ clone }: { clone: string }) {
  const start = useSignal<Start | null>(null);
  const error = useSignal<ApiError | null>(null);
  const load = async () => {
    try {
      const info = await clusterInfo();
      const draft = draftOf(clone);
      start.value = { info, draft, text: draft?.text ?? (clone ? await copyOfJob(clone) : firstJob(info)) };
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      error.value = problem;
    }
  };
  const startAgain = () => {
    dropDraft(clone);
    start.value = null;
    void load();
  };
  useEffect(() => {
    document.title = "Submit Job · OpenPAI";
    void load();
    // oxlint-disable-next-line react/exhaustive-deps -- another job is another page
  }, []);
  if (error.value) return <ErrorNotice error={error.value} />;
  if (!start.value) return <Loading what="the editor" />;
  return <SubmitEditor {...start.value} original={clone} onStartAgain={startAgain} />;
}

interface Start {
  readonly text: string;
  readonly info: Info;
  /** What the user left before; then the text is its text. */
  readonly draft: Draft | undefined;
}

const imageOf = ({ containers }: Info) => (containers ? "python:3.12" : "host");

function firstJob(info: Info): string {
  return newJob({ name: nextName("hello"), image: imageOf(info), command: "echo hello" });
}

async function copyOfJob(framework: string): Promise<string> {
  const config = JSON.parse(await jobConfig(framework)) as JobConfig;
  if (isFunctionCall(config)) {
    throw new ApiError(
      "This job calls a Python function, and a copy needs calls of its own.",
      0,
      "",
      `In a shell: pai resubmit ${nameOf(config)}`,
    );
  }
  return copyText(config, nextName(nameOf(config)));
}

interface EditorProps extends Start {
  /** The job that this is a copy of; empty: a new job. */
  readonly original: string;
  readonly onStartAgain: () => void;
}

function SubmitEditor({ text: first, info, draft, original, onStartAgain }: EditorProps) {
  const text = useSignal(first);
  const role = useSignal("");
  const secrets = useSignal<ReadonlyMap<string, string>>(draft?.secrets ?? new Map());
  const check = useSignal<JobCheck | null>(null);
  const error = useSignal<ApiError | null>(null);
  const isBusy = useSignal(false);
  const opened = useSignal<"json" | "start" | "template" | null>(null);
  /** What the job was started from, if that was a template. */
  const template = useSignal<JobTemplateSummary | null>(null);
  /** How often another job was started from. */
  const starts = useSignal(0);
  const page = useRef(new AbortController());
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<JobEditor | null>(null);

  const change = (to: string) => {
    text.value = to;
    view.current?.setText(to);
  };
  /** Nothing that was entered for the job before belongs to this one. */
  const startFrom = (job: string, of: JobTemplateSummary | null = null) => {
    starts.value += 1;
    template.value = of;
    role.value = "";
    secrets.value = new Map();
    change(job);
  };
  const apply = (one: Change) => change(withChange(text.value, one, role.value));
  const sources = useSources(info.maxSourcesBytes, (archive) =>
    apply({ more: "sources", value: archive && { sha256: archive.sha256, size: archive.size } }),
  );
  const form = formOf(text.value, role.value);
  // While the text cannot be read, as in the middle of typing, the form stays and rests.
  const shown = useRef(form);
  shown.current = form ?? shown.current;
  const missing = missingSecrets(text.value, secrets.value);
  const named = form?.more?.sources ?? null;
  const lacksFiles = sources.isMissing(named);

  useEffect(() => {
    if (draft?.files.length) void sources.add(draft.files);
    // oxlint-disable-next-line react/exhaustive-deps -- once: later the user chooses
  }, []);
  useEffect(() => {
    const { chosen: files } = sources;
    const isChanged = draft !== undefined || text.value !== first || files.length > 0;
    if (isChanged) keepDraft(original, { text: text.value, secrets: secrets.value, files });
    else dropDraft(original);
    // oxlint-disable-next-line react/exhaustive-deps -- the rest stays as it is for the life of the editor
  }, [text.value, secrets.value, sources.chosen]);
  useEffect(() => {
    void sources.look(named);
    // oxlint-disable-next-line react/exhaustive-deps -- files are known by their SHA-256
  }, [named?.sha256, sources.archive]);
  // At once: other effects end after the next frame.
  useLayoutEffect(() => () => page.current.abort(), []);
  useEffect(() => {
    if (!host.current) return;
    view.current = createEditor(host.current, text.value, theme.value === "dark", change);
    return () => view.current?.destroy();
    // oxlint-disable-next-line react/exhaustive-deps -- a change of the text is no reason for another editor
  }, [theme.value]);
  const version = versionOf(text.value);
  useCompletion(() => view.current, version, theme.value);

  // Checked when the typing pauses.
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => {
      void checkJob(withSecrets(text.value, secrets.value), abort.signal).then(show, () => undefined); // the submission reports it
    }, TYPING_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
    // oxlint-disable-next-line react/exhaustive-deps -- values of secrets change no problem
  }, [text.value]);
  const show = (found: JobCheck) => {
    check.value = found;
    view.current?.setProblems(found.problems);
  };

  const attempt = async (action: () => Promise<void>) => {
    error.value = null;
    try {
      await action();
    } catch (problem) {
      if (page.current.signal.aborted) return;
      if (!(problem instanceof ApiError)) throw problem;
      error.value = problem;
    }
  };
  const sendFiles = () => sources.send(() => formOf(text.value)?.more?.sources ?? null);
  const submit = () =>
    attempt(async () => {
      isBusy.value = true;
      try {
        await sendFiles();
        const unset = missingSecrets(text.value, secrets.value);
        if (unset.length) {
          const several = (formOf(text.value)?.roles.length ?? 0) > 1;
          throw new ApiError(
            `The job has secrets without a value: ${unset.join(", ")}.`,
            0,
            "",
            `Enter them under Secrets${several ? " of the task role that uses them" : ""}.`,
          );
        }
        const sent = withSecrets(text.value, secrets.value);
        const check = await checkJob(sent, page.current.signal);
        show(check);
        if (check.problems.length) return;
        const { warning } = await submitJob(sent, check.version);
        dropDraft(original);
        toast([`${check.name ?? "The job"} is submitted.`, warning].filter(Boolean).join(" "));
        if (!page.current.signal.aborted) navigate(href("/jobs"));
      } finally {
        isBusy.value = false;
      }
    });
  const readFile = async (file: File) => {
    if (file.size > MAX_FILE_BYTES) {
      toast(`${file.name} is too large for a job file.`);
      return;
    }
    const job = await chosenText(file);
    if (job !== null) startFrom(job);
  };
  const problems = check.value?.problems ?? [];

  return (
    <div class="submit-page">
      <div class="head">
        <h1>Submit Job</h1>
        <div class="actions" inert={isBusy.value}>
          <button class="button" type="button" onClick={() => (opened.value = "start")}>
            Start from …
          </button>
          <button class="button" type="button" onClick={() => (opened.value = "json")}>
            JSON
          </button>
          <button class="button" type="button" disabled={version === 1} onClick={() => (opened.value = "template")}>
            Save as template
          </button>
          <button class="button" type="button" onClick={() => save(text.value, form?.basics.name ?? "")}>
            Export
          </button>
        </div>
      </div>
      {draft && (
        <p class="notice">
          You changed this job and did not submit it.{" "}
          <button class="link" type="button" onClick={onStartAgain}>
            Start again
          </button>
        </p>
      )}
      <div class="submit" inert={isBusy.value}>
        <div class="card padded submit-form">
          {!form && <p class="notice wait">The form follows as soon as the job file can be read.</p>}
          {shown.current && (
            <div inert={!form}>
              <SubmitFields
                key={starts.value}
                form={shown.current}
                info={info}
                sources={sources}
                secretValues={secrets.value}
                onRole={(to) => (role.value = to)}
                onChange={apply}
                onSecrets={(values) => (secrets.value = values)}
              />
            </div>
          )}
        </div>
        <div class="card editor-card">
          <div class="editor-head">
            <strong>Job file</strong>
            {version === 2 && (
              <button class="link" type="button" onClick={() => change(isJson(text.value) ? asYaml(text.value) : asJson(text.value))}>
                {isJson(text.value) ? "Show as YAML" : "Show as JSON"}
              </button>
            )}
          </div>
          <div class="editor" ref={host} />
        </div>
      </div>
      <div class="submit-bar">
        {error.value && <ErrorNotice error={error.value} />}
        {problems.length > 0 && (
          <div class="notice bad" role="alert">
            <ul class="problems">
              {problems.map((problem) => (
                <li key={`${problem.line} ${problem.column} ${problem.message}`}>
                  {problem.line > 0 && (
                    <button class="link" type="button" onClick={() => view.current?.showProblem(problem)}>
                      Line {problem.line}
                    </button>
                  )}{" "}
                  {problem.key && <code>{problem.key}</code>} {problem.message}
                </li>
              ))}
            </ul>
          </div>
        )}
        {problems.length === 0 && check.value !== null && check.value.warnings.length > 0 && (
          <div class="notice wait" role="status">
            <ul class="problems">
              {check.value.warnings.map((warning) => (
                <li key={warning}>{warning}</li>
              ))}
            </ul>
          </div>
        )}
        {lacksFiles && (
          <p class="notice wait" role="status">
            {missingFiles(template.value, session.value?.user ?? "")}
          </p>
        )}
        <div class="submit-line">
          <Verdict check={check.value} missing={missing} lacksFiles={lacksFiles} />
          <button class="button primary" type="button" disabled={isBusy.value} onClick={() => void submit()}>
            {isBusy.value ? "Submitting …" : "Submit"}
          </button>
        </div>
      </div>
      {opened.value === "json" && <JsonDialog text={asJson(text.value)} onSave={change} onClose={() => (opened.value = null)} />}
      {opened.value === "template" && (
        <SaveTemplate
          stored={async () => {
            await sendFiles();
            return text.value;
          }}
          name={form?.basics.name.replace(/_[a-z0-9]{6}$/, "") ?? ""}
          started={template.value}
          onClose={() => (opened.value = null)}
        />
      )}
      {opened.value === "start" && (
        <StartDialog
          onExample={(example) => {
            const made = example.text(imageOf(info));
            startFrom(withChange(made, { basic: "name", value: nextName(example.name) }));
          }}
          onTemplate={(one) => void attempt(async () => startFrom(jobOfTemplate((await jobTemplate(one)).protocol), one))}
          onJob={(framework) => void attempt(async () => startFrom(await copyOfJob(framework)))}
          onFile={(file) => void readFile(file)}
          onClose={() => (opened.value = null)}
        />
      )}
    </div>
  );
}

/** Give the editor the schema of the job's version, and the names that only the cluster knows. */
function useCompletion(editor: () => JobEditor | null, version: 1 | 2, look: string): void {
  useEffect(() => {
    let isGone = false;
    const schema = jobSchema(version === 1 ? "v1" : "v2");
    const names = Promise.all([virtualClusters(), listStorages()]);
    void Promise.all([schema, names]).then(
      ([found, [clusters, storages]]) => {
        if (isGone) return;
        const byPath: Readonly<Record<string, readonly string[]>> = {
          "defaults.virtualCluster": Object.keys(clusters),
          virtualCluster: Object.keys(clusters),
          "extras.storages.*.name": storages.map((storage) => storage.name),
        };
        editor()?.setSchema(found as Schema, (path) => byPath[path.join(".")] ?? []);
      },
      // Without it, the editor completes nothing; everything else works.
      () => undefined,
    );
    return () => {
      isGone = true;
    };
    // oxlint-disable-next-line react/exhaustive-deps -- `editor` is a new function in each render; with the look there is another editor
  }, [version, look]);
}

/** Let the browser save the job file. Secrets of the form are not in it. */
function save(text: string, name: string): void {
  saveFile(text, `${name || "job"}.${isJson(text) ? "json" : "yaml"}`);
}

function Verdict({ check, missing, lacksFiles }: { check: JobCheck | null; missing: readonly string[]; lacksFiles: boolean }) {
  if (!check) return <span class="quiet">Checking …</span>;
  if (check.problems.length) return <span class="bad-text">{counted(check.problems.length, "problem")}</span>;
  if (missing.length) return <span class="quiet">Enter the value of {missing.join(", ")}</span>;
  if (lacksFiles) return <span class="quiet">Add the files of the job, or remove them</span>;
  return <span class="quiet">Valid, protocol version {check.version}</span>;
}

/** Browsers put the cursor behind a text, and scroll to it. */
const showBeginning = (field: HTMLTextAreaElement | null) => field?.setSelectionRange(0, 0);

function JsonDialog(props: { text: string; onSave: (text: string) => void; onClose: () => void }) {
  const text = useSignal(props.text);
  return (
    <Dialog title="Job as JSON" isWide onClose={props.onClose}>
      <textarea
        class="json"
        ref={showBeginning}
        rows={18}
        spellcheck={false}
        aria-label="Job as JSON"
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
      />
      <div class="dialog-actions">
        <button class="button" type="button" onClick={props.onClose}>
          Cancel
        </button>
        <button
          class="button primary"
          type="button"
          onClick={() => {
            props.onSave(text.value);
            props.onClose();
          }}
        >
          Save
        </button>
      </div>
    </Dialog>
  );
}
