// The session: who is signed in. The cookie has one half of the token; this origin keeps the other, the proof.
import { batch, effect, signal, untracked } from "@preact/signals";
import type { BrowserSession } from "./api_types.ts";

export type Session = BrowserSession;

const KEY = "pai-session";

/** What the tabs of this browser share: a session, or why the last one expired. */
interface Stored extends Partial<Session> {
  readonly expired?: string;
}

/** Who is signed in, or was when the session expired. */
export const session = signal<Session | null>(sessionOf(stored()));
/** Whether the cluster has ended the session. Its pages stay, and go on when the same user signs in again. */
export const isSessionExpired = signal(false);
/** Why the user must sign in again. */
export const signedOutReason = signal(stored().expired ?? "");

// Other tabs sign in and out, too.
addEventListener("storage", (event) => {
  if (event.key !== KEY) return;
  const shared = stored();
  if (shared.expired !== undefined) becomeExpired(shared.expired);
  else become(sessionOf(shared));
});

export function startSession(started: Session): void {
  localStorage.setItem(KEY, JSON.stringify(started));
  become(started);
}

/** The user ends the session; nothing of it stays in the page. */
export function endSession(reason = ""): void {
  localStorage.removeItem(KEY);
  become(null, reason);
}

/** The cluster has ended the session. */
export function expireSession(refused: Session, reason: string): void {
  const shared = stored();
  const newer = sessionOf(shared);
  if (newer && newer.proof !== refused.proof) {
    // Another tab has just signed in, and this one has not heard of it yet.
    become(newer);
    return;
  }
  const marked: Stored = { expired: reason };
  if (newer) localStorage.setItem(KEY, JSON.stringify(marked));
  becomeExpired(reason);
}

/** Wait for the session after one that has expired; null if its user signs out, or another one signs in. */
export function nextSession(expired: Session, signal?: AbortSignal): Promise<Session | null> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = effect(() => {
      const now = session.value;
      if (isSessionExpired.value && now === expired) return;
      resolve(now?.user === expired.user ? now : null);
      queueMicrotask(() => stop());
    });
    signal?.addEventListener("abort", () => (stop(), reject(signal.reason as Error)), { once: true });
  });
}

/** Do something when the user signs out, and when another one signs in. */
export function onOtherUser(action: () => void): void {
  let known = session.peek()?.user;
  effect(() => {
    const user = session.value?.user;
    if (user !== known) untracked(action);
    known = user;
  });
}

function become(to: Session | null, reason = ""): void {
  batch(() => {
    signedOutReason.value = reason;
    isSessionExpired.value = false;
    session.value = to;
  });
}

function becomeExpired(reason: string): void {
  batch(() => {
    signedOutReason.value = reason;
    isSessionExpired.value = session.value !== null;
  });
}

function stored(): Stored {
  try {
    return (JSON.parse(localStorage.getItem(KEY) ?? "{}") as Stored | null) ?? {};
  } catch {
    return {};
  }
}

function sessionOf({ user, admin, proof }: Stored): Session | null {
  return typeof user === "string" && typeof proof === "string" ? { user, admin: admin === true, proof } : null;
}
