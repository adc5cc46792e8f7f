// An action on the selected jobs: what it will do, its progress, and what became of each job.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ApiError, changeTag, deleteFinishedJob, jobConfig, stopJob, submitJob } from "../api.ts";
import type { JobSummary } from "../api_types.ts";
import { Dialog } from "../components/dialogs.tsx";
import { textOf } from "../components/form_dialog.tsx";
import { toast } from "../components/toasts.tsx";
import { copyOf, isFunctionCall, nextName, secretsOf, type JobConfig } from "../editor/job_copy.ts";
import { counted, grouped, isFinished } from "../format.ts";
import { jobHref } from "../router.ts";
import { session } from "../session.ts";
import { countOutcomes, forEachJob, NothingToDo, type Action, type Outcome } from "./bulk.ts";

export type BulkKind = "stop" | "delete" | "tag" | "resubmit";

/** States by the full names of the jobs, as last seen; undefined: not seen. */
export type SelectedJobs = ReadonlyMap<string, JobSummary["state"] | undefined>;

export interface BulkProps {
  readonly kind: BulkKind;
  readonly jobs: SelectedJobs;
  /** Tags to choose from. */
  readonly tags: readonly string[];
  /** After each run, with what became of the jobs. */
  readonly onDone: (kind: BulkKind, outcomes: readonly Outcome[]) => void;
  readonly onClose: () => void;
}

interface Words {
  readonly action: string;
  readonly done: string;
  readonly text: string;
  /** Of selected jobs to which the action does not apply. */
  readonly skipped: string;
}

const WORDS: Readonly<Record<BulkKind, Words>> = {
  stop: {
    action: "Stop",
    done: "stopped",
    text: "Their tasks end, and a stopped job does not continue. Logs and outputs stay.",
    skipped: "already finished",
  },
  delete: {
    action: "Delete",
    done: "deleted",
    text: "Their logs and metrics are deleted with them, and cannot be restored. Their outputs on the storage stay.",
    skipped: "not finished yet (only ended jobs can be deleted)",
  },
  tag: { action: "Tag", done: "changed", text: "", skipped: "" },
  resubmit: {
    action: "Resubmit",
    done: "resubmitted",
    text: "Each copy has the files, the commands, the resources and the parameters of its job, and a name with another ending.",
    skipped: "not finished yet",
  },
};

/** Shown at once; the rest of the outcomes follows. */
const MAX_LISTED = 200;

export function appliesTo(kind: BulkKind, state: JobSummary["state"] | undefined): boolean {
  if (kind === "tag" || state === undefined) return true;
  return isFinished(state) !== (kind === "stop");
}

type Phase =
  | { readonly name: "asking" }
  | { readonly name: "running"; readonly done: number; readonly all: number }
  | { readonly name: "ended"; readonly outcomes: readonly Outcome[]; readonly retry: Action };

export function BulkDialog({ kind, jobs, tags, onDone, onClose }: BulkProps) {
  const words = WORDS[kind];
  const [wanted, skipped] = useMemo(() => {
    const names = [...jobs.keys()].filter((name) => appliesTo(kind, jobs.get(name)));
    return [names, jobs.size - names.length];
    // oxlint-disable-next-line react/exhaustive-deps -- once: the list, and with it the selection, changes while the dialog is open
  }, []);
  const phase = useSignal<Phase>({ name: "asking" });
  const abort = useRef(new AbortController());
  const isClosed = useRef(false);
  const unmounted = useRef(false);

  const run = async (frameworks: readonly string[], action: Action, before: readonly Outcome[]) => {
    abort.current = new AbortController();
    phase.value = { name: "running", done: 0, all: frameworks.length };
    const found = await forEachJob(frameworks, action, abort.current.signal, (done) => {
      if (!isClosed.current) phase.value = { name: "running", done, all: frameworks.length };
    });
    const outcomes = [...before, ...found];
    const hasMore = kind === "resubmit" || outcomes.some((one) => one.kind !== "done");
    if (isClosed.current || !hasMore) toast(`${sentenceOf(kind, outcomes)}${isClosed.current ? problemOf(outcomes) : ""}`);
    if (!unmounted.current) onDone(kind, found);
    if (isClosed.current) return;
    if (hasMore) phase.value = { name: "ended", outcomes, retry: action };
    else onClose();
  };
  useEffect(
    () => () => {
      unmounted.current = true;
      isClosed.current = true;
      abort.current.abort();
    },
    [],
  );
  useEffect(() => {
    if (phase.value.name !== "running") return;
    // The browser asks before it leaves the page.
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [phase.value.name]);
  const close = () => {
    isClosed.current = true;
    abort.current.abort();
    onClose();
  };

  const now = phase.value;
  const title = `${words.action} ${counted(wanted.length, "job")}${now.name === "asking" && kind !== "tag" ? "?" : ""}`;
  return (
    <Dialog title={title} onClose={close}>
      {now.name === "asking" && (
        <form
          class="form dialog-form"
          onSubmit={(event) => {
            event.preventDefault();
            void run(wanted, actionOf(kind, new FormData(event.currentTarget)), []);
          }}
        >
          {words.text && <p class="quiet">{words.text}</p>}
          {skipped > 0 && (
            <p class="notice wait">
              {counted(skipped, "selected job is", "selected jobs are")} {words.skipped}.
            </p>
          )}
          {kind === "tag" && <TagFields tags={tags} />}
          <div class="dialog-actions">
            <button class="button" type="button" onClick={close}>
              Cancel
            </button>
            <button class={`button ${kind === "stop" || kind === "delete" ? "danger" : "primary"}`} type="submit">
              {words.action}
            </button>
          </div>
        </form>
      )}
      {now.name === "running" && (
        <>
          <p class="quiet" role="status">
            {grouped(now.done)} of {counted(now.all, "job")} …
          </p>
          <progress class="bulk-progress" aria-label={title} max={now.all} value={now.done} />
          <div class="dialog-actions">
            <button class="button" type="button" onClick={() => abort.current.abort()}>
              Leave out the rest
            </button>
          </div>
        </>
      )}
      {now.name === "ended" && (
        <Result
          kind={kind}
          outcomes={now.outcomes}
          onRetry={() => {
            const again = now.outcomes.filter((one) => one.kind === "failed" || one.kind === "left");
            const kept = now.outcomes.filter((one) => one.kind === "done" || one.kind === "unchanged");
            void run(
              again.map(({ framework }) => framework),
              now.retry,
              kept,
            );
          }}
          onClose={close}
        />
      )}
    </Dialog>
  );
}

function TagFields({ tags }: { tags: readonly string[] }) {
  return (
    <>
      <div class="actions" role="radiogroup" aria-label="What to do with the tag">
        <label class="check">
          <input type="radio" name="method" value="PUT" defaultChecked /> Add
        </label>
        <label class="check">
          <input type="radio" name="method" value="DELETE" /> Remove
        </label>
      </div>
      <label>
        <span>Tag</span>
        <input name="tag" required maxLength={255} list="bulk-tags" autocomplete="off" spellcheck={false} />
      </label>
      <datalist id="bulk-tags">
        {tags.map((tag) => (
          <option key={tag} value={tag} />
        ))}
      </datalist>
    </>
  );
}

interface ResultProps {
  readonly kind: BulkKind;
  readonly outcomes: readonly Outcome[];
  readonly onRetry: () => void;
  readonly onClose: () => void;
}

function Result({ kind, outcomes, onRetry, onClose }: ResultProps) {
  const counts = countOutcomes(outcomes);
  const listed = outcomes.filter((one) => one.kind !== "done" || kind === "resubmit");
  // What failed comes first.
  const order = ["failed", "left", "unchanged", "done"];
  const rows = [...listed].sort((one, other) => order.indexOf(one.kind) - order.indexOf(other.kind));
  return (
    <>
      <p role="status">{sentenceOf(kind, outcomes)}</p>
      <ul class="bulk-outcomes" tabIndex={0} aria-label="What became of the jobs">
        {rows.slice(0, MAX_LISTED).map((one) => (
          <li key={one.framework} class={one.kind}>
            <a href={jobHref(one.framework)}>{shownName(one.framework)}</a>
            {one.kind === "done" ? (
              <>
                {" → "}
                <a href={jobHref(one.text)}>{shownName(one.text)}</a>
              </>
            ) : (
              `: ${one.kind === "left" ? "not tried." : one.text}`
            )}
          </li>
        ))}
        {rows.length > MAX_LISTED && <li>and {grouped(rows.length - MAX_LISTED)} more</li>}
      </ul>
      <div class="dialog-actions">
        {counts.failed + counts.left > 0 && (
          <button class="button" type="button" onClick={onRetry}>
            Try {counted(counts.failed + counts.left, "job")} again
          </button>
        )}
        <button class="button primary" type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </>
  );
}

/** "11 jobs deleted. 1 job not deleted. 88 jobs not tried." */
function sentenceOf(kind: BulkKind, outcomes: readonly Outcome[]): string {
  const { done } = WORDS[kind];
  const counts = countOutcomes(outcomes);
  const parts: string[] = [];
  if (counts.done || !outcomes.length) parts.push(`${counted(counts.done, "job")} ${done}.`);
  if (counts.unchanged) parts.push(`${counted(counts.unchanged, "job")} had nothing to change.`);
  if (counts.failed) parts.push(`${counted(counts.failed, "job")} not ${done}.`);
  if (counts.left) parts.push(`${counted(counts.left, "job")} not tried.`);
  return parts.join(" ");
}

/** Of the first job that failed. */
function problemOf(outcomes: readonly Outcome[]): string {
  const first = outcomes.find((one) => one.kind === "failed");
  return first ? ` ${shownName(first.framework)}: ${first.text}` : "";
}

/** Without the user, if that is the own one. */
function shownName(framework: string): string {
  const own = `${session.value?.user}~`;
  return framework.startsWith(own) ? framework.slice(own.length) : framework;
}

function actionOf(kind: BulkKind, form: FormData): Action {
  if (kind === "stop") return (framework) => stopJob(framework).then(() => "");
  if (kind === "delete") return deleteOne;
  if (kind === "resubmit") return resubmission();
  const tag = textOf(form, "tag");
  return form.get("method") === "DELETE"
    ? (framework) => removeTag(framework, tag)
    : (framework) => changeTag(framework, "PUT", tag).then(() => "");
}

async function deleteOne(framework: string): Promise<string> {
  try {
    await deleteFinishedJob(framework);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) throw new NothingToDo("it does not exist any more.");
    throw error;
  }
  return "";
}

async function removeTag(framework: string, tag: string): Promise<string> {
  try {
    await changeTag(framework, "DELETE", tag);
  } catch (error) {
    if (error instanceof ApiError && error.code === "NoTagError") throw new NothingToDo(`it has no tag ${tag}.`);
    throw error;
  }
  return "";
}

/** Submits copies. A job that is tried again gets the same copy: it is never there twice. */
function resubmission(): Action {
  const names = new Map<string, string>();
  const sent = new Set<string>();
  return async (framework, signal) => {
    const config = JSON.parse(await jobConfig(framework, signal)) as JobConfig;
    if (isFunctionCall(config)) {
      throw new ApiError("It calls a Python function, and a copy needs calls of its own.", 400, "", "Use pai resubmit.");
    }
    const secrets = secretsOf(config);
    if (secrets.length) {
      throw new ApiError(`It needs the values of ${secrets.join(", ")} again.`, 400, "", "Open the job and choose Resubmit.");
    }
    const name = names.get(framework) ?? nextName(framework.slice(framework.indexOf("~") + 1));
    names.set(framework, name);
    const copy = `${session.value?.user}~${name}`;
    try {
      const wasSent = sent.has(name);
      sent.add(name);
      await submitJob(JSON.stringify(copyOf(config, name)), config["protocolVersion"] === undefined ? 1 : 2).catch((error: unknown) => {
        // The response to the first attempt was lost.
        if (!(wasSent && error instanceof ApiError && error.status === 409)) throw error;
      });
    } catch (error) {
      // The server has refused it: there is no copy.
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) sent.delete(name);
      throw error;
    }
    return copy;
  };
}
