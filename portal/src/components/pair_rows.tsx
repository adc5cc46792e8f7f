// Rows of a name and a value each, such as variables. A row whose name is not finished is kept, but not reported:
// a name is finished when its field is left.
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";

export interface Pair {
  readonly name: string;
  readonly value: string;
}

interface Props {
  /** What one row is: "variable". */
  readonly one: string;
  readonly rows: readonly Pair[];
  readonly isName: (name: string) => boolean;
  readonly onChange: (rows: readonly Pair[]) => void;
  readonly isSecret?: boolean;
}

export function PairRows({ one, rows, isName, onChange, isSecret = false }: Props) {
  const draft = useSignal(rows);
  /** What the draft is the draft of. */
  const known = useRef(rows);
  const finished = (all: readonly Pair[]) =>
    all.filter(({ name }, at) => isName(name) && all.findIndex((other) => other.name === name) === at);
  // Changed elsewhere: in the editor, or by another job.
  if (!isSame(known.current, rows)) {
    known.current = rows;
    draft.value = rows;
  }
  const shown = draft.value;
  const report = () => {
    const all = finished(draft.peek());
    if (isSame(all, known.current)) return;
    known.current = all;
    onChange(all);
  };
  const change = (to: readonly Pair[]) => {
    draft.value = to;
    report();
  };
  const withRow = (at: number, pair: Partial<Pair>) => shown.map((row, place) => (place === at ? { ...row, ...pair } : row));
  return (
    <div class="pairs">
      {shown.map((row, at) => (
        // The place is the row's identity: its name changes while it is typed.
        <div class="pair" key={at}>
          <input
            aria-label={`Name of ${one} ${at + 1}`}
            placeholder="NAME"
            class="mono"
            value={row.name}
            autocomplete="off"
            spellcheck={false}
            aria-invalid={row.name !== "" && !isName(row.name)}
            onInput={(event) => (draft.value = withRow(at, { name: event.currentTarget.value.trim() }))}
            onChange={report}
          />
          <ValueField
            label={row.name ? `Value of ${row.name}` : `Value of ${one} ${at + 1}`}
            value={row.value}
            isSecret={isSecret}
            onInput={(value) => change(withRow(at, { value }))}
          />
          <button
            class="button icon"
            type="button"
            aria-label={`Remove ${row.name || `${one} ${at + 1}`}`}
            onClick={() => change(shown.filter((_, place) => place !== at))}
          >
            ×
          </button>
          {row.name !== "" && !isName(row.name) && (
            <p class="field-problem">A name has letters, digits and _, and does not begin with a digit.</p>
          )}
        </div>
      ))}
      <div>
        <button class="button small" type="button" onClick={() => (draft.value = [...shown, { name: "", value: "" }])}>
          Add a {one}
        </button>
      </div>
    </div>
  );
}

interface ValueProps {
  readonly label: string;
  readonly value: string;
  readonly isSecret: boolean;
  readonly onInput: (value: string) => void;
}

function ValueField({ label, value, isSecret, onInput }: ValueProps) {
  const shared = {
    "aria-label": label,
    placeholder: "value",
    class: "mono",
    value,
    spellcheck: false,
    onInput: (event: { currentTarget: HTMLInputElement }) => onInput(event.currentTarget.value),
  } as const;
  return isSecret ? <input {...shared} type="password" autocomplete="new-password" /> : <input {...shared} autocomplete="off" />;
}

function isSame(some: readonly Pair[], others: readonly Pair[]): boolean {
  return some.length === others.length && some.every((pair, at) => pair.name === others[at]?.name && pair.value === others[at]?.value);
}
