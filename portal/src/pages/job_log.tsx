// Log of a task: followed live, searched, wrapped, downloaded. Starts at its end; earlier parts on request.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, logAddress, type JobDetail, type LogPlace } from "../api.ts";
import { ErrorNotice, toast } from "../components/parts.tsx";
import { LogText } from "../components/log_text.ts";
import { isFinished } from "../format.ts";
import { followJob } from "../live.ts";
import { address, setQuery } from "../router.ts";
import { tasksOf } from "./job_tasks.tsx";

const TAIL_LINES = 5000;
const EARLIER_BYTES = 1 << 20;
/** Tasks that are listed for a choice; of more, the table of tasks links to each log. */
const MAX_LISTED = 200;
const AT_END_PX = 30;
const STREAMS = [
  { name: "all", label: "Output and errors" },
  { name: "stdout", label: "Output" },
  { name: "stderr", label: "Errors" },
];

export function JobLog({ framework, job }: { framework: string; job: JobDetail }) {
  const { query } = address.value;
  const tasks = tasksOf(job);
  const role = query.get("role") ?? tasks[0]?.role ?? "";
  const index = Number.parseInt(query.get("index") ?? "0", 10) || 0;
  const wanted = query.get("stream") ?? "all";
  const stream = STREAMS.some((one) => one.name === wanted) ? wanted : "all";

  const element = useRef<HTMLDivElement>(null);
  const text = useRef<LogText | null>(null);
  const place = useRef<LogPlace | null>(null);
  const hasEarlier = useSignal(false);
  const isEmpty = useSignal(true);
  const isFollowing = useSignal(true);
  const isWrapped = useSignal(localStorage.getItem("pai-log-wrap") === "yes");
  const error = useSignal<ApiError | null>(null);
  const search = useSearch(element, text);

  useEffect(() => {
    const box = element.current;
    if (!box || !role) return;
    const log = (text.current = new LogText(box));
    const abort = new AbortController();
    isEmpty.value = true;
    hasEarlier.value = false;
    error.value = null;
    place.current = null;
    const parameters = { role, index: String(index), stream, tail: String(TAIL_LINES) };
    followJob(
      framework,
      parameters,
      (frame, bytes) => {
        if (frame.kind !== "log") return;
        const before = place.current;
        if (before && (before.attempt !== frame.attempt || before.taskAttempt !== frame.taskAttempt)) {
          log.note(`The task started again: attempt ${frame.attempt + frame.taskAttempt + 1}.`);
        }
        place.current = frame;
        if (isEmpty.value) hasEarlier.value = frame.offset > 0;
        isEmpty.value = false;
        log.append(bytes, frame.offset);
        search.renew();
        if (isFollowing.value) box.scrollTop = box.scrollHeight;
      },
      abort.signal,
    ).catch((problem: unknown) => {
      if (!(problem instanceof ApiError)) throw problem;
      error.value = problem;
    });
    return () => {
      abort.abort();
      text.current = null;
    };
  }, [framework, role, index, stream]);

  const loadEarlier = async () => {
    const log = text.current;
    if (!log || !place.current) return;
    const end = log.start;
    const start = Math.max(0, end - EARLIER_BYTES);
    await reported(async () => {
      const from = await logAddress(framework, place.current as LogPlace, stream);
      const response = await fetch(from, { headers: { Range: `bytes=${start}-${end - 1}` } });
      if (!response.ok) throw new ApiError("This part of the log cannot be read.", response.status);
      log.prepend(new Uint8Array(await response.arrayBuffer()), start);
      hasEarlier.value = start > 0;
      isFollowing.value = false;
      search.renew();
    });
  };
  const download = () =>
    reported(async () => {
      const at = place.current;
      if (!at) return;
      const link = document.createElement("a");
      link.href = await logAddress(framework, at, stream);
      link.download = `${job.name}-${role}-${index}-${stream}.log`;
      link.click();
    });
  const onScroll = () => {
    const box = element.current;
    if (box) isFollowing.value = box.scrollHeight - box.scrollTop - box.clientHeight < AT_END_PX;
  };

  return (
    <div class="card">
      <div class="log-tools">
        {tasks.length > 1 && tasks.length <= MAX_LISTED && (
          <select
            aria-label="Task"
            value={`${role} ${index}`}
            onChange={(event) => {
              const [chosen, number] = event.currentTarget.value.split(" ");
              setQuery({ role: chosen, index: number });
            }}
          >
            {tasks.map((task) => (
              <option key={`${task.role} ${task.taskIndex}`} value={`${task.role} ${task.taskIndex}`}>
                {task.role}[{task.taskIndex}]
              </option>
            ))}
          </select>
        )}
        {tasks.length > MAX_LISTED && (
          <strong>
            {role}[{index}]
          </strong>
        )}
        <select
          aria-label="Stream"
          value={stream}
          onChange={(event) => setQuery({ stream: event.currentTarget.value === "all" ? undefined : event.currentTarget.value })}
        >
          {STREAMS.map((one) => (
            <option key={one.name} value={one.name}>
              {one.label}
            </option>
          ))}
        </select>
        <SearchField search={search} />
        <Toggle
          label="Follow"
          value={isFollowing}
          onChange={(isOn) => {
            const box = element.current;
            if (isOn && box) box.scrollTop = box.scrollHeight;
          }}
        />
        <Toggle
          label="Wrap lines"
          value={isWrapped}
          onChange={(isOn) => localStorage.setItem("pai-log-wrap", isOn ? "yes" : "no")}
        />
        <button class="button" type="button" disabled={isEmpty.value} onClick={() => void download()}>
          Download
        </button>
      </div>
      {error.value && <ErrorNotice error={error.value} />}
      {hasEarlier.value && (
        <div class="log-tools">
          <button class="button" type="button" onClick={() => void loadEarlier()}>
            Show earlier output
          </button>
          <span class="quiet">The search covers what is shown.</span>
        </div>
      )}
      {isEmpty.value && !error.value && (
        <p class="log-tools quiet" role="status">
          {isFinished(job.jobStatus.state) ? "The task wrote nothing." : "No output yet."}
        </p>
      )}
      <div
        ref={element}
        class={`log${isWrapped.value ? " wrap" : ""}`}
        role="log"
        aria-label="Log"
        aria-live="off"
        tabIndex={0}
        onScroll={onScroll}
      />
    </div>
  );
}

async function reported(action: () => Promise<void>): Promise<void> {
  try {
    await action();
  } catch (error) {
    toast(error instanceof ApiError ? error.message : "The cluster does not answer.");
  }
}

interface ToggleProps {
  readonly label: string;
  readonly value: Signal<boolean>;
  readonly onChange: (isOn: boolean) => void;
}

function Toggle({ label, value, onChange }: ToggleProps) {
  return (
    <label>
      <input
        type="checkbox"
        checked={value.value}
        onChange={(event) => {
          value.value = event.currentTarget.checked;
          onChange(value.value);
        }}
      />
      {label}
    </label>
  );
}

// -- search ----------------------------------------------------------------------------------------

interface Search {
  readonly wanted: Signal<string>;
  readonly hits: Signal<number>;
  readonly current: Signal<number>;
  /** Search again, after the text has changed. */
  readonly renew: () => void;
  readonly find: (text: string) => void;
  readonly step: (by: number) => void;
}

/** Marks what is found with the browser's highlights: the text itself is not touched. */
function useSearch(element: { current: HTMLElement | null }, text: { current: LogText | null }): Search {
  const wanted = useSignal("");
  const hits = useSignal(0);
  const current = useSignal(0);
  const ranges = useRef<Range[]>([]);
  const mark = () => {
    if (!("highlights" in CSS)) return;
    const now = ranges.current[current.value];
    CSS.highlights.set("found", new Highlight(...ranges.current));
    CSS.highlights.set("current", now ? new Highlight(now) : new Highlight());
  };
  const renew = () => {
    if (!wanted.value && !ranges.current.length) return;
    ranges.current = text.current?.find(wanted.value) ?? [];
    hits.value = ranges.current.length;
    if (current.value >= hits.value) current.value = Math.max(0, hits.value - 1);
    mark();
  };
  const show = () => {
    const range = ranges.current[current.value];
    const block = range?.startContainer.parentElement;
    if (!range || !block || !element.current) return;
    const box = element.current;
    // A block that was never on screen has no lines yet.
    if (block !== box) block.scrollIntoView({ block: "nearest" });
    requestAnimationFrame(() => {
      box.scrollTop += range.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
    });
  };
  const step = (by: number) => {
    if (!hits.value) return;
    current.value = (current.value + by + hits.value) % hits.value;
    mark();
    show();
  };
  const find = (to: string) => {
    wanted.value = to;
    renew();
    // The newest is the likeliest.
    current.value = Math.max(0, hits.value - 1);
    mark();
    if (to) show();
  };
  useEffect(
    () => () => {
      if ("highlights" in CSS) CSS.highlights.clear();
    },
    [],
  );
  return { wanted, hits, current, renew, find, step };
}

function SearchField({ search }: { search: Search }) {
  const { wanted, hits, current } = search;
  return (
    <div class="actions" role="search">
      <input
        type="search"
        placeholder="Search the log"
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
            {hits.value ? `${current.value + 1} of ${hits.value}` : "Not found"}
          </span>
        </>
      )}
    </div>
  );
}
