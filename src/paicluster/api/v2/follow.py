"""Streaming response with a job's states, events and log; see docs/contributing/architecture.md."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Final, Literal

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paicluster.api.context import Context, context
from paicluster.api.jobs.degraded import degraded_event, degraded_reason
from paicluster.api.requests.authentication import authenticate
from paicluster.api.requests.permissions import check_may_see
from paicluster.api.requests.task_log import TaskLog, open_log
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Query, Routes, Text
from paicluster.api.v2.task_logs import wait_for_first
from paicluster.api.wire.jobs import Count
from paicluster.api.wire.query_parameters import choice_param, int_param
from paicluster.api.wire.responses import encode
from paicluster.logs.log_watcher import POLL_INTERVAL_S, Watch
from paicluster.logs.reader import STREAMS, Chunk, Stream
from paicluster.scheduler.resource_requests import decode
from paicluster.services.admission import no_job
from paicluster.store import jobs
from paicluster.store.rows import EventRow, JobRow, TaskRow
from paiprotocol.errors import InvalidParameters, Unavailable

route = Routes("job")

MEDIA_TYPE = "application/vnd.openpai.follow"
PING_INTERVAL_S = 15.0
# States and events only, for clients that wait for the end of the job.
NO_LOG: Final = "none"
_STREAM_CHOICES: tuple[Stream | Literal["none"], ...] = (*STREAMS, NO_LOG)
_LATEST = -1
_FROM = re.compile(r"(\d{1,9})\.(\d{1,9}):(\d{1,18})")


class _View(msgspec.Struct, frozen=True):
    """Current rows of the job and of the followed task."""

    job: JobRow
    task: TaskRow | None
    # Number of the task's latest attempt within this attempt of the job.
    newest: int
    # Oldest first.
    events: tuple[EventRow, ...]


@route(
    "GET /api/v2/jobs/{framework}/follow",
    authority=JOBS,
    summary="Stream a job's states, events and log; docs/contributing/architecture.md has the format",
    query=(
        Query("role"),
        Query("index", Count),
        Query("stream", Literal["stdout", "stderr", "all", "none"]),
        Query("from", description="ATTEMPT.TASKATTEMPT:OFFSET."),
        Query("tail", Count, description="Start with this number of last lines."),
        Query("tailBytes", Count, description="With tail: start with at most so many bytes."),
        Query("follow", bool, description="Stream until the job has finished; by default true."),
        Query("times", bool, description="With the times at which the log was written."),
    ),
    returns={200: Text("application/vnd.openpai.follow", binary=True)},
    other_methods=405,
)
async def follow(request: Request) -> Response:
    identity = await authenticate(request)
    ctx = context(request)
    framework = request.path_params["framework"]
    row, roles = ctx.store.read_inline(lambda conn: job_and_roles(conn, framework))
    check_may_see(identity, row)
    get = request.query_params.get
    choice = choice_param(get("stream"), "stream", _STREAM_CHOICES)
    stream = None if choice == NO_LOG else choice
    role, index = selected_task(row, roles, get("role"), get("index"))
    start = None
    if text := get("from"):
        match = _FROM.fullmatch(text)
        if match is None:
            raise InvalidParameters('"from" has the form ATTEMPT.TASKATTEMPT:OFFSET.')
        start = tuple(int(part) for part in match.groups())
    tail = get("tail")
    lines = None if tail is None else int_param(tail, "tail")
    tail_bytes = int_param(get("tailBytes"), "tailBytes") if get("tailBytes") else None
    until_end = get("follow") != "false"
    follower = _Follower(ctx, row.id, role, index, stream, identity.token_id, until_end=until_end)
    if start is not None:
        follower.attempt, follower.task_attempt, follower.offset = start[0], start[1], start[2]
    else:
        follower.attempt, follower.task_attempt = row.attempt, _LATEST
    # With "from", the tail is that of the attempt named there.
    follower.tail, follower.tail_bytes = lines, tail_bytes
    follower.has_times = get("times") == "true"
    return StreamingResponse(follower.frames(), media_type=MEDIA_TYPE)


def job_and_roles(conn: Connection, framework: str) -> tuple[JobRow, dict[str, int]]:
    """The job, and the number of tasks of each role."""
    row = jobs.get_job(conn, framework)
    if row is None:
        raise no_job(framework)
    # Parsing the job itself would take the event loop up to a fifth of a second.
    roles = decode(jobs.resource_request_of(conn, row.id)).resources.roles
    return row, {role.role: role.instances for role in roles}


def selected_task(row: JobRow, roles: dict[str, int], role: str | None, index: str | None) -> tuple[str, int]:
    """Role and index of the task that a request names; by default the first task of the first role."""
    name = role or next(iter(roles))
    if name not in roles:
        raise InvalidParameters(f"Job {row.name} has no task role {name!r}; it has {', '.join(roles)}.")
    number = int_param(index, "index", 0)
    if number >= roles[name]:
        count = f"{roles[name]} task{'s' if roles[name] != 1 else ''}"
        raise InvalidParameters(f"Task role {name} has {count}, numbered from 0.")
    return name, number


class _Follower:
    """One client that follows a job; with ``until_end`` until it has finished, else what exists now.

    The stream ends with the client's token.
    """

    def __init__(
        self,
        ctx: Context,
        job_id: int,
        role: str,
        index: int,
        stream: Stream | None,
        token_id: str,
        *,
        until_end: bool,
    ):
        self._ctx = ctx
        self._job_id = job_id
        self._role = role
        self._index = index
        self._stream = stream
        # Those of the followed task attempt.
        self._log: TaskLog | None = None
        self._log_watch: Watch | None = None
        self._log_uid = ""
        # Whether the folder of the log does not answer: its next bytes, and its end, are unknown.
        self._is_stalled = False
        self._token_id = token_id
        self._until_end = until_end
        self.attempt = 0
        self.task_attempt = 0
        self.offset = 0
        self.tail: int | None = None
        self.tail_bytes: int | None = None
        self.has_times = False
        # Event uid to the count that was sent last.
        self._sent_counts: dict[str, int] = {}
        self._last_degraded = ""
        self._last_state: tuple[object, ...] = ()
        self._last_sent = time.monotonic()
        self._drained = True

    async def frames(self) -> AsyncIterator[bytes]:
        feed = self._ctx.store.changes
        tokens = self._ctx.identity.tokens
        with feed.watch(self._job_id) as watch, tokens.watch(self._token_id, watch.notify):
            changed = asyncio.ensure_future(watch.wait())
            try:
                view = await self._read_in_turn()
                while view is not None and await tokens.is_live(self._token_id):
                    frames = [*await self._log_frames(view), *self._state_frames(view)]
                    has_more = not self._is_stalled and self._advance(view)
                    is_last = not self._until_end or view.job.sub_state == "Completed"
                    ends = is_last and not has_more and not self._is_stalled
                    if ends and self._until_end:
                        frames.append(_frame(kind="end", state=view.job.state, exitCode=view.job.exit_code))
                    if frames:
                        # In one piece: each piece would wake the client.
                        yield b"".join(frames)
                        self._last_sent = time.monotonic()
                    if has_more:
                        # Writes to a disconnected client succeed at once: yield to the loop to notice it.
                        await asyncio.sleep(0)
                        if self._drained or changed.done():
                            view = await self._read_in_turn()
                        continue
                    if ends or self._ctx.server.closing.is_set():
                        return
                    await self._wait(changed)
                    if time.monotonic() - self._last_sent >= PING_INTERVAL_S:
                        yield _frame(kind="ping")
                        self._last_sent = time.monotonic()
                    if changed.done():
                        changed = asyncio.ensure_future(watch.wait())
                        view = await self._read_in_turn()
            finally:
                changed.cancel()
                if self._log_watch is not None:
                    self._log_watch.close()

    async def _open_log(self, task: TaskRow, stream: Stream) -> tuple[TaskLog, Watch]:
        """The log of this task, and a watch on it."""
        log, watch = self._log, self._log_watch
        if log is None or self._log_uid != task.uid:
            log = await open_log(self._ctx, task.uid, stream)
        elif watch is not None and (watch.has_inotify or log.may_stall):
            return log, watch
        # The intent to run a task is stored before its log folder exists: also the watch is retried.
        if watch is not None:
            watch.close()
        self._log, self._log_watch, self._log_uid = log, log.watch(), task.uid
        return log, self._log_watch

    async def _wait(self, changed: asyncio.Future[None]) -> None:
        """Wait for a change, for new output, or until the next ping or poll is due."""
        timeout_s = max(0.0, self._last_sent + PING_INTERVAL_S - time.monotonic())
        watch = self._log_watch
        if self._is_stalled or (watch is not None and not watch.has_inotify):
            timeout_s = min(timeout_s, POLL_INTERVAL_S)
        await wait_for_first(changed, watch, timeout_s)

    async def _read_in_turn(self) -> _View | None:
        await self._ctx.jobs.follow_turns.take()
        return self._read()

    def _read(self) -> _View | None:
        """Current view; None when the job was deleted."""

        def read(conn: Connection) -> _View | None:
            job = jobs.get_job_by_id(conn, self._job_id)
            if job is None:
                return None
            tasks = jobs.task_attempts_of(conn, job.id, self.attempt, self._role, self._index)
            newest = tasks[0].task_attempt if tasks else 0
            if self.task_attempt == _LATEST:
                self.task_attempt = newest
            task = next((t for t in tasks if t.task_attempt == self.task_attempt), None)
            return _View(job, task, newest, tuple(reversed(jobs.events_of(conn, job.id))))

        return self._ctx.store.read_inline(read)

    async def _log_frames(self, view: _View) -> list[bytes]:
        """The next chunk of the log. Bounded, so that a task with much output cannot fill the memory."""
        task = view.task
        self._is_stalled = False
        if task is None or self._stream is None:
            self._log = None
            return []
        try:
            chunk = await self._next_chunk(task, self._stream)
            times = await self._times_of(chunk)
        except Unavailable:
            self._is_stalled = True
            self._drained = False
            return []
        frames = []
        if chunk.data:
            head = _frame(
                kind="log",
                role=self._role,
                index=self._index,
                attempt=self.attempt,
                taskAttempt=self.task_attempt,
                stream=self._stream,
                offset=chunk.offset,
                size=len(chunk.data),
                **times,
            )
            frames.append(head + chunk.data)
            self.offset = chunk.end
        self._drained = not chunk.data
        return frames

    async def _times_of(self, chunk: Chunk) -> dict[str, object]:
        """Fields of a log frame: without an index of its times none."""
        if not self.has_times or self._log is None or not chunk.data:
            return {}
        found = await self._log.times(chunk.offset, chunk.end)
        return {} if found is None else {"times": found.times, "precisionMs": found.precision_ms}

    async def _next_chunk(self, task: TaskRow, stream: Stream) -> Chunk:
        log, watch = await self._open_log(task, stream)
        if self.tail is not None:
            # In a thread: finding the first line of the tail may read the whole log.
            self.offset = await log.run(partial(log.reader.tail, self.tail, self.tail_bytes))
            self.tail = None
        watch.event.clear()
        return await watch.next_chunk(log.reader, self.offset, is_complete=task.ended)

    def _state_frames(self, view: _View) -> list[bytes]:
        frames = []
        job = view.job
        degraded = degraded_reason(job, self._ctx.controller.degraded_reason(job.framework))
        for event in view.events:
            # A repeated event is sent again.
            if event.count > self._sent_counts.get(event.uid, 0):
                self._sent_counts[event.uid] = event.count
                # A degraded job is not pending for any other reason, whatever older events say.
                if not (degraded and event.pending):
                    frames.append(_event(event))
        if degraded != self._last_degraded:
            self._last_degraded = degraded
            frames.append(_event(degraded_event(job, degraded)))
        # The final state is sent after the last byte of the log.
        if job.sub_state == "Completed" and not self._drained:
            return frames
        state = (job.state, job.sub_state, job.attempt, job.retries, job.exit_code)
        if state != self._last_state:
            self._last_state = state
            frames.append(
                _frame(
                    kind="state",
                    state=job.state,
                    subState=job.sub_state,
                    attempt=job.attempt,
                    retries=job.retries,
                    exitCode=job.exit_code,
                    time=job.completed_ms or job.launched_ms or job.created_ms,
                )
            )
        return frames

    def _advance(self, view: _View) -> bool:
        """Move to the next attempt if this one has ended; True if there is more to send without waiting."""
        if not self._drained:
            return True
        ended = view.task is None or view.task.ended
        if ended and self.task_attempt < view.newest:
            # The task was retried within this attempt of the job.
            self.task_attempt, self.offset = self.task_attempt + 1, 0
            return True
        if ended and self.attempt < view.job.attempt:
            self.attempt, self.task_attempt, self.offset = self.attempt + 1, 0, 0
            return True
        return False


def _event(event: EventRow) -> bytes:
    return _frame(
        kind="event",
        type=event.type,
        reason=event.reason,
        message=event.message,
        pending=event.pending,
        time=event.last_ms,
    )


def _frame(**fields: object) -> bytes:
    return encode(fields) + b"\n"
