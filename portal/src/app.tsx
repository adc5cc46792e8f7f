// The frame around every page: left pane, page of the address, messages.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { isConnected, signOut } from "./api.ts";
import { Icon } from "./components/icons.tsx";
import { lazy } from "./components/lazy.tsx";
import { Empty } from "./components/notices.tsx";
import { Toasts } from "./components/toasts.tsx";
import { SignOutEverywhere } from "./components/sign_out.tsx";
import { useScrollLine } from "./components/scroll_line.ts";
import { HomePage } from "./pages/home.tsx";
import { JobPage } from "./pages/job.tsx";
import { JobsPage } from "./pages/jobs.tsx";
import { SignInAgain, SignInPage } from "./pages/sign_in.tsx";
import { ClusterPage } from "./pages/cluster.tsx";
import { address, href, type Address } from "./router.ts";
import { isSessionExpired, session } from "./session.ts";
import { theme, toggleTheme } from "./theme.ts";

const NAVIGATION = [
  { path: "/home", label: "Home", icon: "home" },
  { path: "/submit", label: "Submit Job", icon: "submit" },
  { path: "/jobs", label: "Jobs", icon: "jobs" },
  { path: "/files", label: "Files", icon: "files" },
  { path: "/cluster", label: "Cluster", icon: "cluster" },
  { path: "/profile", label: "Profile", icon: "profile" },
  { path: "/admin", label: "Admin", icon: "admin" },
] as const;

const AdminPage = lazy("the administration", async () => (await import("./pages/admin.tsx")).AdminPage);
const FilesPage = lazy("the files", async () => (await import("./pages/files.tsx")).FilesPage);
const SubmitPage = lazy("the editor", async () => (await import("./pages/submit.tsx")).SubmitPage);
const ProfilePage = lazy("your profile", async () => (await import("./pages/profile.tsx")).ProfilePage);

export function App() {
  const { path, query } = address.value;
  if (!session.value || path === "/sign-in") return <SignInPage code={query.get("code") ?? ""} />;
  const { user } = session.value;
  return (
    <>
      <a class="skip" href="#main" onClick={focusMain}>
        Skip to the page
      </a>
      {/* Another user gets none of what is in the pages of this one. */}
      <div class={isSessionExpired.value ? "shell resting" : "shell"} key={user}>
        <LeftPane path={path} />
        <Main path={path}>{pageOf(address.value)}</Main>
      </div>
      {isSessionExpired.value && <SignInAgain user={user} />}
      {!isConnected.value && (
        <div class="offline" role="status">
          The cluster does not answer. Trying again …
        </div>
      )}
      <Toasts />
    </>
  );
}

function pageOf({ path, query }: Address): ComponentChildren {
  const [, page = "", name = ""] = path.split("/");
  if (page === "jobs" && name) return <JobPage key={name} framework={decoded(name)} />;
  if (page === "jobs" || page === "") return <JobsPage query={query} />;
  if (page === "submit") return <SubmitPage key={query.get("clone") ?? ""} clone={query.get("clone") ?? ""} />;
  if (page === "files") return <FilesPage rest={path.slice("/files".length)} />;
  if (page === "profile") return <ProfilePage />;
  if (page === "home") return <HomePage />;
  if (page === "cluster") return <ClusterPage />;
  if (page === "admin") return <AdminPage />;
  return (
    <Empty title="There is no such page">
      <a href={href("/jobs")}>Jobs</a>
    </Empty>
  );
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The page. A new one gets the focus, so that keyboards and screen readers start there. */
function Main({ path, children }: { path: string; children: ComponentChildren }) {
  const element = useRef<HTMLElement>(null);
  const shown = useRef(path);
  useEffect(() => {
    if (shown.current === path) return;
    shown.current = path;
    scrollTo(0, 0);
    element.current?.focus();
  }, [path]);
  return (
    <main id="main" ref={element} tabIndex={-1}>
      {children}
    </main>
  );
}

function focusMain(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function LeftPane({ path }: { path: string }) {
  const current = path === "/" ? "/jobs" : path;
  const page = current.split("/")[1] ?? "";
  const nav = useRef<HTMLElement>(null);
  useScrollLine(nav, "[aria-current]", page);
  return (
    <header class="pane">
      <a class="brand" href={href("/jobs")}>
        <img src="portal/icon.svg" alt="" width="26" height="26" />
        OpenPAI
      </a>
      <nav class="nav" aria-label="Pages" ref={nav}>
        {NAVIGATION.filter((entry) => entry.path !== "/admin" || session.value?.admin).map((entry) => (
          <a
            key={entry.path}
            href={href(entry.path)}
            aria-current={current === entry.path || current.startsWith(`${entry.path}/`) ? "page" : undefined}
          >
            <Icon name={entry.icon} />
            {entry.label}
          </a>
        ))}
      </nav>
      <div class="who">
        <strong>
          <a href={href("/profile")}>{session.value?.user}</a>
        </strong>
        <div class="who-actions">
          <button class="link" type="button" onClick={() => void leave()}>
            Sign out
          </button>
          <SignOutEverywhere class="link everywhere" />
          <button class="link theme" type="button" onClick={toggleTheme}>
            {theme.value === "dark" ? "Light theme" : "Dark theme"}
          </button>
        </div>
      </div>
    </header>
  );
}

async function leave(): Promise<void> {
  // The session ends here in any case; the cluster may be unreachable, or have ended it before.
  await signOut(false).catch(() => undefined);
}
