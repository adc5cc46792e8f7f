// The session: who is signed in. The cookie has one half of the token; this origin keeps the other, the proof.
import { signal } from "@preact/signals";

export interface Session {
  readonly user: string;
  readonly admin: boolean;
  readonly proof: string;
}

const KEY = "pai-session";

export const session = signal<Session | null>(stored());
/** Why the user must sign in again. */
export const signedOutReason = signal("");

// Other tabs sign in and out, too.
addEventListener("storage", (event) => {
  if (event.key === KEY) session.value = stored();
});

export function startSession(started: Session): void {
  localStorage.setItem(KEY, JSON.stringify(started));
  signedOutReason.value = "";
  session.value = started;
}

export function endSession(reason = ""): void {
  localStorage.removeItem(KEY);
  signedOutReason.value = reason;
  session.value = null;
}

function stored(): Session | null {
  try {
    const value = JSON.parse(localStorage.getItem(KEY) ?? "null") as Partial<Session> | null;
    return value && typeof value.user === "string" && typeof value.proof === "string"
      ? { user: value.user, admin: value.admin === true, proof: value.proof }
      : null;
  } catch {
    return null;
  }
}
