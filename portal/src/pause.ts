// Pauses between requests that are repeated.

const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 10_000;

export function backoffMs(failures: number): number {
  return Math.min(RETRY_MIN_MS * 2 ** (failures - 1), RETRY_MAX_MS);
}

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
