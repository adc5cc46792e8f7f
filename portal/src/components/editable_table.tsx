// A table of named items that administrators add, change and delete, with its dialogs.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { FormDialog, textOf } from "./form_dialog.tsx";
import { attempt } from "./forms.tsx";
import { Confirm } from "./dialogs.tsx";
import { toast } from "./toasts.tsx";

interface Column<T> {
  readonly label: string;
  readonly cell: (item: T) => ComponentChildren;
  readonly isLong?: boolean;
  /** Not shown at phone width. */
  readonly isMinor?: boolean;
}

const classOf = ({ isLong, isMinor }: { isLong?: boolean; isMinor?: boolean }) =>
  [isLong && "message", isMinor && "minor"].filter(Boolean).join(" ");

interface Props<T> {
  /** "group", for sentences. */
  readonly what: string;
  /** What the items are for. */
  readonly note: string;
  readonly label: string;
  readonly items: readonly T[];
  readonly nameOf: (item: T) => string;
  readonly columns: readonly Column<T>[];
  readonly isFixed?: (item: T) => boolean;
  /** Fields of the dialog beside the name; null: of a new item. */
  readonly fields: (item: T | null) => ComponentChildren;
  /** `item`: as the dialog showed it; null: a new one. */
  readonly onSave: (name: string, form: FormData, item: T | null) => Promise<void>;
  readonly onDelete: (name: string) => Promise<void>;
  /** What deleting one means. */
  readonly deletion: string;
  readonly onChange: () => void;
}

type Asked<T> = { readonly kind: "save"; readonly item: T | null } | { readonly kind: "delete"; readonly item: T };

export function EditableTable<T>(props: Props<T>) {
  const { what, items, nameOf, columns } = props;
  const asked = useSignal<Asked<T> | null>(null);
  const now = asked.value;
  const close = () => (asked.value = null);
  const done = (name: string, verb: string) => {
    toast(`${what.charAt(0).toUpperCase()}${what.slice(1)} ${name} is ${verb}.`);
    props.onChange();
  };
  const save = async (item: T | null, form: FormData) => {
    const name = item === null ? textOf(form, "name") : nameOf(item);
    await props.onSave(name, form, item);
    done(name, "saved");
  };
  const remove = (name: string) =>
    attempt(async () => {
      await props.onDelete(name);
      done(name, "deleted");
    });
  return (
    <div class="stack">
      <div class="admin-tools">
        <p class="quiet">{props.note}</p>
        <button class="button primary" type="button" onClick={() => (asked.value = { kind: "save", item: null })}>
          Add a {what}
        </button>
      </div>
      <div class="card scroll" tabIndex={0} role="region" aria-label={props.label}>
        <table class="editable">
          <thead>
            <tr>
              <th>Name</th>
              {columns.map((column) => (
                <th key={column.label} class={column.isMinor ? "minor" : ""}>
                  {column.label}
                </th>
              ))}
              <th>
                <span class="sr">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {items.map((item) => (
              <tr key={nameOf(item)}>
                <td class="c-item" title={nameOf(item)}>
                  {nameOf(item)}
                </td>
                {columns.map((column) => (
                  <td key={column.label} class={classOf(column)}>
                    {column.cell(item)}
                  </td>
                ))}
                <td class="row-actions">
                  {!props.isFixed?.(item) && (
                    <>
                      <ActionLink label="Change" name={nameOf(item)} onClick={() => (asked.value = { kind: "save", item })} />
                      <ActionLink label="Delete" name={nameOf(item)} isDanger onClick={() => (asked.value = { kind: "delete", item })} />
                    </>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {now?.kind === "save" && (
        <FormDialog
          title={now.item === null ? `Add a ${what}` : `Change ${nameOf(now.item)}`}
          action="Save"
          onSubmit={(form) => save(now.item, form)}
          onClose={close}
        >
          {now.item === null && (
            <label>
              <span>Name</span>
              <input name="name" required autocomplete="off" />
            </label>
          )}
          {props.fields(now.item)}
        </FormDialog>
      )}
      {now?.kind === "delete" && (
        <Confirm
          title={`Delete ${nameOf(now.item)}?`}
          text={props.deletion}
          action="Delete"
          onConfirm={() => void remove(nameOf(now.item))}
          onClose={close}
        />
      )}
    </div>
  );
}

interface ActionProps {
  readonly label: string;
  readonly name: string;
  readonly isDanger?: boolean;
  readonly onClick: () => void;
}

/** A button in a row of a table; its name says of which row. */
export function ActionLink({ label, name, isDanger = false, onClick }: ActionProps) {
  return (
    <button class={`link${isDanger ? " danger" : ""}`} type="button" aria-label={`${label} ${name}`} onClick={onClick}>
      {label}
    </button>
  );
}
