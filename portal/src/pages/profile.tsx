// Profile: tokens, SSH keys, password, storages of the user.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId } from "preact/hooks";
import { addSshKey, ApiError, changePassword, listTokens, makeToken, ownTokenId, ownUser, removeSshKey, revokeToken } from "../api.ts";
import type { StorageDetail, TokenDetails, UserInfo } from "../api_types.ts";
import { attempt, FormEnd, FormProblem, useForm } from "../components/forms.tsx";
import { Command } from "../components/command.tsx";
import { Confirm, Dialog } from "../components/dialogs.tsx";
import { ErrorNotice, Loading } from "../components/notices.tsx";
import { toast } from "../components/toasts.tsx";
import { SignOutEverywhere } from "../components/sign_out.tsx";
import { listStorages } from "../files/storage.ts";
import { VirtualRows } from "../components/virtual_rows.tsx";
import { dayOf, exactTime, shortTime } from "../format.ts";
import { usePolled } from "../live.ts";
import { filesHref } from "../router.ts";
import { endSession } from "../session.ts";
import { keyProblem, keySummary, sshKeysOf, type SshKey } from "../ssh_key.ts";

const REFRESH_MS = 15_000;
const DAY_S = 24 * 3600;
const LIFETIMES: readonly [label: string, seconds: number | null][] = [
  ["30 days", 30 * DAY_S],
  ["90 days", 90 * DAY_S],
  ["1 year", 365 * DAY_S],
  ["No end", null],
];
const MIN_PASSWORD_LENGTH = 6;

export function ProfilePage() {
  const { error, value, reload } = usePolled("profile", load, REFRESH_MS);
  useEffect(() => {
    document.title = "Profile · OpenPAI";
  }, []);
  if (error) return <ErrorNotice error={error} />;
  if (!value) return <Loading what="your profile" />;
  return (
    <div class="profile">
      <div class="head">
        <h1>Profile</h1>
        <SignOutEverywhere class="button" />
      </div>
      <div class="stack">
        <About user={value.user} />
        <Tokens tokens={value.tokens} ownId={value.ownId} onChange={reload} />
        <SshKeys keys={sshKeysOf(value.user)} onChange={reload} />
        <div class="halves">
          <Password />
          <Storages storages={value.storages} />
        </div>
      </div>
    </div>
  );
}

/** All at once: parts that come one after the other would move what is below them. */
async function load(signal: AbortSignal) {
  const [user, tokens, ownId, storages] = await Promise.all([
    ownUser(signal),
    listTokens(signal),
    ownTokenId(signal),
    listStorages(signal),
  ]);
  return { user, tokens, ownId, storages };
}

function About({ user }: { user: UserInfo }) {
  const facts: [string, string][] = [
    ["User", user.username],
    ["Role", user.admin ? "Administrator" : "User"],
    ["Groups", user.grouplist.join(", ") || "none"],
    ["Virtual clusters", user.virtualCluster.join(", ") || "none"],
  ];
  if (user.email) facts.push(["Email", user.email]);
  return (
    <dl class="card padded facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Section({ title, action, children }: { title: string; action?: ComponentChildren; children: ComponentChildren }) {
  const id = useId();
  return (
    <section class="card padded" aria-labelledby={id}>
      <div class="head">
        <h2 id={id}>{title}</h2>
        {action}
      </div>
      {children}
    </section>
  );
}

// -- tokens ----------------------------------------------------------------------------------------

const TOKEN_HEAD = (
  <tr>
    <th>Name</th>
    <th class="c-kind">Kind</th>
    <th class="c-created">Created</th>
    <th>Expires</th>
    <th>
      <span class="sr">Actions</span>
    </th>
  </tr>
);

interface TokensProps {
  readonly tokens: readonly TokenDetails[];
  /** Id of the token of this session. */
  readonly ownId: string | undefined;
  readonly onChange: () => void;
}

function Tokens({ tokens, ownId, onChange }: TokensProps) {
  const isMaking = useSignal(false);
  const made = useSignal("");
  const asked = useSignal<TokenDetails | null>(null);
  const revoke = (token: TokenDetails) =>
    attempt(async () => {
      await revokeToken(token.id);
      toast(`${tokenName(token)} is revoked.`);
      if (token.id === ownId) endSession("You have revoked this session.");
      else onChange();
    });
  const now = Date.now();
  const newest = [...tokens].sort((one, other) => other.createdTime - one.createdTime);
  return (
    <Section
      title="Tokens"
      action={
        <button class="button" type="button" onClick={() => (isMaking.value = true)}>
          New token
        </button>
      }
    >
      {made.value && (
        <div class="notice good once" role="status">
          <p>
            <strong>The new token. Copy it now: it is not shown again.</strong>
          </p>
          <Command text={made.value} />
          <div>
            <button class="link" type="button" onClick={() => (made.value = "")}>
              Hide it
            </button>
          </div>
        </div>
      )}
      <VirtualRows rows={newest} columns={5} head={TOKEN_HEAD} label="Tokens, newest first">
        {(token) => (
          <tr key={token.id}>
            <td class="token-name" title={tokenName(token)}>
              {tokenName(token)}
              {token.id === ownId && <span class="tag">this session</span>}
            </td>
            <td class="c-kind">{token.application ? "Program" : "Session"}</td>
            <td class="c-created" title={exactTime(token.createdTime)}>
              {shortTime(token.createdTime, now)}
            </td>
            <td title={exactTime(token.expirationTime)}>{token.expirationTime === null ? "no end" : dayOf(token.expirationTime)}</td>
            <td>
              <button class="link danger" type="button" aria-label={`Revoke ${tokenName(token)}`} onClick={() => (asked.value = token)}>
                Revoke
              </button>
            </td>
          </tr>
        )}
      </VirtualRows>
      {isMaking.value && (
        <NewToken
          onMade={(token) => {
            made.value = token;
            onChange();
          }}
          onClose={() => (isMaking.value = false)}
        />
      )}
      {asked.value && (
        <Confirm
          title={`Revoke ${tokenName(asked.value)}?`}
          text={
            asked.value.id === ownId
              ? "It is the token of this session: you must sign in again."
              : "Programs that use it are refused from now on."
          }
          action="Revoke"
          onConfirm={() => void (asked.value && revoke(asked.value))}
          onClose={() => (asked.value = null)}
        />
      )}
    </Section>
  );
}

/** Names of tokens that the cluster gives. */
const OWN_NAMES: Readonly<Record<string, string>> = {
  browser: "Browser",
  delegation: "WebHDFS",
  "": "Command line",
};

function tokenName(token: TokenDetails): string {
  if (token.application) return token.name || "Unnamed";
  return OWN_NAMES[token.name] ?? token.name;
}

function NewToken({ onMade, onClose }: { onMade: (token: string) => void; onClose: () => void }) {
  const name = useSignal("");
  const lifetime = useSignal(1);
  const form = useForm(async () => {
    onMade(await makeToken(name.value.trim(), LIFETIMES[lifetime.value]?.[1] ?? null));
    onClose();
  });
  return (
    <Dialog title="New token" onClose={onClose}>
      <form class="form" onSubmit={form.submit}>
        <p class="quiet">For a program: it acts as you, but cannot change your account or make tokens.</p>
        <label>
          <span>Name</span>
          <input
            name="name"
            required
            maxLength={255}
            autocomplete="off"
            placeholder="nightly training"
            value={name.value}
            onInput={(event) => (name.value = event.currentTarget.value)}
          />
        </label>
        <label>
          <span>Expires after</span>
          <select name="lifetime" value={String(lifetime.value)} onChange={(event) => (lifetime.value = Number(event.currentTarget.value))}>
            {LIFETIMES.map(([label], at) => (
              <option key={label} value={String(at)}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <FormEnd form={form} action="Create" onClose={onClose} />
      </form>
    </Dialog>
  );
}

// -- SSH keys --------------------------------------------------------------------------------------

function SshKeys({ keys, onChange }: { keys: readonly SshKey[]; onChange: () => void }) {
  const isAdding = useSignal(false);
  const asked = useSignal<SshKey | null>(null);
  const remove = (key: SshKey) =>
    attempt(async () => {
      // Also where the cluster has no such key any more: the page then shows what it has.
      await removeSshKey(key.value).finally(onChange);
    });
  return (
    <Section
      title="SSH public keys"
      action={
        <button class="button" type="button" onClick={() => (isAdding.value = true)}>
          Add a key
        </button>
      }
    >
      {keys.length === 0 ? (
        <p class="quiet">
          None. With a key here, <code>ssh</code> enters the tasks of jobs that have OpenPAI's plugin <code>ssh</code>;{" "}
          <code>pai ssh-container</code> needs none.
        </p>
      ) : (
        <ul class="rows">
          {keys.map((key, at) => (
            <li key={at}>
              <strong>{key.title}</strong>
              <code class="key" title={key.value}>
                {keySummary(key.value)}
              </code>
              <button class="link danger" type="button" aria-label={`Remove ${key.title}`} onClick={() => (asked.value = key)}>
                Remove
              </button>
            </li>
          ))}
        </ul>
      )}
      {isAdding.value && <NewKey keys={keys} onAdded={onChange} onClose={() => (isAdding.value = false)} />}
      {asked.value && (
        <Confirm
          title={`Remove ${asked.value.title}?`}
          text="The key opens no new connection to your jobs."
          action="Remove"
          onConfirm={() => void (asked.value && remove(asked.value))}
          onClose={() => (asked.value = null)}
        />
      )}
    </Section>
  );
}

interface NewKeyProps {
  readonly keys: readonly SshKey[];
  readonly onAdded: () => void;
  readonly onClose: () => void;
}

function NewKey({ keys, onAdded, onClose }: NewKeyProps) {
  const title = useSignal("");
  const value = useSignal("");
  const form = useForm(async () => {
    const line = value.value.trim();
    const problem = keyProblem(
      line,
      keys.map((key) => key.value),
    );
    if (problem) throw new ApiError(problem, 400);
    await addSshKey(line, title.value.trim());
    onAdded();
    onClose();
  });
  return (
    <Dialog title="Add a key" onClose={onClose}>
      <form class="form" onSubmit={form.submit}>
        <label>
          <span>Public key</span>
          <textarea
            name="key"
            rows={4}
            required
            spellcheck={false}
            placeholder="ssh-ed25519 AAAA…"
            value={value.value}
            onInput={(event) => (value.value = event.currentTarget.value)}
          />
        </label>
        <p class="quiet">
          The line in <code>~/.ssh/id_ed25519.pub</code>.
        </p>
        <label>
          <span>Name</span>
          <input
            name="title"
            maxLength={100}
            autocomplete="off"
            placeholder="laptop"
            value={title.value}
            onInput={(event) => (title.value = event.currentTarget.value)}
          />
        </label>
        <FormEnd form={form} action="Add" onClose={onClose} />
      </form>
    </Dialog>
  );
}

// -- password and storages -------------------------------------------------------------------------

function Password() {
  const old = useSignal("");
  const wanted = useSignal("");
  const repeated = useSignal("");
  const form = useForm(async () => {
    if (wanted.value !== repeated.value) throw new ApiError("The new password and its repetition differ.", 400);
    if (wanted.value === old.value) throw new ApiError("The new password is the current one.", 400);
    await changePassword(old.value, wanted.value).catch((error: unknown) => {
      if (error instanceof ApiError && error.status === 403)
        throw new ApiError("The current password is not correct.", 403, "", error.hint);
      throw error;
    });
    endSession("The password is changed. Sign in with the new one.");
  });
  const fields = [
    { name: "old", label: "Current password", value: old, complete: "current-password", least: 0 },
    { name: "new", label: "New password", value: wanted, complete: "new-password", least: MIN_PASSWORD_LENGTH },
    { name: "repeated", label: "New password again", value: repeated, complete: "new-password", least: MIN_PASSWORD_LENGTH },
  ] as const;
  return (
    <Section title="Password">
      <form class="form" onSubmit={form.submit}>
        {fields.map((field) => (
          <label key={field.name}>
            <span>{field.label}</span>
            <input
              type="password"
              name={field.name}
              required
              minLength={field.least}
              autocomplete={field.complete}
              value={field.value.value}
              onInput={(event) => (field.value.value = event.currentTarget.value)}
            />
          </label>
        ))}
        <p class="quiet">Your sessions end everywhere; tokens of programs stay.</p>
        <FormProblem form={form} />
        <div>
          <button class="button" type="submit" disabled={form.isBusy}>
            Change the password
          </button>
        </div>
      </form>
    </Section>
  );
}

function Storages({ storages }: { storages: readonly StorageDetail[] }) {
  return (
    <Section title="My storages">
      {storages.length === 0 && <p class="quiet">Your groups have access to no storage.</p>}
      <ul class="rows">
        {storages.map((storage) => (
          <li key={storage.name}>
            <a href={filesHref(storage.name, "/")}>{storage.name}</a>
            <span class="quiet">{[storage.default && "default", storage.readOnly && "read only"].filter(Boolean).join(", ")}</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}
