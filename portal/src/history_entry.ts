// What an entry of the browser's history keeps, so that Back and Forward restore it: the scroll position, and what its
// page keeps of the user's choices.
import { session } from "./session.ts";

const SAVE_MS = 100;
/** A page that is loaded grows to its former height within this time. */
const RESTORE_MS = 3000;

interface EntryState {
  readonly scroll?: number;
  /** Of this user; another one gets nothing of it. */
  readonly user?: string;
  readonly kept?: Readonly<Record<string, unknown>>;
}

let restoring: AbortController | undefined;
let saving: ReturnType<typeof setTimeout> | undefined;

function state(): EntryState {
  const value: unknown = history.state;
  return typeof value === "object" && value !== null ? value : {};
}

function change(changes: EntryState): void {
  history.replaceState({ ...state(), ...changes }, "");
}

/** What the page of this entry kept by that name; undefined for a new entry. */
export function keptInEntry(name: string): unknown {
  const { user, kept } = state();
  return user === session.value?.user ? kept?.[name] : undefined;
}

export function keepInEntry(name: string, value: unknown): void {
  const user = session.value?.user;
  if (user === undefined) return;
  const { kept, user: before } = state();
  change({ user, kept: { ...(before === user ? kept : {}), [name]: value } });
}

/** Give the entry another address: it stays scrolled, and what was chosen at the address before is not kept. */
export function replaceEntry(address: string): void {
  const { scroll } = state();
  history.replaceState(scroll === undefined ? null : { scroll }, "", address);
}

/** Whether the page is scrolled to where it was; it has not to begin at its top. */
export function isRestoringScroll(): boolean {
  return restoring !== undefined;
}

/** Note the scroll position of each entry, and restore it when the user comes back to it. */
export function rememberScroll(): void {
  history.scrollRestoration = "manual";
  addEventListener("scroll", () => {
    if (restoring) return;
    clearTimeout(saving);
    saving = setTimeout(saveScroll, SAVE_MS);
  });
  // A link may lead away before that.
  addEventListener("click", saveScroll, { capture: true });
  addEventListener("popstate", restoreScroll);
  restoreScroll();
}

export function saveScroll(): void {
  clearTimeout(saving);
  if (!restoring && state().scroll !== scrollY) change({ scroll: scrollY });
}

function restoreScroll(): void {
  clearTimeout(saving);
  restoring?.abort();
  const { scroll } = state();
  if (!scroll) return;
  const abort = (restoring = new AbortController());
  const observer = new ResizeObserver(() => scrollTo(0, scroll));
  observer.observe(document.body);
  const timer = setTimeout(() => abort.abort(), RESTORE_MS);
  abort.signal.addEventListener("abort", () => {
    observer.disconnect();
    clearTimeout(timer);
    if (restoring === abort) restoring = undefined;
  });
  // From now on the user decides.
  for (const kind of ["wheel", "touchstart", "pointerdown", "keydown"]) {
    addEventListener(kind, () => abort.abort(), { once: true, capture: true, signal: abort.signal });
  }
}
