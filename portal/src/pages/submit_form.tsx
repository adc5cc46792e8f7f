// The form of a job: the common case, in step with the job file.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { virtualClusters, type ResourceUse } from "../api.ts";
import type { Info, StorageDetail } from "../api_types.ts";
import { PairRows } from "../components/pair_rows.tsx";
import { toast } from "../components/toasts.tsx";
import { columnsOf, tableOf, type ValueColumn } from "../editor/array_rows.ts";
import { changedValues, type Change, type JobForm, type MoreFields, type StorageMount } from "../editor/job_file.ts";
import { notebookCommand, notebookOf, type NotebookRun } from "../editor/notebook_command.ts";
import { isVariableName } from "../editor/shell_words.ts";
import { chosenText } from "../files/chosen_text.ts";
import { parseNotebook } from "../files/notebook.ts";
import { listStorages } from "../files/storage.ts";
import { counted, memory } from "../format.ts";
import { usePolled } from "../live.ts";
import { SourcesField } from "../sources/sources_field.tsx";
import type { SourceFiles } from "../sources/source_files.ts";

const CLUSTERS_REFRESH_MS = 60_000;
const PRIORITIES = [
  ["crit", "critical"],
  ["prod", "production"],
  ["test", "test"],
  ["oppo", "opportunistic: what others leave"],
] as const;

interface Props {
  readonly form: JobForm;
  readonly info: Info;
  readonly sources: SourceFiles;
  readonly secretValues: ReadonlyMap<string, string>;
  readonly onRole: (role: string) => void;
  readonly onChange: (change: Change) => void;
  readonly onSecrets: (values: ReadonlyMap<string, string>) => void;
}

export function SubmitFields(props: Props) {
  const { form, info, onRole, onChange } = props;
  const { basics, more } = form;
  const clusters = usePolled("clusters", virtualClusters, CLUSTERS_REFRESH_MS).value ?? {};
  const names = new Set([...Object.keys(clusters), ...(basics.virtualCluster ? [basics.virtualCluster] : [])]);
  const number = (basic: "gpu" | "cpu" | "memoryMB" | "instances", label: string, min: number) => (
    <label>
      <span>{label}</span>
      <input
        type="number"
        name={basic}
        min={min}
        disabled={basic === "instances" && Boolean(more?.rows.length)}
        value={basics[basic]}
        onChange={(event) => onChange({ basic, value: wholeNumber(event.currentTarget, min) })}
      />
    </label>
  );
  return (
    <div class="form sections">
      <section>
        <label>
          <span>Name</span>
          <input
            name="name"
            value={basics.name}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => onChange({ basic: "name", value: event.currentTarget.value })}
          />
        </label>
        {form.roles.length > 1 && (
          <label>
            <span>Task role</span>
            <select name="role" value={form.role} onChange={(event) => onRole(event.currentTarget.value)}>
              {form.roles.map((role) => (
                <option key={role}>{role}</option>
              ))}
            </select>
          </label>
        )}
        {more ? <Task {...props} /> : <CommandField command={basics.command} onChange={onChange} />}
        <label>
          <span>Image</span>
          <input
            name="image"
            value={basics.image}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => onChange({ basic: "image", value: event.currentTarget.value })}
          />
          {!info.containers && <small class="quiet">This cluster runs tasks on its machines directly, whatever the image.</small>}
        </label>
      </section>
      <Section title="Resources of each task">
        <div class="field-row four">
          {number("gpu", "GPUs", 0)}
          {number("cpu", "CPUs", 1)}
          {number("memoryMB", "Memory (MB)", 1)}
          {number("instances", "Tasks", 1)}
        </div>
        <label>
          <span>Virtual cluster</span>
          <select
            name="virtualCluster"
            value={basics.virtualCluster}
            onChange={(event) => onChange({ basic: "virtualCluster", value: event.currentTarget.value })}
          >
            <option value="">default of the cluster</option>
            {[...names].map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
          <Free cluster={clusters[basics.virtualCluster || "default"]} />
        </label>
      </Section>
      {more ? (
        <MoreSections {...props} more={more} />
      ) : (
        <p class="quiet">A job of protocol version 1 has no files, storages, variables or secrets of its own; version 2 has them.</p>
      )}
    </div>
  );
}

function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function Free({ cluster }: { cluster: ResourceUse | undefined }) {
  if (!cluster) return null;
  const { resourcesUsed: used, resourcesTotal: total } = cluster;
  const parts = [
    total.gpu > 0 ? counted(Math.max(0, total.gpu - used.gpu), "GPU") : "",
    counted(Math.max(0, Math.floor(total.cpu - used.cpu)), "CPU"),
    memory(Math.max(0, total.memory - used.memory)),
  ];
  return <small class="quiet">Free now: {parts.filter(Boolean).join(", ")}</small>;
}

// -- command or notebook ---------------------------------------------------------------------------

function CommandField({ command, onChange }: { command: string; onChange: Props["onChange"] }) {
  return (
    <label>
      <span>Command</span>
      <textarea
        name="command"
        rows={4}
        spellcheck={false}
        value={command}
        onInput={(event) => onChange({ basic: "command", value: event.currentTarget.value })}
      />
    </label>
  );
}

function Task(props: Props) {
  const { form, onChange } = props;
  const chosen = useSignal<"command" | "notebook" | null>(null);
  const run = notebookOf(form.basics.command);
  const kind = chosen.value ?? (run ? "notebook" : "command");
  return (
    <>
      <div>
        <p class="label" id="what-runs">
          What runs
        </p>
        <div class="choices" role="radiogroup" aria-labelledby="what-runs">
          {(["command", "notebook"] as const).map((one) => (
            <label key={one}>
              <input type="radio" name="kind" value={one} checked={kind === one} onChange={() => (chosen.value = one)} />
              <span>{one === "command" ? "Command" : "Notebook"}</span>
            </label>
          ))}
        </div>
      </div>
      {kind === "command" ? <CommandField command={form.basics.command} onChange={onChange} /> : <NotebookField {...props} run={run} />}
    </>
  );
}

function NotebookField({ run, sources, onChange }: Props & { run: NotebookRun | null }) {
  const choose = async (file: File | undefined) => {
    if (!file) return;
    const text = await chosenText(file);
    if (text === null) return;
    if (!parseNotebook(text)) {
      toast(`${file.name} is not a notebook: choose the .ipynb file that Jupyter saved.`);
      return;
    }
    const isAdded = await sources.add([{ file, path: file.name }]);
    if (isAdded) onChange({ basic: "command", value: notebookCommand({ path: file.name, parameters: run?.parameters ?? [] }) });
  };
  return (
    <>
      <div class="notebook-choice">
        <label class="button">
          Choose a notebook
          <input
            class="sr"
            type="file"
            name="notebook"
            accept=".ipynb"
            onChange={(event) => {
              const field = event.currentTarget;
              void choose(field.files?.[0]).then(() => (field.value = ""));
            }}
          />
        </label>
        {run ? <code>{run.path}</code> : <span class="quiet">No notebook is chosen.</span>}
      </div>
      {run && (
        <div>
          <p class="label">Parameters</p>
          <PairRows
            one="parameter"
            rows={run.parameters}
            isName={isVariableName}
            onChange={(parameters) => onChange({ basic: "command", value: notebookCommand({ path: run.path, parameters }) })}
          />
        </div>
      )}
      <small class="quiet">
        All cells run. The executed notebook and a page of it are among the job's outputs; its log shows what the cells print.
      </small>
    </>
  );
}

// -- files, storages, variables --------------------------------------------------------------------

function MoreSections({ form, more, sources, secretValues, onChange, onSecrets }: Props & { more: MoreFields }) {
  const secrets = more.secrets.map(({ name, isMasked }) => ({ name, value: (isMasked && secretValues.get(name)) || "" }));
  return (
    <>
      <Section title="Files">
        <SourcesField sources={sources} named={more.sources} onName={(value) => onChange({ more: "sources", value })} />
      </Section>
      <Section title="Storages">
        <Storages mounted={more.storages} onChange={(value) => onChange({ more: "storages", value })} />
      </Section>
      <Section title="Environment variables">
        <PairRows
          key={`variables of ${form.role}`}
          one="variable"
          rows={more.environment}
          isName={isVariableName}
          onChange={(value) => onChange({ more: "environment", value })}
        />
      </Section>
      {form.roles.length === 1 && (
        <Section title="Sweep">
          <SweepField rows={more.rows} onChange={(value) => onChange({ more: "rows", value })} />
        </Section>
      )}
      <Section title="Secrets">
        <p class="quiet">Variables whose values the cluster seals. They are masked in the job file, its log and its configuration.</p>
        <PairRows
          key={`secrets of ${form.role}`}
          one="secret"
          isSecret
          rows={secrets}
          isName={isVariableName}
          onChange={(rows) => {
            onSecrets(changedValues(secretValues, more.secrets, rows));
            onChange({ more: "secrets", value: rows.map(({ name, value }) => ({ name, isMasked: value !== "" })) });
          }}
        />
      </Section>
      <details class="more" open={hasMore(more)}>
        <summary>More</summary>
        <div class="form">
          <Limits more={more} onChange={onChange} />
        </div>
      </details>
    </>
  );
}

interface SweepProps {
  readonly rows: readonly ValueColumn[];
  readonly onChange: (rows: readonly ValueColumn[]) => void;
}

function SweepField({ rows, onChange }: SweepProps) {
  // What is typed, while it is no table that a job could have.
  const typed = useSignal<string | null>(null);
  const found = typed.value === null ? rows : columnsOf(typed.value);
  const problem = typeof found === "string" ? found : "";
  const enter = (text: string) => {
    typed.value = text;
    const columns = columnsOf(text);
    if (typeof columns !== "string") onChange(columns);
  };
  return (
    <label>
      <span>A task for each row (CSV)</span>
      <textarea
        name="rows"
        class="mono"
        rows={4}
        spellcheck={false}
        placeholder={"lr,seed\n0.1,1\n0.01,2"}
        value={typed.value ?? tableOf(rows)}
        onInput={(event) => enter(event.currentTarget.value)}
        onBlur={() => {
          if (!problem) typed.value = null;
        }}
      />
      {problem ? (
        <small class="field-problem">{problem}</small>
      ) : (
        <small class="quiet">The first line names variables. The command uses their values: $lr, $seed.</small>
      )}
    </label>
  );
}

function hasMore({ retries, timeLimitS, priority, tags, outputs }: MoreFields): boolean {
  return retries > 0 || timeLimitS > 0 || priority !== "" || tags.length > 0 || outputs.length > 0;
}

interface StoragesProps {
  readonly mounted: readonly StorageMount[] | null;
  readonly onChange: (storages: readonly StorageMount[] | null) => void;
}

function Storages({ mounted, onChange }: StoragesProps) {
  const storages = usePolled("storages", listStorages, CLUSTERS_REFRESH_MS);
  if (storages.error) return <p class="field-problem">{storages.error.message}</p>;
  const known = storages.value ?? [];
  // An empty list means the default ones.
  const chosen =
    mounted?.length === 0 ? known.filter((storage) => storage.default).map(({ name }) => ({ name, mountPath: "" })) : (mounted ?? []);
  const unknown = chosen.filter(({ name }) => storages.value && !known.some((storage) => storage.name === name));
  const put = (all: readonly StorageMount[]) => onChange(all.length ? all : null);
  if (storages.value && !known.length && !unknown.length) return <p class="quiet">You have no storages on this cluster.</p>;
  return (
    <ul class="storages">
      {[...known, ...unknown].map((storage) => {
        const mount = chosen.find(({ name }) => name === storage.name);
        return (
          <li key={storage.name}>
            <label class="check">
              <input
                type="checkbox"
                checked={mount !== undefined}
                onChange={(event) =>
                  put(
                    event.currentTarget.checked
                      ? [...chosen, { name: storage.name, mountPath: "" }]
                      : chosen.filter(({ name }) => name !== storage.name),
                  )
                }
              />
              {storage.name}
              <span class="quiet">{"type" in storage ? about(storage) : "not a storage of yours"}</span>
            </label>
            {mount && (
              <input
                class="mono"
                aria-label={`Path of ${storage.name} in the task`}
                placeholder={`/mnt/${storage.name}`}
                value={mount.mountPath}
                spellcheck={false}
                onInput={(event) => {
                  const mountPath = event.currentTarget.value.trim();
                  put(chosen.map((one) => (one.name === storage.name ? { ...one, mountPath } : one)));
                }}
              />
            )}
          </li>
        );
      })}
    </ul>
  );
}

function about({ type, readOnly, default: isDefault }: StorageDetail): string {
  return [type === "other" ? "" : type, isDefault ? "default" : "", readOnly ? "read only" : ""].filter(Boolean).join(", ");
}

function Limits({ more, onChange }: { more: MoreFields; onChange: Props["onChange"] }) {
  const list = (name: "tags" | "outputs", label: string, hint: string) => (
    <label>
      <span>{label}</span>
      <input
        name={name}
        value={more[name].join(", ")}
        placeholder={hint}
        autocomplete="off"
        onChange={(event) => onChange({ more: name, value: wordsOf(event.currentTarget.value) })}
      />
    </label>
  );
  return (
    <>
      <div class="field-row three">
        <label>
          <span>Priority</span>
          <select
            name="priority"
            value={more.priority}
            onChange={(event) => onChange({ more: "priority", value: event.currentTarget.value })}
          >
            <option value="">default</option>
            {PRIORITIES.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label>
          <span>Retries</span>
          <input
            type="number"
            name="retries"
            min={0}
            value={more.retries}
            onChange={(event) => onChange({ more: "retries", value: wholeNumber(event.currentTarget, 0) })}
          />
        </label>
        <label>
          <span>Time limit (min)</span>
          <input
            type="number"
            name="timeLimit"
            min={0}
            step="any"
            placeholder="none"
            value={more.timeLimitS ? more.timeLimitS / 60 : ""}
            onChange={(event) =>
              onChange({ more: "timeLimitS", value: Math.max(0, Math.round(Number(event.currentTarget.value) * 60) || 0) })
            }
          />
        </label>
      </div>
      {list("outputs", "Outputs", "model, logs/*.csv")}
      {list("tags", "Tags", "baseline, digits")}
    </>
  );
}

/** What the job gets of an entry; the field shows the same. */
function wholeNumber(field: HTMLInputElement, min: number): number {
  const value = Math.max(min, Math.trunc(Number(field.value)) || 0);
  // A job that has this number already does not change, and the field would not be drawn again.
  field.value = String(value);
  return value;
}

function wordsOf(text: string): string[] {
  return [
    ...new Set(
      text
        .split(",")
        .map((word) => word.trim())
        .filter(Boolean),
    ),
  ];
}
