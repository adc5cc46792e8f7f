// Sign in with a password, or with the code of a one-time link (`pai open`).
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { ApiError, signIn } from "../api.ts";
import { ErrorNotice, Loading } from "../components/parts.tsx";
import { address, href, navigate } from "../router.ts";
import { signedOutReason } from "../session.ts";
import { requestJobsEarly } from "./jobs.tsx";

type Credentials = Parameters<typeof signIn>[0];

export function SignInPage({ code }: { code: string }) {
  const username = useSignal("");
  const password = useSignal("");
  const error = useSignal<ApiError | null>(null);
  const isBusy = useSignal(false);

  const start = async (credentials: Credentials) => {
    isBusy.value = true;
    error.value = null;
    try {
      await signIn(credentials);
      // After an expired session the same page goes on.
      if (["/", "/sign-in"].includes(address.value.path)) goOn();
      requestJobsEarly();
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
    document.title = "Sign in · OpenPAI";
    if (code) void start({ code });
  }, [code]);

  if (code && !error.value) return <Loading what="the portal" />;
  return (
    <main class="sign-in">
      <form
        class="card form"
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
        {error.value ? (
          <ErrorNotice error={error.value} />
        ) : (
          signedOutReason.value && <p class="notice">{signedOutReason.value}</p>
        )}
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
      </form>
    </main>
  );
}

/** To the page that the link names, or to the jobs. */
function goOn(): void {
  const to = address.value.query.get("to") ?? "";
  navigate(to.startsWith("/") ? `#${to}` : href("/jobs"), { replace: true });
}
