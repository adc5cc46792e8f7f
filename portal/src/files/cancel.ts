// What an upload does when it is cancelled.
import { session } from "../session.ts";

const watched = new WeakSet<AbortSignal>();

/** Do something when an upload is cancelled by its user; when another one has signed in, it would be done in the name
 *  of that one. A retry has the same signal, and must not do it once more. */
export function onceAborted(signal: AbortSignal, action: () => Promise<unknown>): void {
  if (watched.has(signal)) return;
  watched.add(signal);
  const user = session.value?.user;
  const cancel = () => {
    if (session.value?.user === user) void action().catch(() => undefined);
  };
  signal.addEventListener("abort", cancel, { once: true });
}
