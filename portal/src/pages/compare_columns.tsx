// Choice of the columns of the table of runs.
import { useSignal } from "@preact/signals";
import { formatColumns, type RunColumn } from "../compare/run_table.ts";
import { grouped } from "../format.ts";
import { setQuery } from "../router.ts";

/** Boxes that are shown at once; further columns are found by their name. */
const MAX_SHOWN = 60;

interface Props {
  readonly columns: readonly RunColumn[];
  readonly shown: readonly RunColumn[];
  /** Whether the user chose them. */
  readonly isOwn: boolean;
}

export function ColumnChoice({ columns, shown, isOwn }: Props) {
  const filter = useSignal("");
  const isOpen = useSignal(false);
  const choices = columns.filter(({ kind }) => kind !== "job" && kind !== "task");
  const found = choices.filter(({ label }) => label.toLowerCase().includes(filter.value.toLowerCase()));
  const ids = new Set(shown.map(({ id }) => id));
  const change = (id: string, isOn: boolean) => {
    const wanted = choices.filter((one) => (one.id === id ? isOn : ids.has(one.id)));
    setQuery({ columns: formatColumns(wanted) || "none" }, { replace: true });
  };
  return (
    <details class="column-choice" onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
      <summary>Columns</summary>
      {isOpen.value && (
        <div class="shown-columns">
          {choices.length > MAX_SHOWN && (
            <input
              type="search"
              placeholder="Filter by name"
              aria-label="Filter columns by name"
              value={filter.value}
              onInput={({ currentTarget }) => (filter.value = currentTarget.value)}
            />
          )}
          <div class="column-boxes" role="group" aria-label="Columns">
            {found.slice(0, MAX_SHOWN).map(({ id, label }) => (
              <label class="check" key={id}>
                <input type="checkbox" checked={ids.has(id)} onChange={({ currentTarget }) => change(id, currentTarget.checked)} />
                {label}
              </label>
            ))}
          </div>
          {found.length > MAX_SHOWN && <p class="quiet">{grouped(found.length - MAX_SHOWN)} more are found by their name.</p>}
          {isOwn && (
            <button class="link" type="button" onClick={() => setQuery({ columns: undefined }, { replace: true })}>
              The usual columns
            </button>
          )}
        </div>
      )}
    </details>
  );
}
