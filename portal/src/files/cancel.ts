// What an upload does when it is cancelled.
const watched = new WeakSet<AbortSignal>();

/** Do something when an upload is cancelled. A retry has the same signal, and must not do it once more. */
export function onceAborted(signal: AbortSignal, action: () => Promise<unknown>): void {
  if (watched.has(signal)) return;
  watched.add(signal);
  signal.addEventListener("abort", () => void action().catch(() => undefined), { once: true });
}
