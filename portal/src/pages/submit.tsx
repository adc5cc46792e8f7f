// Submit: a form for the common case and an editor for everything, which show the same job.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, checkJob, clusterInfo, jobConfig, submitJob, virtualClusters, type JobCheck } from "../api.ts";
import { Dialog, ErrorNotice, Loading, toast } from "../components/parts.tsx";
import type { JobEditor } from "../editor/job_editor.ts";
import type { FieldName, JobFields } from "../editor/job_file.ts";
import { usePolled } from "../live.ts";
import { href, navigate } from "../router.ts";
import { theme } from "../theme.ts";

type Editor = typeof import("../editor/job_editor.ts");
type Files = typeof import("../editor/job_file.ts");

const TYPING_MS = 300;
const CLUSTERS_REFRESH_MS = 60_000;
/** Larger files are no jobs. */
const MAX_FILE_BYTES = 8 << 20;

export function SubmitPage({ clone }: { clone: string }) {
  const start = useSignal<{ text: string; editor: Editor; files: Files } | null>(null);
  const error = useSignal<ApiError | null>(null);
  useEffect(() => {
    document.title = "Submit Job · OpenPAI";
    void (async () => {
      try {
        const [editor, files] = await Promise.all([
          import("../editor/job_editor.ts"),
          import("../editor/job_file.ts"),
        ]);
        start.value = { text: await initialText(files, clone), editor, files };
      } catch (problem) {
        error.value =
          problem instanceof ApiError ? problem : new ApiError("The editor cannot be loaded.", 0, "", "Reload the page.");
      }
    })();
  }, []);
  if (error.value) return <ErrorNotice error={error.value} />;
  if (!start.value) return <Loading what="the editor" />;
  return <SubmitForm {...start.value} />;
}

async function initialText(files: Files, clone: string): Promise<string> {
  if (clone) {
    const name = clone.slice(clone.indexOf("~") + 1).replace(/_[a-z0-9]{6}$/, "");
    return files.cloneOf(await jobConfig(clone), unused(name));
  }
  const { containers } = await clusterInfo();
  return files.newJob(unused("hello"), containers ? "python:3.12" : "host", "echo hello");
}

/** A name that no other job has. */
function unused(name: string): string {
  const random = crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
  return `${name}_${random.toString(36).padStart(6, "0").slice(-6)}`;
}

function SubmitForm({ text: first, editor, files }: { text: string; editor: Editor; files: Files }) {
  const text = useSignal(first);
  const fields = useSignal<JobFields | null>(files.fieldsOf(first));
  const check = useSignal<JobCheck | null>(null);
  const error = useSignal<ApiError | null>(null);
  const isBusy = useSignal(false);
  const isJsonOpen = useSignal(false);
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<JobEditor | null>(null);

  const change = (to: string) => {
    text.value = to;
    fields.value = files.fieldsOf(to);
    view.current?.setText(to);
  };
  useEffect(() => {
    if (!host.current) return;
    view.current = editor.createEditor(host.current, text.value, theme.value === "dark", change);
    return () => view.current?.destroy();
  }, [theme.value]);

  // Checked when the typing pauses.
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => {
      void checkJob(text.value, abort.signal).then(
        (found) => {
          check.value = found;
          view.current?.setProblems(found.problems);
        },
        () => undefined, // the next change, or the submission, reports it
      );
    }, TYPING_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text.value]);

  const submit = async () => {
    isBusy.value = true;
    error.value = null;
    try {
      const found = await checkJob(text.value, new AbortController().signal);
      check.value = found;
      view.current?.setProblems(found.problems);
      if (found.problems.length) return;
      const { warning } = await submitJob(text.value, found.version);
      toast([`${found.name ?? "The job"} is submitted.`, warning].filter(Boolean).join(" "));
      navigate(href("/jobs"));
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      error.value = problem;
    } finally {
      isBusy.value = false;
    }
  };
  const readFile = async (file: File | undefined) => {
    if (!file) return;
    if (file.size > MAX_FILE_BYTES) toast(`${file.name} is too large for a job file.`);
    else change(await file.text());
  };

  return (
    <>
      <div class="head">
        <h1>Submit Job</h1>
        <div class="actions">
          <label class="button">
            Open a file
            <input
              class="sr"
              type="file"
              accept=".yaml,.yml,.json"
              onChange={(event) => void readFile(event.currentTarget.files?.[0])}
            />
          </label>
          <button class="button" type="button" onClick={() => (isJsonOpen.value = true)}>
            JSON
          </button>
          <button class="button primary" type="button" disabled={isBusy.value} onClick={() => void submit()}>
            {isBusy.value ? "Submitting …" : "Submit"}
          </button>
        </div>
      </div>
      <div class="stack">
        {error.value && <ErrorNotice error={error.value} />}
        <div class="submit">
          <div class="card padded">
            {fields.value ? (
              <Fields
                fields={fields.value}
                onChange={(name, value) => change(files.withField(text.value, name, value))}
              />
            ) : (
              <p class="quiet">
                {check.value?.version === 1
                  ? "This is a job of protocol version 1. Edit it as text."
                  : "The form shows jobs with one task role. Edit this one as text."}
              </p>
            )}
          </div>
          <div class="card">
            <div class="editor-head">
              <strong>Job file</strong>
              <Verdict check={check.value} />
            </div>
            <div class="editor" ref={host} />
          </div>
        </div>
        {check.value && check.value.problems.length > 0 && (
          <div class="notice bad" role="alert">
            <ul class="problems">
              {check.value.problems.map((problem) => (
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
      </div>
      {isJsonOpen.value && (
        <JsonDialog
          text={files.asJson(text.value)}
          onSave={change}
          onClose={() => (isJsonOpen.value = false)}
        />
      )}
    </>
  );
}

function Verdict({ check }: { check: JobCheck | null }) {
  if (!check) return <span class="quiet">Checking …</span>;
  const count = check.problems.length;
  return <span class="quiet">{count ? `${count} ${count === 1 ? "problem" : "problems"}` : "Valid"}</span>;
}

function JsonDialog(props: { text: string; onSave: (text: string) => void; onClose: () => void }) {
  const text = useSignal(props.text);
  return (
    <Dialog title="Job as JSON" isWide onClose={props.onClose}>
      <textarea
        class="json"
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

// -- form ------------------------------------------------------------------------------------------

interface FieldsProps {
  readonly fields: JobFields;
  readonly onChange: (name: FieldName, value: string) => void;
}

function Fields({ fields, onChange }: FieldsProps) {
  const clusters = usePolled("clusters", virtualClusters, CLUSTERS_REFRESH_MS).value;
  const names = new Set([...Object.keys(clusters ?? {}), ...(fields.virtualCluster ? [fields.virtualCluster] : [])]);
  const on = (name: FieldName) => (event: Event) =>
    onChange(name, (event.currentTarget as HTMLInputElement).value);
  const number = (name: FieldName, label: string, min: number) => (
    <label>
      <span>{label}</span>
      <input type="number" name={name} min={min} value={fields[name]} onChange={on(name)} />
    </label>
  );
  return (
    <div class="form">
      <label>
        <span>Name</span>
        <input name="name" value={fields.name} onInput={on("name")} />
      </label>
      <label>
        <span>Command</span>
        <textarea name="command" rows={4} spellcheck={false} value={fields.command} onInput={on("command")} />
      </label>
      <label>
        <span>Image</span>
        <input name="image" value={fields.image} onInput={on("image")} />
      </label>
      <div class="field-row">
        {number("gpu", "GPUs", 0)}
        {number("cpu", "CPUs", 1)}
        {number("memoryMB", "Memory (MB)", 1)}
        {number("instances", "Tasks", 1)}
      </div>
      <label>
        <span>Virtual cluster</span>
        <select name="virtualCluster" value={fields.virtualCluster} onChange={on("virtualCluster")}>
          <option value="">default of the cluster</option>
          {[...names].map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}
