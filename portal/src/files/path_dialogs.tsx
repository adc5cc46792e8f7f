// Dialogs that ask for a name or a path: new folder, move.
import { useSignal } from "@preact/signals";
import { ApiError } from "../api.ts";
import { attemptEach, FormEnd, useForm } from "../components/forms.tsx";
import { Dialog } from "../components/dialogs.tsx";
import { toast } from "../components/toasts.tsx";
import { counted } from "../format.ts";
import { baseName, join, nameProblem, parentOf, resolve } from "./paths.ts";
import type { StorageFiles } from "./storage.ts";

interface PathDialogProps {
  readonly title: string;
  readonly label: string;
  readonly note?: string;
  readonly value: string;
  readonly action: string;
  /** What is wrong with the text; empty if nothing is. */
  readonly problemOf?: (text: string) => string;
  readonly onSubmit: (text: string) => Promise<void>;
  readonly onClose: () => void;
}

function PathDialog({ title, label, note, value, action, problemOf, onSubmit, onClose }: PathDialogProps) {
  const text = useSignal(value);
  const form = useForm(async () => {
    const problem = problemOf?.(text.value);
    if (problem) throw new ApiError(problem, 400);
    await onSubmit(text.value);
    onClose();
  });
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="form" onSubmit={form.submit}>
        <label>
          <span>{label}</span>
          <input
            name="path"
            autocomplete="off"
            spellcheck={false}
            value={text.value}
            onInput={(event) => (text.value = event.currentTarget.value)}
          />
        </label>
        {note && <p class="quiet">{note}</p>}
        <FormEnd form={form} action={action} onClose={onClose} />
      </form>
    </Dialog>
  );
}

interface NewFolderProps {
  readonly files: StorageFiles;
  readonly folder: string;
  readonly taken: ReadonlySet<string>;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

export function NewFolderDialog({ files, folder, taken, onDone, onClose }: NewFolderProps) {
  return (
    <PathDialog
      title="New folder"
      label="Name"
      value=""
      action="Create"
      problemOf={(name) => nameProblem(name) || (taken.has(name) ? `${name} exists already.` : "")}
      onSubmit={async (name) => {
        await files.makeFolder(join(folder, name));
        onDone();
      }}
      onClose={onClose}
    />
  );
}

interface MoveProps {
  readonly files: StorageFiles;
  readonly paths: readonly string[];
  /** Called with the new path of the first one. */
  readonly onDone: (target: string) => void;
  readonly onClose: () => void;
}

/** One entry gets a new path; several go into a folder. */
export function MoveDialog({ files, paths, onDone, onClose }: MoveProps) {
  const [first = "/"] = paths;
  const folder = parentOf(first);
  if (paths.length === 1) {
    return (
      <PathDialog
        title={`Rename or move ${baseName(first)}`}
        label="New path"
        note="A name alone renames it. A path moves it; the folder must exist."
        value={first}
        action="Move"
        problemOf={(text) => (text.trim() ? "" : "Enter a name or a path.")}
        onSubmit={async (text) => {
          const target = resolve(text, folder);
          await files.move(first, target);
          toast(`${baseName(first)} is now ${target}.`);
          onDone(target);
        }}
        onClose={onClose}
      />
    );
  }
  return (
    <PathDialog
      title={`Move ${counted(paths.length, "entry", "entries")}`}
      label="Into the folder"
      value={folder}
      action="Move"
      problemOf={(text) => (resolve(text, folder) === folder ? "They are in this folder." : "")}
      onSubmit={async (text) => {
        const target = resolve(text, folder);
        const problems = await attemptEach(paths, (path) => files.move(path, join(target, baseName(path))));
        const moved = paths.length - problems.length;
        if (!moved) throw new ApiError(problems[0] ?? "", 400);
        toast(`${counted(moved, "entry", "entries")} moved to ${target}.`);
        if (problems.length) toast(`${counted(problems.length, "entry", "entries")} not moved: ${problems[0] ?? ""}`);
        onDone(target);
      }}
      onClose={onClose}
    />
  );
}
