// Sign in with a password, or with the code of a one-time link (`pai open`).
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ApiError, signIn } from "../api.ts";
import { ErrorNotice, Loading } from "../components/notices.tsx";
import { address, href, navigate } from "../router.ts";
import { isSessionExpired, session, signedOutReason } from "../session.ts";
import { requestJobsEarly } from "./jobs.tsx";

type Credentials = Parameters<typeof signIn>[0];

const TITLE = "Sign in · OpenPAI";

/** The cluster has ended the session: over the pages of the user, which stay as they are. */
export function SignInAgain({ user }: { user: string }) {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const { title } = document;
    const focused = focusedElement();
    element.current?.showModal();
    document.title = TITLE;
    return () => {
      document.title = title;
      // When the pages are visible again.
      setTimeout(() => focused?.focus());
    };
  }, []);
  return (
    // It is closed by signing in, not by Escape.
    <dialog
      ref={element}
      class="sign-in"
      aria-label="Sign in"
      onCancel={(event) => event.preventDefault()}
      onClose={() => isSessionExpired.value && element.current?.showModal()}
    >
      <SignInForm user={user} />
    </dialog>
  );
}

/** The element with the focus, also in the shadow root of the editor. */
function focusedElement(): HTMLElement | null {
  let focused = document.activeElement;
  while (focused?.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement;
  return focused as HTMLElement | null;
}

export function SignInPage({ code }: { code: string }) {
  useLayoutEffect(() => {
    document.title = TITLE;
  }, []);
  return (
    <main class="sign-in">
      <SignInForm code={code} />
    </main>
  );
}

function SignInForm({ code = "", user = "" }: { code?: string; user?: string }) {
  const username = useSignal(user);
  const password = useSignal("");
  const error = useSignal<ApiError | null>(null);
  const isBusy = useSignal(false);
  const form = useRef<HTMLFormElement>(null);

  const start = async (credentials: Credentials) => {
    isBusy.value = true;
    error.value = null;
    try {
      await signIn(credentials);
      const { path } = address.value;
      // After an expired session the same page goes on.
      if (["/", "/sign-in"].includes(path)) goOn();
      // Any other page is there by now, and has its own requests.
      if (path === "/sign-in") requestJobsEarly();
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      error.value = problem;
      password.value = "";
      // The code is used up.
      if ("code" in credentials) navigate(href("/sign-in"), { replace: true });
    } finally {
      isBusy.value = false;
    }
  };

  // Before anything is painted: the code is exchanged meanwhile.
  useLayoutEffect(() => {
    if (code) void start({ code });
    // oxlint-disable-next-line react/exhaustive-deps -- a code is used once
  }, [code]);

  // Where to type next.
  useEffect(() => {
    form.current?.querySelector<HTMLElement>(username.value ? "[name=password]" : "[name=username]")?.focus();
  }, [error.value, username]);

  if (code && !error.value) return <Loading what="the portal" />;
  return (
    <form
      class="card form"
      ref={form}
      onSubmit={(event) => {
        event.preventDefault();
        void start({ username: username.value.trim(), password: password.value });
      }}
    >
      <div class="brand">
        <img src="portal/icon.svg" alt="" width="26" height="26" />
        OpenPAI
      </div>
      <h1>Sign in</h1>
      {error.value ? <ErrorNotice error={error.value} /> : signedOutReason.value && <p class="notice">{signedOutReason.value}</p>}
      <label>
        <span>User name</span>
        <input
          name="username"
          autocomplete="username"
          autocapitalize="none"
          required
          value={username.value}
          onInput={(event) => (username.value = event.currentTarget.value)}
        />
      </label>
      <label>
        <span>Password</span>
        <input
          name="password"
          type="password"
          autocomplete="current-password"
          required
          autofocus={user !== ""}
          value={password.value}
          onInput={(event) => (password.value = event.currentTarget.value)}
        />
      </label>
      <button class="button primary" disabled={isBusy.value}>
        {isBusy.value ? "Signing in …" : "Sign in"}
      </button>
      <p class="quiet">
        From a shell, <code>pai open</code> signs you in without a password.
      </p>
      {session.value && !isSessionExpired.value && (
        <p>
          <a href={href("/jobs")}>Go on as {session.value.user}</a>
        </p>
      )}
    </form>
  );
}

/** To the page that the link names, or to the jobs. */
function goOn(): void {
  const to = address.value.query.get("to") ?? "";
  navigate(to.startsWith("/") ? `#${to}` : href("/jobs"), { replace: true });
}
