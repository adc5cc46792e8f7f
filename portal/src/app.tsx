// The frame around every page: left pane, page of the address, messages.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { clusterInfo, isConnected, signOut } from "./api.ts";
import { Icon } from "./components/icons.tsx";
import { lazy } from "./components/lazy.tsx";
import { Empty } from "./components/notices.tsx";
import { Toasts } from "./components/toasts.tsx";
import { SignOutEverywhere } from "./components/sign_out.tsx";
import { useScrollLine } from "./components/scroll_line.ts";
import { isRestoringScroll } from "./history_entry.ts";
import { HomePage } from "./pages/home.tsx";
import { JobPage } from "./pages/job.tsx";
import { JobsPage } from "./pages/jobs.tsx";
import { SignInAgain, SignInPage } from "./pages/sign_in.tsx";
import { ClusterPage } from "./pages/cluster.tsx";
import { focusWantedSearch, listenToShortcuts, pagesOfUser } from "./navigation.ts";
import { address, href, type Address } from "./router.ts";
import { isSessionExpired, session } from "./session.ts";
import { theme, toggleTheme } from "./theme.ts";

/** The version in the pane is requested when the page has its own data. */
const VERSION_DELAY_MS = 1500;

const AdminPage = lazy("the administration", async () => (await import("./pages/admin.tsx")).AdminPage);
const ComparePage = lazy("the comparison", async () => (await import("./pages/compare.tsx")).ComparePage);
const FilesPage = lazy("the files", async () => (await import("./pages/files.tsx")).FilesPage);
const SubmitPage = lazy("the editor", async () => (await import("./pages/submit.tsx")).SubmitPage);
const Help = lazy("the help", async () => (await import("./components/help.tsx")).Help);
const ProfilePage = lazy("your profile", async () => (await import("./pages/profile.tsx")).ProfilePage);

export function App() {
  const { path, query } = address.value;
  const isHelpOpen = useSignal(false);
  const version = useSignal("");
  const isSignedIn = session.value !== null && path !== "/sign-in";
  useEffect(() => {
    if (!isSignedIn) return;
    const timer = setTimeout(() => {
      clusterInfo().then(
        (info) => (version.value = info.version ?? ""),
        () => undefined,
      );
    }, VERSION_DELAY_MS);
    const end = listenToShortcuts(() => (isHelpOpen.value = true));
    return () => {
      clearTimeout(timer);
      end();
    };
  }, [isSignedIn, isHelpOpen, version]);
  if (!session.value || path === "/sign-in") return <SignInPage code={query.get("code") ?? ""} />;
  const { user } = session.value;
  return (
    <>
      <a class="skip" href="#main" onClick={focusMain}>
        Skip to the page
      </a>
      {/* Another user gets none of what is in the pages of this one. */}
      <div class={isSessionExpired.value ? "shell resting" : "shell"} key={user}>
        <LeftPane path={path} version={version.value} onHelp={() => (isHelpOpen.value = true)} />
        <Main path={path}>{pageOf(address.value)}</Main>
        {isHelpOpen.value && <Help version={version.value} onClose={() => (isHelpOpen.value = false)} />}
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
  if (page === "compare") return <ComparePage query={query} />;
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
    if (!isRestoringScroll()) scrollTo(0, 0);
    if (!focusWantedSearch(path)) element.current?.focus({ preventScroll: true });
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

interface PaneProps {
  readonly path: string;
  readonly version: string;
  readonly onHelp: () => void;
}

function LeftPane({ path, version, onHelp }: PaneProps) {
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
        {pagesOfUser().map((entry) => (
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
          <button class="link" type="button" onClick={toggleTheme}>
            {theme.value === "dark" ? "Light theme" : "Dark theme"}
          </button>
          <button class="link help" type="button" onClick={onHelp}>
            Help
          </button>
          <span class="quiet version" title="Version of the cluster">
            {version}
          </span>
        </div>
      </div>
    </header>
  );
}

async function leave(): Promise<void> {
  // The session ends here in any case; the cluster may be unreachable, or have ended it before.
  await signOut(false).catch(() => undefined);
}
