// Resubmit: a copy of the job with other resources, of all of its tasks or of those that failed.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, jobConfig, submitJob } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { FormDialog, textOf } from "../components/form_dialog.tsx";
import { Dialog } from "../components/dialogs.tsx";
import { ErrorNotice, Loading } from "../components/notices.tsx";
import { toast } from "../components/toasts.tsx";
import {
  copyOf,
  isFunctionCall,
  nextName,
  resourcesOf,
  secretsOf,
  withResources,
  withSecretValues,
  type JobConfig,
  type RoleResources,
} from "../editor/job_copy.ts";
import { repeatTasks } from "../editor/failed_tasks.ts";
import { counted, grouped, isFinished, stateName } from "../format.ts";
import { href, jobHref, navigate } from "../router.ts";
import { session } from "../session.ts";

interface Props {
  readonly framework: string;
  readonly name: string;
  /** The tasks of an array that the copy runs; without them all. */
  readonly failed?: FailedTasks | undefined;
  readonly onClose: () => void;
}

export interface FailedTasks {
  readonly indexes: readonly number[];
  /** Of the job. */
  readonly count: number;
  readonly state: JobDetail["jobStatus"]["state"];
}

const FIELDS = [
  { key: "gpu", label: "GPUs", min: 0 },
  { key: "cpu", label: "CPUs", min: 1 },
  { key: "memoryMB", label: "Memory (MB)", min: 1 },
  { key: "instances", label: "Tasks", min: 1 },
] as const;

export function ResubmitDialog({ framework, name, failed, onClose }: Props) {
  const config = useSignal<JobConfig | null>(null);
  const error = useSignal<ApiError | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    jobConfig(framework, abort.signal).then(
      (text) => (config.value = JSON.parse(text) as JobConfig),
      (problem: unknown) => {
        if (abort.signal.aborted) return;
        if (!(problem instanceof ApiError)) throw problem;
        error.value = problem;
      },
    );
    return () => abort.abort();
  }, [framework, config, error]);
  const found = config.value;
  if (!found || isFunctionCall(found)) {
    return (
      <Dialog title={`Resubmit ${name}`} onClose={onClose}>
        {error.value && <ErrorNotice error={error.value} />}
        {!found && !error.value && <Loading what="the job" />}
        {found && (
          <p class="quiet">
            This job calls a Python function, and a copy needs calls of its own. In a shell: <code>pai resubmit {name}</code>
          </p>
        )}
        <div class="dialog-actions">
          <button class="button" type="button" onClick={onClose}>
            Close
          </button>
        </div>
      </Dialog>
    );
  }
  return <ResubmitForm config={found} framework={framework} name={name} failed={failed} onClose={onClose} />;
}

function ResubmitForm({ config, framework, name, failed, onClose }: Props & { config: JobConfig }) {
  const roles = resourcesOf(config);
  const secrets = secretsOf(config);
  // The page around the dialog is drawn again while the job runs.
  const copyName = useRef(nextName(name)).current;
  const submit = async (form: FormData) => {
    const wanted: RoleResources[] = roles.map(({ role }) => {
      const of = (key: string, min: number) => Math.max(min, Math.trunc(Number(textOf(form, `${role} ${key}`))) || 0);
      const instances = failed ? failed.indexes.length : of("instances", 1);
      return { role, gpu: of("gpu", 0), cpu: of("cpu", 1), memoryMB: of("memoryMB", 1), instances };
    });
    const values = Object.fromEntries(secrets.map((secret) => [secret, String(form.get(`secret ${secret}`) ?? "")]));
    const copied = textOf(form, "name");
    const copy = withSecretValues(withResources(copyOf(failed ? repeatTasks(config, failed.indexes) : config, copied), wanted), values);
    const version = config["protocolVersion"] === undefined ? 1 : 2;
    const { warning } = await submitJob(JSON.stringify(copy), version);
    toast([`${copied} is submitted.`, warning].filter(Boolean).join(" "));
    navigate(jobHref(`${session.value?.user}~${copied}`));
  };
  return (
    <FormDialog
      title={failed ? `Resubmit failed tasks of ${name}` : `Resubmit ${name}`}
      action="Resubmit"
      onSubmit={submit}
      onClose={onClose}
    >
      {failed && (
        <p>
          {grouped(failed.indexes.length)} of the {counted(failed.count, "task")} of {name} run again, with the values and the indexes that
          they had.
        </p>
      )}
      {failed && !isFinished(failed.state) && (
        <p class="notice wait">
          The job is {stateName(failed.state).toLowerCase()}: more of its tasks may fail. These have failed until now.
        </p>
      )}
      <p class="quiet">
        The copy has the files, the commands and everything else of this job. To change more,{" "}
        <a href={href("/submit", { clone: framework })}>clone</a> it.
      </p>
      <label>
        <span>Name</span>
        <input name="name" required defaultValue={copyName} autocomplete="off" spellcheck={false} />
      </label>
      {roles.map((role) => (
        <fieldset class="plain" key={role.role}>
          <legend>{roles.length > 1 ? `Resources of each task of ${role.role}` : "Resources of each task"}</legend>
          <div class="field-row four">
            {FIELDS.filter(({ key }) => !failed || key !== "instances").map(({ key, label, min }) => (
              <label key={key}>
                <span>{label}</span>
                <input type="number" name={`${role.role} ${key}`} min={min} required defaultValue={String(role[key])} />
              </label>
            ))}
          </div>
        </fieldset>
      ))}
      {secrets.length > 0 && (
        <fieldset class="plain">
          <legend>Secrets</legend>
          <p class="quiet">The cluster does not return them: enter them again.</p>
          {secrets.map((secret) => (
            <label key={secret}>
              <span class="mono">{secret}</span>
              <input type="password" name={`secret ${secret}`} required autocomplete="new-password" />
            </label>
          ))}
        </fieldset>
      )}
    </FormDialog>
  );
}
