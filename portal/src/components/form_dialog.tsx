// A dialog with a form: the action's error stays in it, success closes it.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { ApiError } from "../api.ts";
import { Dialog } from "./dialogs.tsx";
import { ErrorNotice } from "./notices.tsx";

interface Props {
  readonly title: string;
  readonly action: string;
  readonly onSubmit: (form: FormData) => Promise<void>;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

export function FormDialog({ title, action, onSubmit, onClose, children }: Props) {
  const error = useSignal<ApiError | null>(null);
  const isBusy = useSignal(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    isBusy.value = true;
    error.value = null;
    try {
      await onSubmit(new FormData(event.currentTarget as HTMLFormElement));
      onClose();
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      error.value = problem;
      isBusy.value = false;
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="form dialog-form" onSubmit={(event) => void submit(event)}>
        {error.value && <ErrorNotice error={error.value} />}
        {children}
        <div class="dialog-actions">
          <button class="button" type="button" onClick={onClose}>
            Cancel
          </button>
          <button class="button primary" type="submit" disabled={isBusy.value}>
            {action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

export function textOf(form: FormData, name: string): string {
  const value = form.get(name);
  return typeof value === "string" ? value.trim() : "";
}

export function Check({ name, label, isChecked }: { name: string; label: string; isChecked: boolean }) {
  return (
    <label class="check">
      <input type="checkbox" name={name} defaultChecked={isChecked} />
      {label}
    </label>
  );
}

interface ChecksProps {
  readonly legend: string;
  /** Distinguishes the boxes from other ones of the form with the same names. */
  readonly kind: string;
  readonly names: readonly string[];
  readonly checked: readonly string[];
}

/** A box for each name. */
export function Checks({ legend, kind, names, checked }: ChecksProps) {
  return (
    <fieldset>
      <legend>{legend}</legend>
      {names.length === 0 && <p class="quiet">There are none.</p>}
      {names.map((name) => (
        <Check key={name} name={`${kind} ${name}`} label={name} isChecked={checked.includes(name)} />
      ))}
    </fieldset>
  );
}

/** The names whose box is checked. */
export function checkedNames(form: FormData, kind: string, names: readonly string[]): string[] {
  return names.filter((name) => form.get(`${kind} ${name}`) !== null);
}

/** The names of now, changed as the boxes were: what others have changed since the dialog showed its names stays. */
export function withChanges(now: readonly string[], shown: readonly string[], checked: readonly string[]): string[] {
  const kept = now.filter((name) => checked.includes(name) || !shown.includes(name));
  return [...new Set([...kept, ...checked.filter((name) => !shown.includes(name))])];
}
