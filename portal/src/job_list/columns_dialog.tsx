// The columns of the list: which, and in which order.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, jobColumnNames } from "../api.ts";
import type { JobColumns } from "../api_types.ts";
import { Dialog } from "../components/dialogs.tsx";
import { toast } from "../components/toasts.tsx";
import { isDefault, jobColumns, keepJobColumns } from "./column_settings.ts";
import { columnOf, columnsOf, DEFAULT_COLUMNS, JOB_COLUMNS, MAX_COLUMNS, metricIds, parameterId } from "./columns.ts";

interface Props {
  /** The filter of the list: names of parameters and metrics are those of its jobs. */
  readonly query: URLSearchParams;
  readonly onClose: () => void;
}

export function ColumnsDialog({ query, onClose }: Props) {
  const ids = useSignal<readonly string[]>(columnsOf(jobColumns()).map(({ id }) => id));
  const names = useSignal<JobColumns>({ parameters: [], metrics: [] });
  const said = useSignal("");
  useEffect(() => {
    const abort = new AbortController();
    jobColumnNames(query, abort.signal).then(
      (found) => (names.value = found),
      (error: unknown) => {
        if (abort.signal.aborted) return;
        if (!(error instanceof ApiError)) throw error;
        said.value = `Names of parameters and metrics are not known: ${error.message}`;
      },
    );
    return () => abort.abort();
    // oxlint-disable-next-line react/exhaustive-deps -- once: the filter is a new object in each render, and stays while the dialog is open
  }, [names, said]);
  const labelOf = (id: string) => columnOf(id)?.label ?? id;
  const move = (at: number, by: number) => {
    const changed = [...ids.value];
    const [moved] = changed.splice(at, 1);
    if (moved === undefined) return;
    changed.splice(at + by, 0, moved);
    ids.value = changed;
    said.value = `${labelOf(moved)} is column ${at + by + 2} of ${changed.length + 1}.`;
  };
  const remove = (at: number) => {
    said.value = `${labelOf(ids.value[at] ?? "")} is removed.`;
    ids.value = ids.value.filter((_, other) => other !== at);
  };
  const save = async () => {
    onClose();
    try {
      await keepJobColumns(ids.value);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      toast(`The columns are kept in this browser only: ${error.message}`);
    }
  };
  return (
    <Dialog title="Columns" onClose={onClose}>
      <p class="quiet">The name comes first. Your choice is kept with your user, for all browsers.</p>
      <ol class="column-list">
        {ids.value.map((id, at) => (
          <li key={id}>
            <span class="column-name">{labelOf(id)}</span>
            <span class="quiet">{kindOf(id)}</span>
            <button class="button" type="button" aria-label={`Move ${labelOf(id)} up`} disabled={at === 0} onClick={() => move(at, -1)}>
              ↑
            </button>
            <button
              class="button"
              type="button"
              aria-label={`Move ${labelOf(id)} down`}
              disabled={at === ids.value.length - 1}
              onClick={() => move(at, 1)}
            >
              ↓
            </button>
            <button class="button" type="button" aria-label={`Remove ${labelOf(id)}`} onClick={() => remove(at)}>
              ✕
            </button>
          </li>
        ))}
      </ol>
      <AddColumn
        ids={ids.value}
        names={names.value}
        onAdd={(id) => {
          ids.value = [...ids.value, id];
          said.value = `${labelOf(id)} is added.`;
        }}
      />
      <p class="quiet column-said" role="status">
        {said.value}
      </p>
      <div class="dialog-actions">
        <button class="button" type="button" disabled={isDefault(ids.value)} onClick={() => (ids.value = DEFAULT_COLUMNS)}>
          Default columns
        </button>
        <button class="button" type="button" onClick={onClose}>
          Cancel
        </button>
        <button class="button primary" type="button" onClick={() => void save()}>
          Save
        </button>
      </div>
    </Dialog>
  );
}

function kindOf(id: string): string {
  const kind = columnOf(id)?.kind;
  return kind === "metric" || kind === "parameter" ? kind : "";
}

interface AddProps {
  readonly ids: readonly string[];
  readonly names: JobColumns;
  readonly onAdd: (id: string) => void;
}

function AddColumn({ ids, names, onAdd }: AddProps) {
  if (ids.length >= MAX_COLUMNS) return <p class="quiet">These are all columns that a list can have.</p>;
  const groups: readonly (readonly [label: string, ids: readonly string[]])[] = [
    ["Of all jobs", JOB_COLUMNS.map(({ id }) => id)],
    ["Parameters", names.parameters.map(parameterId)],
    ["Metrics", names.metrics.flatMap(metricIds)],
  ];
  return (
    <select
      aria-label="Add a column"
      value=""
      onChange={(event) => {
        const { value } = event.currentTarget;
        event.currentTarget.value = "";
        if (value) onAdd(value);
      }}
    >
      <option value="">Add a column …</option>
      {groups.map(([label, all]) => {
        const left = all.filter((id) => !ids.includes(id));
        return (
          left.length > 0 && (
            <optgroup key={label} label={label}>
              {left.map((id) => (
                <option key={id} value={id}>
                  {columnOf(id)?.label}
                </option>
              ))}
            </optgroup>
          )
        );
      })}
    </select>
  );
}
