// The current time as a hook.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/** The time now, renewed every second while something runs. */
export function useNow(isRunning: boolean): number {
  const now = useSignal(Date.now());
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(() => (now.value = Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isRunning, now]);
  return now.value;
}
