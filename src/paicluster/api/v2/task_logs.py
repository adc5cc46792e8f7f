"""A task's logs: where they are, and the bytes: whole, a range, the tail, or as they come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlencode

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from openpaisdk.errors import NotFound, Unauthorized
from paicluster.api.context import Context, authenticate, context
from paicluster.api.permissions import check_may_see
from paicluster.api.responses import int_param, json_response
from paicluster.api.v2.jobs import job_row
from paicluster.auth.tokens import INVALID
from paicluster.logs.log_watcher import POLL_INTERVAL_S, Watch
from paicluster.logs.reader import STREAMS, LogReader
from paicluster.store import jobs
from paicluster.store.rows import TaskRow

TAIL = 16384
# What a log manager's own token stands for.
ANY_LOG = "every log"
CHUNK = 64 << 10
_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


async def locations(request: Request) -> Response:
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
    return json_response(
        {"locations": [_location(ctx, row.username, row.debug_id, task, s, tail) for s in STREAMS]}
    )


def _location(
    ctx: Context, username: str, debug_id: str, task: TaskRow, stream: str, tail: bool
) -> dict[str, str]:
    query: dict[str, Any] = {
        "username": username,
        "framework-name": debug_id,
        "taskrole": task.role,
        "pod-uid": task.uid,
        "token": ctx.tickets.issue(f"log:{task.uid}"),
    }
    if tail:
        query["tail-mode"] = "true"
    node = quote(ctx.authority(), safe=":")
    return {"name": stream, "uri": f"/log-manager/{node}/api/v1/logs/{stream}?{urlencode(query)}"}


async def list_logs(request: Request) -> Response:
    """The logs of a task by name, with the address of each at this log manager."""
    await _task(request)
    query = {**request.query_params}
    return json_response({stream: f"/api/v1/logs/{stream}?{urlencode(query)}" for stream in STREAMS})


async def read_log(request: Request) -> Response:
    """The bytes of one log. ``follow=true&start=N`` keeps the connection until the task is over."""
    ctx = context(request)
    get = request.query_params.get
    stream = request.path_params["stream"]
    task = await _task(request)
    uid = task.uid
    if stream not in STREAMS:
        raise _no_log(stream, uid)
    log = LogReader(ctx.logs.log_folder(uid), stream)
    headers = {"Content-Disposition": f'attachment; filename="{stream}"'}
    if get("follow") == "true":
        start = int_param(get("start"), "start", 0)
        return StreamingResponse(_follow(ctx, task, log, start), media_type="text/plain", headers=headers)
    size = await asyncio.to_thread(log.size)
    start, end, status = 0, size, 200
    wanted = _span_of(request.headers.get("range", ""), size)
    if get("tail-mode") == "true":
        start, status = max(0, size - TAIL), 206
    elif wanted is not None and size > 0:
        (start, end), status = wanted, 206
        if start >= end:
            return Response(status_code=416, headers={"Content-Range": f"bytes */{size}"})
    if status == 206 and size > 0:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return StreamingResponse(
        read_range(log, start, end), status, media_type="text/plain; charset=utf-8", headers=headers
    )


async def _task(request: Request) -> TaskRow:
    """The task whose log is asked for, by one with a ticket for it or who may see its job."""
    ctx = context(request)
    get = request.query_params.get
    uid, ticket = get("pod-uid", ""), get("token")
    identity = None
    if ticket is None:
        identity = await authenticate(request)
    elif not ctx.tickets.is_valid(ticket, f"log:{uid}") and not ctx.tickets.is_valid(ticket, ANY_LOG):
        raise Unauthorized(INVALID, hint="The address has expired: ask for the log's locations again.")

    def read(conn: Connection) -> TaskRow | None:
        task = jobs.get_task(conn, uid)
        row = None if task is None else jobs.get_job_by_id(conn, task.job_id)
        if identity is not None and row is not None:
            check_may_see(identity, row)
        return task

    task = await ctx.store.read(read)
    if task is None:
        raise _no_log(request.path_params.get("stream", "of any kind"), uid)
    return task


def _no_log(stream: str, uid: str) -> NotFound:
    return NotFound(f"There is no log {stream!r} of task {uid!r}.", code="NoTaskLogError")


def _span_of(header: str, size: int) -> tuple[int, int] | None:
    """What a Range header asks for; empty when there is nothing there, None when it makes no sense."""
    wanted = _RANGE.fullmatch(header)
    if wanted is None:
        return None
    # Numbers longer than any log are as good as the largest.
    first, last = (int(text[:18]) if text else None for text in wanted.groups())
    if first is None:
        return None if last is None else (max(0, size - last), size)
    if last is not None and last < first:
        return None
    return first, size if last is None else min(size, last + 1)


async def read_range(log: LogReader, start: int, end: int) -> AsyncIterator[bytes]:
    """The bytes from one offset to another; what is no longer kept is counted in a line of its own."""
    while start < end:
        chunk = await asyncio.to_thread(log.read, start, min(CHUNK, end - start))
        if not chunk.data or chunk.offset >= end:
            return
        if chunk.offset > start:
            yield dropped(chunk.offset - start)
        yield chunk.data[: end - chunk.offset]
        start = chunk.end


async def _follow(ctx: Context, task: TaskRow, log: LogReader, start: int) -> AsyncIterator[bytes]:
    folder = ctx.logs.log_folder(task.uid)
    watch = ctx.log_watcher.watch(folder)
    with ctx.store.changes.watch(task.job_id) as changes:
        changed = asyncio.ensure_future(changes.wait())
        try:
            over = await _is_over(ctx, task.uid)
            while True:
                watch.event.clear()
                chunk = log.read(start, ctx.log_watcher.chunk_size)
                if chunk.data:
                    if chunk.offset > start:
                        yield dropped(chunk.offset - start)
                    yield chunk.data
                    start = chunk.end
                    # Whoever hung up takes all at once: only others' turn brings word of that.
                    await asyncio.sleep(0)
                    continue
                if over or ctx.closing.is_set():
                    return
                await wait_for_first(changed, watch, None if watch.has_inotify else POLL_INTERVAL_S)
                if not watch.has_inotify:  # the folder was not there yet
                    watch.close()
                    watch = ctx.log_watcher.watch(folder)
                if changed.done():
                    changed = asyncio.ensure_future(changes.wait())
                    over = await _is_over(ctx, task.uid)
        finally:
            changed.cancel()
            watch.close()


async def _is_over(ctx: Context, uid: str) -> bool:
    now = await ctx.store.read(lambda conn: jobs.get_task(conn, uid))
    return now is None or now.ended


async def wait_for_first(changed: asyncio.Future[None], growth: Watch | None, patience: float | None) -> bool:
    """Wait for a change or for the log to grow. False when neither came in time."""
    grown = None if growth is None else asyncio.ensure_future(growth.event.wait())
    waiting: set[asyncio.Future[Any]] = {changed} if grown is None else {changed, grown}
    try:
        done, _ = await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Also when the reader hangs up meanwhile: nobody else would end it.
        if grown is not None:
            grown.cancel()
    return bool(done)


def dropped(count: int) -> bytes:
    return f"[{count} bytes of older output were dropped]\n".encode()
