// Log of a task: followed live, searched, wrapped, downloaded. Starts at its end; other parts on request.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ApiError, logAddress, logTimes, searchLog, type LogPlace } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { SearchField, useSearch, type Direction } from "../components/log_search.tsx";
import { lineAt, LogText } from "../components/log_text.ts";
import { LogTimesLoader, precisionNote, type TimeRange } from "../components/log_times.ts";
import { ErrorNotice } from "../components/notices.tsx";
import { toast } from "../components/toasts.tsx";
import { isFinished } from "../format.ts";
import { followJob } from "../live.ts";
import { pause } from "../pause.ts";
import { address, setQuery } from "../router.ts";
import { tasksOf } from "./job_tasks.tsx";

const TAIL_LINES = 5000;
/** Of long lines fewer are shown at first. */
const TAIL_BYTES = 2 << 20;
const PART_BYTES = 1 << 20;
/** Parts that are read from the beginning to find a line; the last ones stay in the page. */
const MAX_LINE_PARTS = 64;
/** What is shown around a match, before and after it. */
const SURROUNDINGS_BYTES = 256 << 10;
/** Tasks that are listed for a choice; of more, the table of tasks links to each log. */
const MAX_LISTED = 200;
const AT_END_PX = 30;
const NEWLINE = 10;
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
  const latestTry = tasks.find((task) => task.role === role && task.taskIndex === index)?.attemptId ?? 0;
  const ended = endedAttempt(job, query, latestTry);
  const endedKey = ended && `${ended.attempt}.${ended.taskAttempt}`;

  const element = useRef<HTMLDivElement>(null);
  const text = useRef<LogText | null>(null);
  const place = useRef<LogPlace | null>(null);
  const hasEarlier = useSignal(false);
  /** Whether a part away from the log's end is shown; then new output is not. */
  const isAway = useSignal(false);
  const followed = useSignal(0);
  const isEmpty = useSignal(true);
  const isFollowing = useSignal(true);
  const isWrapped = useSignal(localStorage.getItem("pai-log-wrap") === "yes");
  const isNumbered = useSignal(localStorage.getItem("pai-log-numbers") !== "no");
  const isTimed = useSignal(localStorage.getItem("pai-log-times") === "yes");
  /** In milliseconds; null of a log without times, undefined until they are requested. */
  const precision = useSignal<number | null | undefined>(undefined);
  const times = useRef<LogTimesLoader | null>(null);
  const error = useSignal<ApiError | null>(null);
  const wantedLine = Math.max(0, Number.parseInt(query.get("line") ?? "", 10) || 0);

  const toEnd = () => {
    if (wantedLine) setQuery({ line: undefined }, { replace: true });
    followed.value += 1;
    isFollowing.value = true;
  };
  /** Bytes of the log, its whole size, and the offset of the bytes. */
  const readRange = async (range: string, signal?: AbortSignal): Promise<[Uint8Array, number, number]> => {
    const from = await logAddress(framework, place.current as LogPlace, stream);
    const response = await fetch(from, { headers: { Range: `bytes=${range}` }, signal: signal ?? null });
    if (!response.ok) throw new ApiError("This part of the log cannot be read.", response.status);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const [, start, size] = /^bytes (\d+)-\d+\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "") ?? [];
    return [bytes, Number(size ?? bytes.length), Number(start ?? 0)];
  };
  const read = (start: number, end: number, signal?: AbortSignal) => readRange(`${start}-${end - 1}`, signal);
  /** Show the end of a log that does not grow. */
  const showEnded = async (log: LogText, signal: AbortSignal) => {
    const [bytes, , start] = await readRange(`-${TAIL_BYTES}`, signal);
    if (signal.aborted) return;
    const line = start === 0 ? 0 : bytes.indexOf(NEWLINE) + 1;
    log.show(bytes, start, start + line);
    hasEarlier.value = log.start > 0;
    isEmpty.value = bytes.length === 0;
    if (element.current) element.current.scrollTop = element.current.scrollHeight;
  };
  const showBeyond = async (wanted: string, direction: Direction, isFromEnd: boolean, signal: AbortSignal) => {
    const log = text.current;
    const at = place.current;
    if (!log || !at) return null;
    const from = isFromEnd ? undefined : direction === "backward" ? log.start : log.end;
    let line: number | null = null;
    await reported(async () => {
      const hit = await searchLog(framework, at, { stream, text: wanted, direction, from }, signal);
      if (!hit || signal.aborted) return;
      const start = Math.max(0, hit.lineOffset - SURROUNDINGS_BYTES);
      const [bytes, size] = await read(start, hit.offset + SURROUNDINGS_BYTES, signal);
      if (signal.aborted) return;
      log.show(bytes, start, hit.lineOffset);
      line = hit.lineOffset;
      hasEarlier.value = log.start > 0;
      isAway.value = true;
      isFollowing.value = false;
      if (log.end >= size && (ended || isFinished(job.jobStatus.state))) isAway.value = false;
    }, signal);
    return line;
  };
  const search = useSearch({
    element,
    text,
    hasMore: (direction) => (direction === "backward" ? hasEarlier.value : isAway.value),
    showBeyond,
  });

  // Before anything is painted: the log is requested meanwhile.
  useLayoutEffect(() => {
    const box = element.current;
    if (!box || !role) return;
    const log = (text.current = new LogText(box));
    const abort = new AbortController();
    const { signal } = abort;
    const loadTimes = async (range: TimeRange) => {
      const at = place.current;
      return at && isTimed.value ? logTimes(framework, at, stream, range, signal) : null;
    };
    const loader = new LogTimesLoader(
      log,
      loadTimes,
      (ms) => pause(ms, signal),
      signal,
      (ms) => (precision.value = ms),
    );
    times.current = loader;
    log.onChange = () => void reported(() => loader.update(), signal);
    precision.value = undefined;
    isEmpty.value = true;
    hasEarlier.value = false;
    isAway.value = false;
    error.value = null;
    place.current = null;
    const report = (problem: unknown) => {
      if (abort.signal.aborted) return;
      if (!(problem instanceof ApiError)) throw problem;
      error.value = problem;
    };
    if (ended) {
      place.current = { role, index, ...ended };
      showEnded(log, abort.signal).catch(report);
      return () => abort.abort();
    }
    const limits = { tail: String(TAIL_LINES), tailBytes: String(TAIL_BYTES) };
    const parameters = { role, index: String(index), stream, ...limits };
    followJob(
      framework,
      parameters,
      (frame, bytes) => {
        if (frame.kind !== "log" || isAway.value) return;
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
    ).catch(report);
    return () => abort.abort();
    // oxlint-disable-next-line react/exhaustive-deps -- `endedKey` names the attempt; functions are new in each render: with them, each would request the log
  }, [framework, role, index, stream, endedKey, followed.value]);

  const loadEarlier = () =>
    reported(async () => {
      const log = text.current;
      if (!log || !place.current) return;
      const start = Math.max(0, log.start - PART_BYTES);
      const [bytes] = await read(start, log.start);
      log.prepend(bytes, start);
      hasEarlier.value = start > 0;
      isFollowing.value = false;
      search.renew();
    });
  /** Show the beginning of the log, with this line. */
  const showFromStart = (line: number, signal?: AbortSignal) =>
    reported(async () => {
      const log = text.current;
      if (!log || !place.current) return;
      isFollowing.value = false;
      // Output that comes meanwhile does not follow what is shown.
      isAway.value = true;
      const [bytes, size, start] = await read(0, PART_BYTES, signal);
      if (signal?.aborted) return;
      log.show(bytes, start, start);
      const most = start === 0 ? MAX_LINE_PARTS : 1;
      for (let parts = 1; !log.hasLine(line) && log.end < size && parts < most; parts += 1) {
        const [more] = await read(log.end, log.end + PART_BYTES, signal);
        if (signal?.aborted) return;
        log.append(more, log.end);
      }
      hasEarlier.value = log.start > start;
      isAway.value = log.end < size;
      if (element.current) element.current.scrollTop = 0;
      search.renew();
      if (line > 1 && !log.hasLine(line)) toast(lineProblem(line, start, log.end < size));
    }, signal);
  const showLine = async (line: number, signal: AbortSignal) => {
    if (!text.current?.hasLine(line)) await showFromStart(line, signal);
    const range = signal.aborted ? null : text.current?.rangeOfLine(line);
    if (!range) return;
    isFollowing.value = false;
    search.show(range);
    if ("highlights" in CSS) CSS.highlights.set("line", new Highlight(range));
  };
  useEffect(() => {
    if (!wantedLine || isEmpty.value) return;
    const abort = new AbortController();
    void showLine(wantedLine, abort.signal);
    return () => {
      abort.abort();
      if ("highlights" in CSS) CSS.highlights.delete("line");
    };
    // oxlint-disable-next-line react/exhaustive-deps -- functions are new in each render: with them, each render would scroll to the line
  }, [wantedLine, isEmpty.value]);
  const loadLater = () =>
    reported(async () => {
      const log = text.current;
      if (!log || !place.current) return;
      const [bytes, size] = await read(log.end, log.end + PART_BYTES);
      log.append(bytes, log.end);
      hasEarlier.value = log.start > 0;
      // What a running task writes from now on is followed again.
      if (log.end >= size) toEnd();
      else search.renew();
    });
  const download = () =>
    reported(async () => {
      const at = place.current;
      if (!at) return;
      const link = document.createElement("a");
      link.href = await logAddress(framework, at, stream);
      // The cluster names the file: job, task and attempt.
      link.download = "";
      link.click();
    });
  const ofWrapped = isWrapped.value && precision.value !== null ? "Lines that are wrapped have no time stamps." : "";
  const timesNote = isTimed.value ? ofWrapped || precisionNote(precision.value) : "";
  const onScroll = () => {
    const box = element.current;
    if (box) isFollowing.value = !isAway.value && box.scrollHeight - box.scrollTop - box.clientHeight < AT_END_PX;
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
              setQuery({ role: chosen, index: number, try: undefined, line: undefined });
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
        {latestTry > 0 && (
          <select
            aria-label="Attempt of the task"
            value={String(ended?.taskAttempt ?? latestTry)}
            onChange={({ currentTarget: { value } }) => setQuery({ try: value === String(latestTry) ? undefined : value, line: undefined })}
          >
            {Array.from({ length: latestTry + 1 }, (_, number) => (
              <option key={number} value={String(number)}>
                Attempt {number + 1} of the task
              </option>
            ))}
          </select>
        )}
        <select
          aria-label="Stream"
          value={stream}
          onChange={({ currentTarget: { value } }) => setQuery({ stream: value === "all" ? undefined : value, line: undefined })}
        >
          {STREAMS.map((one) => (
            <option key={one.name} value={one.name}>
              {one.label}
            </option>
          ))}
        </select>
        <SearchField search={search} />
        {!ended && (
          <Toggle
            label="Follow"
            value={isFollowing}
            onChange={(isOn) => {
              const box = element.current;
              if (isOn && isAway.value) toEnd();
              else if (isOn && box) box.scrollTop = box.scrollHeight;
            }}
          />
        )}
        <input
          type="number"
          class="line"
          min="1"
          placeholder="Line"
          aria-label="Go to line"
          value={wantedLine ? String(wantedLine) : ""}
          onChange={({ currentTarget: { value } }) => setQuery({ line: value })}
        />
        <Toggle label="Line numbers" value={isNumbered} onChange={(isOn) => localStorage.setItem("pai-log-numbers", isOn ? "yes" : "no")} />
        <Toggle
          label="Time stamps"
          value={isTimed}
          onChange={(isOn) => {
            localStorage.setItem("pai-log-times", isOn ? "yes" : "no");
            if (isOn) void reported(async () => times.current?.update());
          }}
        />
        <Toggle label="Wrap lines" value={isWrapped} onChange={(isOn) => localStorage.setItem("pai-log-wrap", isOn ? "yes" : "no")} />
        <button class="button" type="button" disabled={isEmpty.value} onClick={() => void download()}>
          Download
        </button>
      </div>
      {error.value && <ErrorNotice error={error.value} />}
      {(hasEarlier.value || isAway.value) && (
        <div class="log-tools">
          {hasEarlier.value && (
            <>
              <button class="button" type="button" onClick={() => void loadEarlier()}>
                Show earlier output
              </button>
              <button class="button" type="button" onClick={() => void showFromStart(1)}>
                Go to the start
              </button>
            </>
          )}
          {isAway.value && (
            <>
              <button class="button" type="button" onClick={() => void loadLater()}>
                Show later output
              </button>
              <button class="button" type="button" onClick={toEnd}>
                Go to the end
              </button>
            </>
          )}
        </div>
      )}
      {isEmpty.value && !error.value && (
        <p class="log-tools quiet" role="status">
          {ended || isFinished(job.jobStatus.state) ? "The task wrote nothing." : "No output yet."}
        </p>
      )}
      {timesNote && (
        <p class="log-tools quiet" role="status">
          {timesNote}
        </p>
      )}
      <div class={isWrapped.value ? "" : `${isNumbered.value ? "numbered" : ""}${isTimed.value ? " timed" : ""}`}>
        <div
          ref={element}
          class={`log${isWrapped.value ? " wrap" : ""}`}
          role="log"
          aria-label="Log"
          aria-live="off"
          tabIndex={0}
          onScroll={onScroll}
          onClick={({ target, clientX, clientY }) => {
            const line = lineAt(target as Element, clientX, clientY);
            if (line !== undefined) setQuery({ line: String(line) });
          }}
        />
      </div>
    </div>
  );
}

/** The attempt that the address names, if it is an earlier one: its log does not grow. */
function endedAttempt(job: JobDetail, query: URLSearchParams, latestTry: number): Omit<LogPlace, "role" | "index"> | null {
  const { attemptId: attempt, appCompletedTime: completed } = job.jobStatus;
  const taskAttempt = Number.parseInt(query.get("try") ?? "", 10);
  const isEarlierTry = taskAttempt >= 0 && taskAttempt < latestTry;
  const isEarlierAttempt = query.get("attempt") !== null && completed !== null;
  if (!isEarlierAttempt && !isEarlierTry) return null;
  return { attempt, taskAttempt: isEarlierTry ? taskAttempt : latestTry };
}

function lineProblem(line: number, start: number, hasMore: boolean): string {
  if (start > 0) return "The log has lost its beginning, so its lines have no numbers.";
  return hasMore
    ? `Line ${line} is too far from the beginning to be counted. Search finds a text anywhere.`
    : `The log has no line ${line}.`;
}

async function reported(action: () => Promise<void>, signal?: AbortSignal): Promise<void> {
  try {
    await action();
  } catch (error) {
    if (signal?.aborted) return;
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
