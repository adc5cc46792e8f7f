// Job templates of the user and of the user's groups: saved from a job, started from, deleted.
import { useSignal } from "@preact/signals";
import { deleteJobTemplate, jobTemplates, ownUser, saveJobTemplate } from "../api.ts";
import type { JobTemplateSummary } from "../api_types.ts";
import { Confirm } from "../components/dialogs.tsx";
import { FormDialog, textOf } from "../components/form_dialog.tsx";
import { attempt } from "../components/forms.tsx";
import { ErrorNotice, Loading } from "../components/notices.tsx";
import { toast } from "../components/toasts.tsx";
import { usePolled } from "../live.ts";
import { session } from "../session.ts";

const REFRESH_MS = 30_000;

const isOwn = ({ username }: JobTemplateSummary) => username === session.value?.user;

export function TemplateList({ onTemplate }: { onTemplate: (template: JobTemplateSummary) => void }) {
  const templates = usePolled("job templates", jobTemplates, REFRESH_MS);
  const deleted = useSignal<JobTemplateSummary | null>(null);
  return (
    <>
      {templates.error && <ErrorNotice error={templates.error} />}
      {!templates.value && !templates.error && <Loading what="templates" />}
      {templates.value?.length === 0 && <p class="quiet">None yet: write a job, then Save as template.</p>}
      <ul class="rows templates">
        {templates.value?.map((one) => (
          <li key={`${one.username}/${one.name}`}>
            <button class="link" type="button" onClick={() => onTemplate(one)}>
              {one.name}
            </button>
            {one.mayChange && (
              <button class="link danger" type="button" aria-label={`Delete template ${one.name}`} onClick={() => (deleted.value = one)}>
                Delete
              </button>
            )}
            <span class="whole quiet">{[belongsTo(one), one.description].filter(Boolean).join(" · ")}</span>
          </li>
        ))}
      </ul>
      {deleted.value && (
        <Confirm
          title={`Delete template ${deleted.value.name}?`}
          text={
            deleted.value.group ? `Members of ${deleted.value.group} can no longer start from it.` : "Jobs that were started from it stay."
          }
          action="Delete template"
          onConfirm={() => void attempt(() => remove(deleted.value, templates.reload))}
          onClose={() => (deleted.value = null)}
        />
      )}
    </>
  );
}

async function remove(template: JobTemplateSummary | null, reload: () => void): Promise<void> {
  if (!template) return;
  await deleteJobTemplate(template);
  reload();
}

function belongsTo(template: JobTemplateSummary): string {
  const { group, username } = template;
  return [group && `for ${group}`, !isOwn(template) && `by ${username}`].filter(Boolean).join(", ");
}

interface SaveProps {
  /** The job file, when its chosen files are on the cluster. */
  readonly stored: () => Promise<string>;
  readonly name: string;
  /** The template that the job was started from. */
  readonly started: JobTemplateSummary | null;
  readonly onClose: () => void;
}

export function SaveTemplate({ stored, name, started, onClose }: SaveProps) {
  const user = usePolled("own groups", ownUser, REFRESH_MS);
  // A changed template keeps its owner; of one that the user may not change, there is a copy.
  const owner = (started?.mayChange && started.username) || session.value?.user || "";
  const groups = [...new Set([...(user.value?.grouplist ?? []), ...(started?.group ? [started.group] : [])])];
  const save = async (form: FormData) => {
    const wanted = textOf(form, "template");
    await saveJobTemplate(owner, wanted, {
      protocol: await stored(),
      group: textOf(form, "group") || null,
      description: textOf(form, "description"),
    });
    toast(`Template ${wanted} is saved.`);
  };
  if (user.error) return <ErrorNotice error={user.error} />;
  if (!user.value) return null;
  return (
    <FormDialog title="Save as template" action="Save" onSubmit={save} onClose={onClose}>
      <p class="quiet">
        Values of secrets are not saved. Files are not shared: other members of a group add their own. A template of{" "}
        {owner === session.value?.user ? "yours" : owner} with this name is replaced.
      </p>
      <label>
        <span>Name of the template</span>
        <input
          name="template"
          required
          pattern="[A-Za-z0-9_.\-]{1,255}"
          title="Letters, digits and _ . -"
          defaultValue={started?.name ?? name}
        />
      </label>
      <label>
        <span>Description</span>
        <input name="description" maxLength={1000} defaultValue={started?.description ?? ""} />
      </label>
      <label>
        <span>Who may start from it</span>
        <select name="group" defaultValue={started?.group ?? ""}>
          <option value="">Only {owner === session.value?.user ? "me" : owner}</option>
          {groups.map((group) => (
            <option key={group} value={group} selected={group === started?.group}>
              Group {group}
            </option>
          ))}
        </select>
      </label>
    </FormDialog>
  );
}
