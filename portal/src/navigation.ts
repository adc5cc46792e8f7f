// Pages in the left pane, with the key that opens each after `g`; what a shortcut does.
import { href, navigate } from "./router.ts";
import { session } from "./session.ts";

const PAGES = [
  { path: "/home", label: "Home", icon: "home", key: "h" },
  { path: "/submit", label: "Submit Job", icon: "submit", key: "s" },
  { path: "/jobs", label: "Jobs", icon: "jobs", key: "j" },
  { path: "/files", label: "Files", icon: "files", key: "f" },
  { path: "/cluster", label: "Cluster", icon: "cluster", key: "c" },
  { path: "/profile", label: "Profile", icon: "profile", key: "p" },
  { path: "/admin", label: "Admin", icon: "admin", key: "a" },
] as const;

/** Time between `g` and the key of a page. */
const PAIR_MS = 2000;
/** Opened by `/` on pages that have no search. */
const SEARCH_PAGE = "/jobs";
const SEARCH_FIELD = "main input[type=search]";
/** Where keys are text, or have another meaning. */
const TYPING = "input:not([type=checkbox], [type=range]), textarea, select, [contenteditable], .xterm, .editor, [role=dialog], dialog";

export const pagesOfUser = () => PAGES.filter(({ path }) => path !== "/admin" || session.value?.admin);

/** Whether the page that is opened gives the focus to its search. */
let isSearchWanted = false;

/** Focus the search of this page, which is shown now, if a shortcut has opened it for that. */
export function focusWantedSearch(path: string): boolean {
  // The effect of the page before it may run late.
  if (!isSearchWanted || path !== SEARCH_PAGE) return false;
  isSearchWanted = false;
  return focusSearch();
}

function focusSearch(): boolean {
  const fields = document.querySelectorAll<HTMLInputElement>(SEARCH_FIELD);
  const field = [...fields].find((one) => one.getClientRects().length > 0);
  field?.focus();
  field?.select();
  return field !== undefined;
}

/** Listen to the shortcuts of all pages; returns the function that ends it. */
export function listenToShortcuts(onHelp: () => void): () => void {
  let prefixMs = -Infinity;
  const onKeyDown = (event: KeyboardEvent) => {
    const { key, timeStamp } = event;
    const [target] = event.composedPath();
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented || event.isComposing) return;
    if ((target instanceof Element && target.closest(TYPING)) || document.querySelector("dialog[open]")) return;
    const isPair = timeStamp - prefixMs < PAIR_MS;
    prefixMs = -Infinity;
    const page = isPair ? pagesOfUser().find((one) => one.key === key) : undefined;
    if (page) navigate(href(page.path));
    else if (key === "g") prefixMs = timeStamp;
    else if (key === "?") onHelp();
    else if (key === "/") {
      if (!focusSearch()) {
        isSearchWanted = true;
        navigate(href(SEARCH_PAGE));
      }
    } else return;
    event.preventDefault();
  };
  document.addEventListener("keydown", onKeyDown);
  return () => document.removeEventListener("keydown", onKeyDown);
}
