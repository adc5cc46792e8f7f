// Search in a log: in what is shown at once, beyond it by the cluster.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { LogText } from "./log_text.ts";

export type Direction = "forward" | "backward";

/** What the search needs of the page that shows the log. */
export interface SearchedLog {
  readonly element: { readonly current: HTMLElement | null };
  readonly text: { readonly current: LogText | null };
  /** Whether there is output before, or after, what is shown. */
  readonly hasMore: (direction: Direction) => boolean;
  /** Find the text beyond what is shown, or from the log's other end, and show its surroundings; returns the
   * offset of its line, or null if the log does not contain it there. */
  readonly showBeyond: (wanted: string, direction: Direction, isFromEnd: boolean, signal: AbortSignal) => Promise<number | null>;
}

export interface Search {
  readonly wanted: Signal<string>;
  readonly status: Signal<string>;
  /** Search again, after the text has changed. */
  readonly renew: () => void;
  readonly find: (text: string) => void;
  readonly step: (by: 1 | -1) => void;
  /** Scroll to a part of the text. */
  readonly show: (range: Range | undefined) => void;
}

/** Marks what is found with the browser's highlights: the text itself is not touched. */
export function useSearch(log: SearchedLog): Search {
  const wanted = useSignal("");
  const status = useSignal("");
  const state = useRef({ ranges: [] as Range[], current: 0, abort: new AbortController() }).current;
  const isPart = () => log.hasMore("backward") || log.hasMore("forward");

  const mark = () => {
    const count = state.ranges.length;
    if (!wanted.value) status.value = "";
    else if (count) status.value = `${state.current + 1} of ${count}${isPart() ? " shown" : ""}`;
    else status.value = isPart() ? "Not here. Enter searches the whole log." : "Not found";
    if (!("highlights" in CSS)) return;
    const now = state.ranges[state.current];
    CSS.highlights.set("found", new Highlight(...state.ranges));
    CSS.highlights.set("current", now ? new Highlight(now) : new Highlight());
  };
  const renew = () => {
    if (!wanted.value && !state.ranges.length) return;
    state.ranges = log.text.current?.find(wanted.value) ?? [];
    state.current = Math.max(0, Math.min(state.current, state.ranges.length - 1));
    mark();
  };
  const show = (range: Range | undefined) => {
    const block = range?.startContainer.parentElement?.closest(".block");
    const box = log.element.current;
    if (!range || !box) return;
    // A block that was never on screen has no lines yet.
    block?.scrollIntoView({ block: "nearest" });
    requestAnimationFrame(() => {
      box.scrollTop += range.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
    });
  };
  const select = (index: number) => {
    state.current = index;
    mark();
    show(state.ranges[state.current]);
  };
  const searchBeyond = async (by: 1 | -1) => {
    const { signal } = (state.abort = new AbortController());
    const text = wanted.value;
    const direction = by < 0 ? "backward" : "forward";
    status.value = "Searching…";
    // First what follows in this direction, then from the other end of the log.
    for (const isFromEnd of [false, true]) {
      if (!isFromEnd && !log.hasMore(direction)) continue;
      const line = await log.showBeyond(text, direction, isFromEnd, signal);
      if (signal.aborted) return;
      if (line === null) continue;
      renew();
      const first = log.text.current?.firstFrom(line, state.ranges) ?? -1;
      // Output that was overwritten, or is interrupted by colours, is found, but not as it is shown.
      if (first >= 0) select(first);
      else log.text.current?.scrollTo(line);
      return;
    }
    status.value = "Not found in the whole log";
  };
  const step = (by: 1 | -1) => {
    if (!wanted.value) return;
    state.abort.abort();
    const count = state.ranges.length;
    const next = state.current + by;
    if (count && next >= 0 && next < count) select(next);
    else if (!isPart()) select(count ? (next + count) % count : 0);
    // The end of the log is shown at first; there is nothing after it.
    else void searchBeyond(count || log.hasMore("forward") ? by : -1);
  };
  const find = (to: string) => {
    state.abort.abort();
    wanted.value = to;
    renew();
    // The newest is the likeliest.
    if (to) select(Math.max(0, state.ranges.length - 1));
  };
  useEffect(
    () => () => {
      state.abort.abort();
      if ("highlights" in CSS) CSS.highlights.clear();
    },
    [state],
  );
  return { wanted, status, renew, find, step, show };
}

export function SearchField({ search }: { search: Search }) {
  const { wanted, status } = search;
  return (
    <div class="actions" role="search">
      <input
        type="search"
        placeholder="Search"
        aria-label="Search the log"
        value={wanted.value}
        onInput={(event) => search.find(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") search.step(event.shiftKey ? -1 : 1);
        }}
      />
      {wanted.value && (
        <>
          <button class="button" type="button" aria-label="Previous match" onClick={() => search.step(-1)}>
            ↑
          </button>
          <button class="button" type="button" aria-label="Next match" onClick={() => search.step(1)}>
            ↓
          </button>
          <span class="quiet matches" role="status">
            {status.value}
          </span>
        </>
      )}
    </div>
  );
}
