// What a page shows instead of its content, and the state of a job.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { ApiError } from "../api.ts";
import { stateName } from "../format.ts";

export function State({ state }: { state: string }) {
  return <span class={`state ${state}`}>{stateName(state)}</span>;
}

export function ErrorNotice({ error }: { error: ApiError }) {
  return (
    <div class="notice bad" role="alert">
      <p>{error.message}</p>
      {error.hint && <p>{error.hint}</p>}
    </div>
  );
}

/** A word while something loads; nothing in the first 300 ms, so that quick answers do not flicker. */
export function Loading({ what }: { what: string }) {
  const isSlow = useSignal(false);
  useEffect(() => {
    const timer = setTimeout(() => (isSlow.value = true), 300);
    return () => clearTimeout(timer);
  }, [isSlow]);
  return <div class="empty">{isSlow.value && <p role="status">Loading {what} …</p>}</div>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}
