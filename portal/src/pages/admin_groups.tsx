// Groups and virtual clusters, as administrators see and change them.
import { useSignal } from "@preact/signals";
import {
  createGroup,
  deleteGroup,
  deleteShare,
  describeGroup,
  listGroups,
  listShares,
  putShare,
  type Group,
} from "../admin_api.ts";
import { ApiError } from "../api.ts";
import { FormDialog, textOf } from "../components/form_dialog.tsx";
import { Confirm, ErrorNotice, Loading, toast } from "../components/parts.tsx";
import { usePolled } from "../live.ts";

const REFRESH_MS = 15_000;
const DEFAULT = "default";

type Asked<T> = { kind: "add" } | { kind: "change" | "delete"; item: T };

/** Run an action of a confirmation; its error is a toast. */
async function attempt(action: () => Promise<void>, done: () => void): Promise<void> {
  try {
    await action();
    done();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    toast([error.message, error.hint].filter(Boolean).join(" "));
  }
}

interface RowActionsProps {
  readonly name: string;
  readonly onAsk: (kind: "change" | "delete") => void;
}

function RowActions({ name, onAsk }: RowActionsProps) {
  return (
    <td class="row-actions">
      <button class="link" type="button" aria-label={`Change ${name}`} onClick={() => onAsk("change")}>
        Change
      </button>
      <button class="link" type="button" aria-label={`Delete ${name}`} onClick={() => onAsk("delete")}>
        Delete
      </button>
    </td>
  );
}

// -- groups ----------------------------------------------------------------------------------------

export function Groups() {
  const groups = usePolled("groups", listGroups, REFRESH_MS);
  const asked = useSignal<Asked<Group> | null>(null);
  const close = () => (asked.value = null);
  const done = (text: string) => {
    toast(text);
    groups.reload();
  };
  if (groups.error) return <ErrorNotice error={groups.error} />;
  if (!groups.value) return <Loading what="the groups" />;
  const now = asked.value;
  const save = async (form: FormData) => {
    const name = now?.kind === "change" ? now.item.groupname : textOf(form, "groupname");
    const description = textOf(form, "description");
    await (now?.kind === "change" ? describeGroup(name, description) : createGroup(name, description));
    done(`Group ${name} is saved.`);
  };
  return (
    <div class="stack">
      <div class="admin-tools">
        <p class="quiet">A group lets its users use virtual clusters and storages.</p>
        <button class="button primary" type="button" onClick={() => (asked.value = { kind: "add" })}>
          Add a group
        </button>
      </div>
      <div class="card scroll" tabIndex={0} role="region" aria-label="Groups">
        <table>
          <thead>
            <tr>
              <th>Name</th>
              <th>Description</th>
              <th>Virtual clusters</th>
              <th>
                <span class="sr">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {groups.value.map((group) => (
              <tr key={group.groupname}>
                <td>{group.groupname}</td>
                <td class="message">{group.description}</td>
                <td>{(group.extension.acls?.virtualClusters ?? []).join(", ")}</td>
                <RowActions name={group.groupname} onAsk={(kind) => (asked.value = { kind, item: group })} />
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {now && now.kind !== "delete" && (
        <FormDialog
          title={now.kind === "add" ? "Add a group" : `Change ${now.item.groupname}`}
          action="Save"
          onSubmit={save}
          onClose={close}
        >
          {now.kind === "add" && (
            <label>
              <span>Name</span>
              <input name="groupname" required />
            </label>
          )}
          <label>
            <span>Description</span>
            <input name="description" defaultValue={now.kind === "add" ? "" : now.item.description} />
          </label>
        </FormDialog>
      )}
      {now?.kind === "delete" && (
        <Confirm
          title={`Delete ${now.item.groupname}?`}
          text="Its users lose what they may use through this group."
          action="Delete"
          onConfirm={() =>
            void attempt(
              () => deleteGroup(now.item.groupname),
              () => done(`Group ${now.item.groupname} is deleted.`),
            )
          }
          onClose={close}
        />
      )}
    </div>
  );
}

// -- virtual clusters ------------------------------------------------------------------------------

interface Share {
  readonly name: string;
  readonly capacity: number;
  readonly maxCapacity: number;
}

const percent = (value: number) => `${Number(value.toFixed(1))} %`;

export function VirtualClusters() {
  const clusters = usePolled("shares", listShares, REFRESH_MS);
  const asked = useSignal<Asked<Share> | null>(null);
  const close = () => (asked.value = null);
  const done = (text: string) => {
    toast(text);
    clusters.reload();
  };
  if (clusters.error) return <ErrorNotice error={clusters.error} />;
  if (!clusters.value) return <Loading what="the virtual clusters" />;
  const now = asked.value;
  const item = now && now.kind !== "add" ? now.item : null;
  const save = async (form: FormData) => {
    const name = item?.name ?? textOf(form, "vc");
    const capacity = Number(textOf(form, "capacity"));
    await putShare(name, capacity, Math.max(capacity, Number(textOf(form, "maxCapacity"))));
    done(`Virtual cluster ${name} is saved.`);
  };
  return (
    <div class="stack">
      <div class="admin-tools">
        <p class="quiet">The virtual cluster default has what the others leave.</p>
        <button class="button primary" type="button" onClick={() => (asked.value = { kind: "add" })}>
          Add a virtual cluster
        </button>
      </div>
      <div class="card scroll" tabIndex={0} role="region" aria-label="Virtual clusters">
        <table>
          <thead>
            <tr>
              <th>Name</th>
              <th>Guaranteed</th>
              <th>At most</th>
              <th>
                <span class="sr">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(clusters.value).map(([name, share]) => (
              <tr key={name}>
                <td>{name}</td>
                <td>{percent(share.capacity)}</td>
                <td>{percent(share.maxCapacity)}</td>
                {name === DEFAULT ? (
                  <td />
                ) : (
                  <RowActions name={name} onAsk={(kind) => (asked.value = { kind, item: { name, ...share } })} />
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {now && now.kind !== "delete" && (
        <FormDialog
          title={item ? `Change ${item.name}` : "Add a virtual cluster"}
          action="Save"
          onSubmit={save}
          onClose={close}
        >
          {!item && (
            <label>
              <span>Name</span>
              <input name="vc" required />
            </label>
          )}
          <label>
            <span>Guaranteed share of the cluster (%)</span>
            <input name="capacity" type="number" min={0} max={100} step="any" required defaultValue={item?.capacity ?? 10} />
          </label>
          <label>
            <span>Share with what others leave idle (%)</span>
            <input name="maxCapacity" type="number" min={0} max={100} step="any" required defaultValue={item?.maxCapacity ?? 100} />
          </label>
        </FormDialog>
      )}
      {now?.kind === "delete" && item && (
        <Confirm
          title={`Delete ${item.name}?`}
          text="No job can be submitted to it any more; its share goes to the virtual cluster default."
          action="Delete"
          onConfirm={() =>
            void attempt(
              () => deleteShare(item.name),
              () => done(`Virtual cluster ${item.name} is deleted.`),
            )
          }
          onClose={close}
        />
      )}
    </div>
  );
}
