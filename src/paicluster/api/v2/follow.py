"""One connection that carries a job's states, events and log; see docs/contributing/architecture.md."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from openpaisdk.errors import InvalidParameters, NotFound
from openpaisdk.protocol import read_job
from openpaisdk.protocol.states import KEEP_WAITING
from paicluster.api.context import Context, authenticate, context
from paicluster.api.degraded import degraded_event, degraded_reason
from paicluster.api.permissions import check_may_see
from paicluster.api.responses import encode, int_param
from paicluster.api.v2.task_logs import wait_for_first
from paicluster.logs.log_watcher import POLL_INTERVAL_S, Watch
from paicluster.logs.reader import STREAMS, LogReader
from paicluster.services.admission import no_job
from paicluster.store import jobs
from paicluster.store.rows import EventRow, JobRow, TaskRow

MEDIA_TYPE = "application/vnd.openpai.follow"
PING_S = 15.0
NO_LOG = "none"
"""States and events only, for those who wait for the end."""
_LATEST = -1
_FROM = re.compile(r"(\d{1,9})\.(\d{1,9}):(\d{1,18})")


@dataclass(frozen=True, slots=True)
class _View:
    """What the database says now of the job and of the task being followed."""

    job: JobRow
    task: TaskRow | None
    # Of the latest attempt of this task in this attempt of the job.
    newest: int
    # The one said last comes last.
    events: tuple[EventRow, ...]


async def follow(request: Request) -> Response:
    identity = await authenticate(request)
    ctx = context(request)
    framework = request.path_params["framework"]
    row, roles = ctx.store.read_inline(lambda conn: _job_and_roles(conn, framework))
    check_may_see(identity, row)
    get = request.query_params.get
    stream = get("stream") or "all"
    if stream not in (*STREAMS, NO_LOG):
        raise InvalidParameters(f'"stream" must be one of {", ".join((*STREAMS, NO_LOG))}, not {stream!r}.')
    role, index = _which(row, roles, get("role"), get("index"))
    start = None
    if text := get("from"):
        match = _FROM.fullmatch(text)
        if match is None:
            raise InvalidParameters('"from" has the form ATTEMPT.TASKATTEMPT:OFFSET.')
        start = tuple(int(part) for part in match.groups())
    tail = get("tail")
    lines = None if tail is None else int_param(tail, "tail")
    follower = _Follower(ctx, row.id, role, index, stream, stay=get("follow") != "false")
    if start is not None:
        follower.attempt, follower.task_attempt, follower.offset = start[0], start[1], start[2]
    else:
        follower.attempt, follower.task_attempt = row.attempt, _LATEST
        follower.tail = lines
    return StreamingResponse(follower.frames(), media_type=MEDIA_TYPE)


def _job_and_roles(conn: Connection, framework: str) -> tuple[JobRow, dict[str, int]]:
    """The job, and how many tasks each of its roles has."""
    row = jobs.get_job(conn, framework)
    if row is None:
        raise no_job(framework)
    spec = jobs.job_spec(conn, row.id)
    if spec is None:
        raise NotFound(f"Config of job {framework} is not found.", code="NoJobConfigError")
    return row, {role.name: role.instances for role in read_job(spec.job, stored=True).task_roles}


def _which(row: JobRow, roles: dict[str, int], role: str | None, index: str | None) -> tuple[str, int]:
    """The task meant: by default the first of the first role."""
    name = role or next(iter(roles))
    if name not in roles:
        raise InvalidParameters(f"Job {row.name} has no task role {name!r}; it has {', '.join(roles)}.")
    number = int_param(index, "index", 0)
    if number >= roles[name]:
        raise InvalidParameters(f"Task role {name} has {roles[name]} tasks, numbered from 0.")
    return name, number


class _Follower:
    def __init__(self, ctx: Context, job_id: int, role: str, index: int, stream: str, *, stay: bool):
        self._ctx = ctx
        self._job_id = job_id
        self._role = role
        self._index = index
        self._stream = stream
        self._stay = stay
        self.attempt = 0
        self.task_attempt = 0
        self.offset = 0
        self.tail: int | None = None
        # How often each was said when it was told of.
        self._told: dict[str, int] = {}
        self._last_trouble = ""
        self._last_state: tuple[object, ...] = ()
        self._last_said = time.monotonic()
        self._drained = True

    async def frames(self) -> AsyncIterator[bytes]:
        feed = self._ctx.store.changes
        growth: Watch | None = None
        watched = ""
        with feed.watch(self._job_id) as watch:
            changed = asyncio.ensure_future(watch.wait())
            try:
                view = self._look()
                while view is not None:
                    # The intent to run a task is known before its folder is made: look for it again.
                    task = view.task if self._stream != NO_LOG else None
                    if task is not None and (watched != task.uid or not _seeing(growth)):
                        if growth is not None:
                            growth.close()
                        growth = self._ctx.log_watcher.watch(self._ctx.logs.log_folder(task.uid))
                        watched = task.uid
                    if task is not None and self.tail is not None:
                        # Where they begin may have to be looked for through the whole log.
                        log = LogReader(self._ctx.logs.log_folder(task.uid), self._stream)
                        self.offset = await asyncio.to_thread(log.tail, self.tail)
                        self.tail = None
                    if growth is not None:
                        growth.event.clear()
                    frames = [*self._log(view), *self._news(view)]
                    more = self._advance(view)
                    over = not more and (not self._stay or view.job.sub_state == "Completed")
                    if over and self._stay:
                        frames.append(_frame(kind="end", state=view.job.state, exitCode=view.job.exit_code))
                    if frames:
                        # At once: what comes in pieces wakes the other side for each.
                        yield b"".join(frames)
                        self._last_said = time.monotonic()
                    if more:
                        # Whoever hung up takes all at once: only others' turn brings word of that.
                        await asyncio.sleep(0)
                        if self._drained or changed.done():
                            view = self._look()
                        continue
                    if over or self._ctx.closing.is_set():
                        return
                    await self._wait(changed, growth)
                    if time.monotonic() - self._last_said >= PING_S:
                        yield _frame(kind="ping")
                        self._last_said = time.monotonic()
                    if changed.done():
                        changed = asyncio.ensure_future(watch.wait())
                        view = self._look()
            finally:
                changed.cancel()
                if growth is not None:
                    growth.close()

    async def _wait(self, changed: asyncio.Future[None], growth: Watch | None) -> None:
        """Until something happens, or it is time to look or to say something."""
        patience = max(0.0, self._last_said + PING_S - time.monotonic())
        if growth is not None and not growth.has_inotify:
            patience = min(patience, POLL_INTERVAL_S)
        await wait_for_first(changed, growth, patience)

    def _look(self) -> _View | None:
        """None when the job is gone."""

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

    def _log(self, view: _View) -> list[bytes]:
        """What the log has more than we sent. Bounded: a chatty task must not fill our memory."""
        task = view.task
        if task is None or self._stream == NO_LOG:
            return []
        log = LogReader(self._ctx.logs.log_folder(task.uid), self._stream)
        frames = []
        chunk = log.read(self.offset, self._ctx.log_watcher.chunk_size)
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
            )
            frames.append(head + chunk.data)
            self.offset = chunk.end
        self._drained = not chunk.data
        return frames

    def _news(self, view: _View) -> list[bytes]:
        frames = []
        job = view.job
        trouble = degraded_reason(job, self._ctx.degraded_reason(job.framework))
        for event in view.events:
            # What is said again is news again.
            if event.count > self._told.get(event.uid, 0):
                self._told[event.uid] = event.count
                # In trouble it does not wait for anything else, whatever was said before.
                if not (trouble and event.reason in KEEP_WAITING):
                    frames.append(_event(event))
        if trouble != self._last_trouble:
            self._last_trouble = trouble
            frames.append(_event(degraded_event(job, trouble)))
        # How it ended is told after the last byte of the log.
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
        """Whether there is more to send at once: the rest of this log, or the next attempt's."""
        if not self._drained:
            return True
        over = view.task is None or view.task.ended
        if over and self.task_attempt < view.newest:
            # The task was started again by itself.
            self.task_attempt, self.offset = self.task_attempt + 1, 0
            return True
        if over and self.attempt < view.job.attempt:
            self.attempt, self.task_attempt, self.offset = self.attempt + 1, 0, 0
            return True
        return False


def _seeing(growth: Watch | None) -> bool:
    return growth is not None and growth.has_inotify


def _event(event: EventRow) -> bytes:
    return _frame(
        kind="event", type=event.type, reason=event.reason, message=event.message, time=event.last_ms
    )


def _frame(**fields: object) -> bytes:
    return encode(fields) + b"\n"
