// Live data: lists are polled while the page is visible; a job is followed on one open connection.
import { useSignal, type Signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { ApiError, request } from "./api.ts";
import { backoffMs, pause } from "./pause.ts";

export interface Polled<T> {
  readonly value: T | undefined;
  readonly error: ApiError | undefined;
  readonly reload: () => void;
}

/**
 * Load now, whenever `key` changes, and again after the interval that `intervalMs` gives for what was loaded, while the
 * page is visible. Without a key nothing is loaded yet.
 */
export function usePolled<T>(
  key: string | null,
  load: (signal: AbortSignal) => Promise<T>,
  intervalMs: number | ((value: T) => number),
): Polled<T> {
  const state: Signal<{ key: string | null; value?: T; error?: ApiError }> = useSignal({ key });
  const asked = useSignal(0);
  const turn = asked.value;
  // Not `useEffect`, which waits for a frame to be painted: the request can be on its way meanwhile.
  useLayoutEffect(() => {
    if (key === null) return;
    const abort = new AbortController();
    let failures = 0;
    const run = async () => {
      while (!abort.signal.aborted) {
        let waitMs = 0;
        try {
          const value = await load(abort.signal);
          if (abort.signal.aborted) return;
          state.value = { key, value };
          failures = 0;
          waitMs = typeof intervalMs === "number" ? intervalMs : intervalMs(value);
        } catch (error) {
          if (abort.signal.aborted) return;
          if (!(error instanceof ApiError)) throw error;
          const kept = state.peek();
          // Data that was shown, and what is typed beside it, stays while the cluster does not answer.
          state.value = isTransient(error) && kept.key === key && kept.value !== undefined ? kept : { key, error };
          // Another user has signed in, or nobody is: the page disappears.
          if (error.status === 401) return;
          failures += 1;
          waitMs = backoffMs(failures);
        }
        await pause(waitMs, abort.signal);
        await untilVisible(abort.signal);
      }
    };
    void run();
    return () => abort.abort();
    // oxlint-disable-next-line react/exhaustive-deps -- `key` names what is loaded; functions are new in each render
  }, [key, turn]);
  const { value, error } = state.value;
  return {
    value,
    error: state.value.key === key ? error : undefined,
    reload: () => {
      asked.value += 1;
    },
  };
}

/** Statuses of a cluster that starts or has too much to do, and of a server in front of it that does not reach it. */
const TRANSIENT_STATUSES = [0, 429, 502, 503, 504];

function isTransient({ status }: ApiError): boolean {
  return TRANSIENT_STATUSES.includes(status);
}

export interface StateFrame {
  readonly kind: "state" | "end";
  readonly state: string;
}
export interface EventFrame {
  readonly kind: "event";
  readonly type: string;
  readonly reason: string;
  readonly message: string;
  readonly pending: boolean;
  readonly time: number;
}
export interface LogFrame {
  readonly kind: "log";
  readonly role: string;
  readonly index: number;
  readonly attempt: number;
  readonly taskAttempt: number;
  readonly offset: number;
  readonly size: number;
}
export type Frame = StateFrame | EventFrame | LogFrame | { readonly kind: "ping" };

type OnFrame = (frame: Frame, bytes: Uint8Array) => void;

/** Follow a job until it has finished; reconnects where the connection broke off. */
export async function followJob(
  framework: string,
  parameters: Readonly<Record<string, string>>,
  onFrame: OnFrame,
  signal: AbortSignal,
): Promise<void> {
  let from = "";
  let failures = 0;
  while (!signal.aborted) {
    const query = new URLSearchParams(parameters);
    if (from) {
      query.delete("tail");
      query.set("from", from);
    }
    try {
      const path = `api/v2/jobs/${encodeURIComponent(framework)}/follow?${query.toString()}`;
      const response = await request("GET", path, { signal });
      let ended = false;
      await readFrames(response, (frame, bytes) => {
        failures = 0;
        if (frame.kind === "log") from = `${frame.attempt}.${frame.taskAttempt}:${frame.offset + frame.size}`;
        if (frame.kind === "end") ended = true;
        onFrame(frame, bytes);
      });
      if (ended) return;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status !== 0 && error.status < 500 && error.status !== 429) throw error;
      // Anything else is a broken connection.
    }
    failures += 1;
    await pause(backoffMs(failures), signal);
  }
}

const NO_BYTES = new Uint8Array();

/** A frame is a line of JSON; with `size`, that many bytes follow. */
async function readFrames(response: Response, onFrame: OnFrame): Promise<void> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest: Uint8Array = NO_BYTES;
  let head: LogFrame | undefined;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest = joined(rest, value);
    let at = 0;
    for (;;) {
      if (head) {
        if (rest.length - at < head.size) break;
        onFrame(head, rest.subarray(at, at + head.size));
        at += head.size;
        head = undefined;
      }
      const end = rest.indexOf(10, at);
      if (end < 0) break;
      const frame = JSON.parse(decoder.decode(rest.subarray(at, end))) as Frame;
      at = end + 1;
      if (frame.kind === "log" && frame.size) head = frame;
      else onFrame(frame, NO_BYTES);
    }
    rest = rest.slice(at);
  }
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array {
  if (!first.length) return second;
  const all = new Uint8Array(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}

function untilVisible(signal: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", check);
      resolve();
    };
    document.addEventListener("visibilitychange", check);
    signal.addEventListener("abort", check, { once: true });
  });
}
