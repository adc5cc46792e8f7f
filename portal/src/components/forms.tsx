// Forms and actions that the cluster may refuse.
import { useSignal } from "@preact/signals";
import { ApiError } from "../api.ts";
import { toast } from "./toasts.tsx";

export interface FormState {
  readonly submit: (event: Event) => void;
  /** Why the last attempt failed. */
  readonly problem: string;
  readonly isBusy: boolean;
}

/** A form; an `ApiError` of its action is shown in it. */
export function useForm(action: () => Promise<void>): FormState {
  const problem = useSignal("");
  const isBusy = useSignal(false);
  const work = async () => {
    problem.value = "";
    isBusy.value = true;
    try {
      await action();
    } catch (error) {
      problem.value = sentences(error);
    } finally {
      isBusy.value = false;
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void work();
  };
  return { submit, problem: problem.value, isBusy: isBusy.value };
}

export function FormProblem({ form }: { form: FormState }) {
  if (!form.problem) return null;
  return (
    <p class="notice bad" role="alert">
      {form.problem}
    </p>
  );
}

/** End of a form in a dialog: what is wrong, and the buttons. */
export function FormEnd({ form, action, onClose }: { form: FormState; action: string; onClose: () => void }) {
  return (
    <>
      <FormProblem form={form} />
      <div class="dialog-actions">
        <button class="button" type="button" onClick={onClose}>
          Cancel
        </button>
        <button class="button primary" type="submit" disabled={form.isBusy}>
          {action}
        </button>
      </div>
    </>
  );
}

/** Run an action; if the cluster refuses it, a message says why. */
export async function attempt(action: () => Promise<void>): Promise<void> {
  try {
    await action();
  } catch (error) {
    toast(sentences(error));
  }
}

/** A browser opens six connections; one stays for the page itself. */
const AT_ONCE = 5;

/** Do the same to each of many, a few at a time; returns what the cluster refused, and why. */
export async function attemptEach(names: readonly string[], action: (name: string) => Promise<void>): Promise<string[]> {
  const remaining = [...names];
  const problems: string[] = [];
  const work = async () => {
    for (let name = remaining.shift(); name !== undefined; name = remaining.shift()) {
      try {
        await action(name);
      } catch (error) {
        problems.push(sentences(error));
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return problems;
}

/** Message and hint of an error of the cluster; any other is a fault of ours. */
function sentences(error: unknown): string {
  if (!(error instanceof ApiError)) throw error;
  return [error.message, error.hint].filter(Boolean).join(" ");
}
