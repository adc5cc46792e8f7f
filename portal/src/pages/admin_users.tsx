// Users of the cluster, as administrators see and change them.
import { useSignal } from "@preact/signals";
import {
  changeUser,
  createUser,
  deleteUser,
  listGroups,
  listUsers,
  quotaOf,
  QUOTA_LIMITS,
  setDisabled,
  setGroups,
  setQuota,
  userOf,
  type QuotaLimits,
} from "../admin_api.ts";
import type { Group, UserInfo } from "../api_types.ts";
import { ActionLink } from "../components/editable_table.tsx";
import { Check, checkedNames, Checks, FormDialog, textOf, withChanges } from "../components/form_dialog.tsx";
import { attempt } from "../components/forms.tsx";
import { Confirm, Dialog } from "../components/dialogs.tsx";
import { ErrorNotice, Loading } from "../components/notices.tsx";
import { toast } from "../components/toasts.tsx";
import { VirtualRows } from "../components/virtual_rows.tsx";
import { counted } from "../format.ts";
import { usePolled } from "../live.ts";
import { href } from "../router.ts";
import { session } from "../session.ts";

const REFRESH_MS = 15_000;
const HEADS: readonly [label: string, name: string][] = [
  ["Name", "c-name"],
  ["Email", "c-email"],
  ["Administrator", "c-admin"],
  ["Groups", "c-groups"],
  ["", "c-actions"],
];
const QUOTA_LABELS: Readonly<Record<keyof QuotaLimits, string>> = {
  tasks: "Tasks",
  cpu: "CPUs",
  memoryMB: "Memory (MB)",
  gpu: "GPUs",
  storageBytes: "Storage (bytes)",
};

type Action = "change" | "quota" | "switch" | "delete";
type Asked = { kind: "add" } | { kind: Action; user: UserInfo };

export function Users() {
  const users = usePolled("users", listUsers, REFRESH_MS);
  const groups = usePolled("groups", listGroups, REFRESH_MS);
  const asked = useSignal<Asked | null>(null);
  const keyword = useSignal("");
  const close = () => (asked.value = null);
  const done = (text: string) => {
    toast(text);
    users.reload();
  };
  if (users.error) return <ErrorNotice error={users.error} />;
  if (!users.value || !groups.value) return <Loading what="the users" />;
  const wanted = keyword.value.toLowerCase();
  const shown = users.value.filter((user) => `${user.username} ${user.email}`.toLowerCase().includes(wanted));
  return (
    <div class="stack users">
      <div class="admin-tools">
        <input
          type="search"
          aria-label="Search users"
          placeholder={`Search ${counted(users.value.length, "user")}`}
          value={keyword.value}
          onInput={(event) => (keyword.value = event.currentTarget.value)}
        />
        <button class="button primary" type="button" onClick={() => (asked.value = { kind: "add" })}>
          Add a user
        </button>
      </div>
      <VirtualRows
        rows={shown}
        columns={HEADS.length}
        label="Users"
        head={
          <tr>
            {HEADS.map(([label, name]) => (
              <th key={name} class={name}>
                {label || <span class="sr">Actions</span>}
              </th>
            ))}
          </tr>
        }
      >
        {(user) => <UserRow key={user.username} user={user} onAsk={(kind) => (asked.value = { kind, user })} />}
      </VirtualRows>
      {asked.value?.kind === "add" && <AddUser onClose={close} onDone={done} />}
      {asked.value?.kind === "change" && <ChangeUser user={asked.value.user} groups={groups.value} onClose={close} onDone={done} />}
      {asked.value?.kind === "quota" && <Quota user={asked.value.user} onClose={close} onDone={done} />}
      {asked.value?.kind === "switch" && <SwitchUser user={asked.value.user} onClose={close} onDone={done} />}
      {asked.value?.kind === "delete" && <DeleteUser user={asked.value.user} onClose={close} onDone={done} />}
    </div>
  );
}

function UserRow({ user, onAsk }: { user: UserInfo; onAsk: (kind: Action) => void }) {
  const { username, disabled } = user;
  // An administrator cannot end the own account by accident.
  const isSelf = username === session.value?.user;
  return (
    <tr>
      <td class="c-name" title={username}>
        {username}
        {disabled && (
          <a class="tag" href={href("/jobs", { user: username })} title={`Jobs of ${username} go on`}>
            disabled
          </a>
        )}
      </td>
      <td class="c-email">{user.email}</td>
      <td class="c-admin">{user.admin ? "yes" : ""}</td>
      <td class="c-groups" title={user.grouplist.join(", ")}>
        {user.grouplist.join(", ")}
      </td>
      <td class="row-actions">
        <ActionLink label="Change" name={username} onClick={() => onAsk("change")} />
        <ActionLink label="Quota" name={`of ${username}`} onClick={() => onAsk("quota")} />
        {!isSelf && (
          <>
            <ActionLink label={disabled ? "Enable" : "Disable"} name={username} onClick={() => onAsk("switch")} />
            <ActionLink label="Delete" name={username} isDanger onClick={() => onAsk("delete")} />
          </>
        )}
      </td>
    </tr>
  );
}

interface DialogProps {
  readonly onClose: () => void;
  readonly onDone: (text: string) => void;
}

function AddUser({ onClose, onDone }: DialogProps) {
  const add = async (form: FormData) => {
    const username = textOf(form, "new-username");
    const password = form.get("new-password");
    await createUser({
      username,
      password: typeof password === "string" ? password : "",
      email: textOf(form, "email"),
      admin: form.get("admin") !== null,
    });
    onDone(`User ${username} is added.`);
  };
  return (
    <FormDialog title="Add a user" action="Add" onSubmit={add} onClose={onClose}>
      <label>
        <span>Name</span>
        <input name="new-username" required autocomplete="off" />
      </label>
      <label>
        <span>Password</span>
        <input name="new-password" type="password" required autocomplete="new-password" />
      </label>
      <label>
        <span>Email (optional)</span>
        <input name="email" type="email" />
      </label>
      <Check name="admin" label="Administrator" isChecked={false} />
    </FormDialog>
  );
}

function ChangeUser({ user, groups, onClose, onDone }: DialogProps & { user: UserInfo; groups: readonly Group[] }) {
  const change = async (form: FormData) => {
    const password = form.get("new-password");
    const names = groups.map((group) => group.groupname);
    const checked = checkedNames(form, "group", names);
    // The group of administrators has no box: it follows from the one above.
    const shown = user.grouplist.filter((name) => names.includes(name));
    const { grouplist } = await userOf(user.username);
    await setGroups(user.username, withChanges(grouplist, shown, checked));
    const [email, admin] = [textOf(form, "email"), form.get("admin") !== null];
    await changeUser({
      username: user.username,
      ...(email === user.email ? {} : { email }),
      ...(admin === user.admin ? {} : { admin }),
      ...(typeof password === "string" && password ? { password } : {}),
    });
    onDone(`User ${user.username} is changed.`);
  };
  return (
    <FormDialog title={`Change ${user.username}`} action="Save" onSubmit={change} onClose={onClose}>
      <label>
        <span>Email</span>
        <input name="email" type="email" defaultValue={user.email} />
      </label>
      <label>
        <span>New password (empty: unchanged)</span>
        <input name="new-password" type="password" autocomplete="new-password" />
      </label>
      <Check name="admin" label="Administrator" isChecked={user.admin} />
      <Checks legend="Groups" kind="group" names={groups.map((group) => group.groupname)} checked={user.grouplist} />
    </FormDialog>
  );
}

function Quota({ user, onClose, onDone }: DialogProps & { user: UserInfo }) {
  const limits = usePolled(`quota ${user.username}`, (signal) => quotaOf(user.username, signal), 1e9);
  const current = limits.value;
  if (!current) {
    return (
      <Dialog title={`Quota of ${user.username}`} onClose={onClose}>
        {limits.error ? <ErrorNotice error={limits.error} /> : <Loading what="the quota" />}
      </Dialog>
    );
  }
  const save = async (form: FormData) => {
    const entries = QUOTA_LIMITS.map((name) => {
      const text = textOf(form, name);
      return [name, text ? Number(text) : null] as const;
    });
    await setQuota(user.username, Object.fromEntries(entries) as unknown as QuotaLimits);
    onDone(`The quota of ${user.username} is set.`);
  };
  return (
    <FormDialog title={`Quota of ${user.username}`} action="Save" onSubmit={save} onClose={onClose}>
      <p class="quiet">The most that this user's jobs and files may use at a time. An empty field is no limit.</p>
      {QUOTA_LIMITS.map((name) => (
        <label key={name}>
          <span>{QUOTA_LABELS[name]}</span>
          <input name={name} type="number" min={0} defaultValue={current[name] ?? ""} />
        </label>
      ))}
    </FormDialog>
  );
}

function SwitchUser({ user, onClose, onDone }: DialogProps & { user: UserInfo }) {
  const { username, disabled } = user;
  const change = () =>
    attempt(async () => {
      const jobs = await setDisabled(username, !disabled);
      const goingOn = jobs && !disabled ? ` ${counted(jobs, "unfinished job goes", "unfinished jobs go")} on.` : "";
      onDone(`User ${username} is ${disabled ? "enabled" : "disabled"}.${goingOn}`);
    });
  return (
    <Confirm
      title={disabled ? `Enable ${username}?` : `Disable ${username}?`}
      text={
        disabled
          ? "The user can sign in again, and tokens that have not expired are valid again."
          : "The user can no longer sign in, and tokens and keys of the user are refused. Unfinished jobs go on; new ones are not accepted."
      }
      action={disabled ? "Enable" : "Disable"}
      onConfirm={() => void change()}
      onClose={onClose}
    />
  );
}

function DeleteUser({ user, onClose, onDone }: DialogProps & { user: UserInfo }) {
  const remove = () =>
    attempt(async () => {
      await deleteUser(user.username);
      onDone(`User ${user.username} is deleted.`);
    });
  return (
    <Confirm
      title={`Delete ${user.username}?`}
      text="The user can no longer sign in, and tokens of the user end. Unfinished jobs are stopped; finished jobs and files stay."
      action="Delete"
      onConfirm={() => void remove()}
      onClose={onClose}
    />
  );
}
