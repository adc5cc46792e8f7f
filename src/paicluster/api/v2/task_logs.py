"""Routes of a task's logs: locations, and the bytes: whole, a range, the tail, or followed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paicluster.api.context import Context, context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.requests.permissions import check_may_see
from paicluster.api.requests.task_log import TaskLog, open_log
from paicluster.api.routing.authority import JOBS, READABLE_BY_TICKET
from paicluster.api.routing.route import Query, Routes, Text
from paicluster.api.v2.jobs import job_row
from paicluster.api.wire.jobs import Count, LogLocation, LogLocations
from paicluster.api.wire.query_parameters import int_param
from paicluster.auth.tickets import holder_of
from paicluster.auth.tokens import INVALID
from paicluster.logs.log_watcher import POLL_INTERVAL_S, Watch
from paicluster.logs.reader import STREAMS, Stream
from paicluster.store import jobs
from paicluster.store.rows import TaskRow
from paiprotocol.errors import NotFound, Unauthorized

route = Routes("log")

_LOG_QUERY = (
    Query("pod-uid", required=True),
    Query("token", description="Ticket from the log's location; without it an API token is required."),
    Query("username"),
    Query("framework-name"),
    Query("taskrole"),
)

TAIL_BYTES = 16384
# Subject of a ticket that is valid for all logs.
ANY_LOG = "every log"
_CHUNK_BYTES = 64 << 10
_UNSAFE = re.compile(r"[^\w.~-]", re.ASCII)
_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


@route(
    "GET /api/v2/jobs/{framework}/attempts/{attempt:count}/taskRoles/{role}/taskIndex/{index:count}"
    "/attempts/{task_attempt:count}/logs",
    authority=JOBS,
    summary="List the locations of a task's logs",
    tag="job",
    query=(Query("tail-mode", bool), Query("tailMode", bool)),
)
async def locations(request: Request) -> LogLocations:
    identity = await authenticate(request)
    ctx = context(request)
    row = await job_row(request, identity)
    p = request.path_params
    rows = await ctx.store.read(
        lambda conn: jobs.task_attempts_of(conn, row.id, p["attempt"], p["role"], p["index"])
    )
    task = next((task for task in rows if task.task_attempt == p["task_attempt"]), None)
    if task is None:
        raise NotFound(
            f"Log of task {p['role']}[{p['index']}] of {row.framework} is not found.", code="NoTaskLogError"
        )
    get = request.query_params.get
    tail = "true" in (get("tail-mode"), get("tailMode"))
    return LogLocations(
        [_location(ctx, row.username, row.debug_id, task, s, tail, identity.token_id) for s in STREAMS]
    )


def _location(
    ctx: Context, username: str, debug_id: str, task: TaskRow, stream: Stream, tail: bool, holder: str
) -> LogLocation:
    query: dict[str, Any] = {
        "username": username,
        "framework-name": debug_id,
        "taskrole": task.role,
        "pod-uid": task.uid,
        "token": ctx.identity.tickets.issue(f"log:{task.uid}", holder=holder),
    }
    if tail:
        query["tail-mode"] = "true"
    node = quote(ctx.server.netloc, safe=":")
    return LogLocation(stream, f"/log-manager/{node}/api/v1/logs/{stream}?{urlencode(query)}")


@route(
    "GET /log-manager/{node}/api/v1/logs",
    authority=READABLE_BY_TICKET,
    summary="List a task's logs",
    query=_LOG_QUERY,
)
async def list_logs(request: Request) -> dict[str, str]:
    """Logs of a task: name to URL at this log manager."""
    await _task(request)
    query = {**request.query_params}
    return {stream: f"/api/v1/logs/{stream}?{urlencode(query)}" for stream in STREAMS}


@route(
    "GET /log-manager/{node}/api/v1/logs/{stream}",
    authority=READABLE_BY_TICKET,
    summary="Read a task's log",
    query=(
        Query("tail-mode", bool, description="The last 16384 bytes."),
        Query("follow", bool, description="Keep the connection open until the task has finished."),
        Query("start", Count, description="With follow: byte offset to start from."),
        *_LOG_QUERY,
    ),
    returns={200: Text(binary=True), 206: Text(binary=True), 416: None},
)
async def read_log(request: Request) -> Response:
    """The bytes of one log. ``follow=true&start=N`` keeps the connection open until the task has finished."""
    ctx = context(request)
    get = request.query_params.get
    stream = request.path_params["stream"]
    task, name, holder = await _task(request)
    uid = task.uid
    if stream not in STREAMS:
        raise _no_log(stream, uid)
    log = await open_log(ctx, uid, stream)
    headers = {"Content-Disposition": f'attachment; filename="{_file_name(name, task, stream)}"'}
    if get("follow") == "true":
        start = int_param(get("start"), "start", 0)
        return StreamingResponse(
            _follow(ctx, task, log, start, holder), media_type="text/plain", headers=headers
        )
    size = await log.run(log.reader.size)
    start, end, status = 0, size, 200
    requested = _parse_range(request.headers.get("range", ""), size)
    if get("tail-mode") == "true":
        start, status = max(0, size - TAIL_BYTES), 206
    elif requested is not None and size > 0:
        (start, end), status = requested, 206
        if start >= end:
            return Response(status_code=416, headers={"Content-Range": f"bytes */{size}"})
    if status == 206 and size > 0:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return StreamingResponse(
        read_range(log, start, end), status, media_type="text/plain; charset=utf-8", headers=headers
    )


def _file_name(job: str, task: TaskRow, stream: str) -> str:
    """Name of a downloaded log: ``JOB-ROLE-INDEX-attempt-N.log``; attempts count from 1, as people do."""
    parts = [job, task.role, str(task.task_index), f"attempt-{task.attempt + 1}"]
    if task.task_attempt:
        parts.append(f"task-attempt-{task.task_attempt + 1}")
    if stream != "all":
        parts.append(stream)
    return _UNSAFE.sub("_", "-".join(parts)) + ".log"


async def _task(request: Request) -> tuple[TaskRow, str, str]:
    """The task in the query, for a caller with a ticket for its logs or with permission to see its job.

    Also the name of its job, and the id of the caller's token, or of the one that the ticket was issued for.
    """
    ctx = context(request)
    get = request.query_params.get
    uid, ticket = get("pod-uid", ""), get("token")
    identity = None
    if ticket is None:
        identity = await authenticate(request)
    elif not ctx.identity.tickets.is_valid(ticket, f"log:{uid}") and not ctx.identity.tickets.is_valid(
        ticket, ANY_LOG
    ):
        raise _expired()

    def read(conn: Connection) -> tuple[TaskRow | None, str]:
        task = jobs.get_task(conn, uid)
        row = None if task is None else jobs.get_job_by_id(conn, task.job_id)
        if identity is not None and row is not None:
            check_may_see(identity, row)
        return task, "" if row is None else row.name

    holder = identity.token_id if identity is not None else holder_of(ticket or "")
    if identity is None and not await ctx.identity.tokens.is_live(holder):
        raise _expired()
    task, name = await ctx.store.read(read)
    if task is None:
        raise _no_log(request.path_params.get("stream", "of any kind"), uid)
    return task, name, holder


def _expired() -> Unauthorized:
    return Unauthorized(INVALID, hint="The URL has expired: request the log's locations again.")


def _no_log(stream: str, uid: str) -> NotFound:
    return NotFound(f"There is no log {stream!r} of task {uid!r}.", code="NoTaskLogError")


def _parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Start and end of a Range header: an empty range when unsatisfiable, None when malformed."""
    match = _RANGE.fullmatch(header)
    if match is None:
        return None
    # Digits beyond the size of any log are cut.
    first, last = (int(text[:18]) if text else None for text in match.groups())
    if first is None:
        return None if last is None else (max(0, size - last), size)
    if last is not None and last < first:
        return None
    return first, size if last is None else min(size, last + 1)


async def read_range(log: TaskLog, start: int, end: int) -> AsyncIterator[bytes]:
    """The bytes between two offsets; a marker line counts the bytes that were already dropped."""
    while start < end:
        chunk = await log.run(partial(log.reader.read, start, min(_CHUNK_BYTES, end - start)))
        if not chunk.data or chunk.offset >= end:
            return
        if chunk.offset > start:
            yield dropped_marker(chunk.offset - start)
        yield chunk.data[: end - chunk.offset]
        start = chunk.end


async def _follow(ctx: Context, task: TaskRow, log: TaskLog, start: int, holder: str) -> AsyncIterator[bytes]:
    """The log from ``start`` until the task or the token with this id ends."""
    watch = log.watch()
    with ctx.store.changes.watch(task.job_id) as changes, ctx.identity.tokens.watch(holder, changes.notify):
        changed = asyncio.ensure_future(changes.wait())
        try:
            finished = await _is_finished(ctx, task.uid)
            while await ctx.identity.tokens.is_live(holder):
                watch.event.clear()
                chunk = await watch.next_chunk(log.reader, start, is_complete=finished)
                if chunk.data:
                    if chunk.offset > start:
                        yield dropped_marker(chunk.offset - start)
                    yield chunk.data
                    start = chunk.end
                    # Writes to a disconnected client succeed at once: yield to the loop to notice it.
                    await asyncio.sleep(0)
                    continue
                if finished or ctx.server.closing.is_set():
                    return
                await wait_for_first(changed, watch, None if watch.has_inotify else POLL_INTERVAL_S)
                if not watch.has_inotify and not log.may_stall:  # the folder did not exist yet
                    watch.close()
                    watch = log.watch()
                if changed.done():
                    changed = asyncio.ensure_future(changes.wait())
                    finished = await _is_finished(ctx, task.uid)
        finally:
            changed.cancel()
            watch.close()


async def _is_finished(ctx: Context, uid: str) -> bool:
    task = await ctx.store.read(lambda conn: jobs.get_task(conn, uid))
    return task is None or task.ended


async def wait_for_first(
    changed: asyncio.Future[None], log_watch: Watch | None, timeout_s: float | None
) -> bool:
    """Wait for a change or for new output. False on timeout."""
    grown = None if log_watch is None else asyncio.ensure_future(log_watch.event.wait())
    futures: set[asyncio.Future[Any]] = {changed} if grown is None else {changed, grown}
    try:
        done, _ = await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Also when the client disconnects meanwhile: nothing else would cancel it.
        if grown is not None:
            grown.cancel()
    return bool(done)


def dropped_marker(count: int) -> bytes:
    return f"[{count} bytes of older output were dropped]\n".encode()
