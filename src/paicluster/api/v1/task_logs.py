"""A task's logs as pages under one address, `containerLog`, to which clients append a file's name.

They read the page for its `<pre>`, so that is what they get; `Accept: text/plain` gets the bytes alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from openpaisdk.errors import InvalidParameters, NotFound, Unauthorized
from paicluster.api.context import Context, context, own_url
from paicluster.api.v2.task_logs import read_range
from paicluster.auth.tokens import INVALID
from paicluster.logs.reader import LogReader
from paicluster.store import jobs
from paicluster.store.rows import TaskRow

TAIL = 4096
# An address is taken from a job's detail and read, perhaps from a page that stays open for a while.
_LIFETIME_S = 3600
_FILES = {"user.pai.stdout": "stdout", "user.pai.stderr": "stderr", "user.pai.all": "all"}
_STREAMS = {**_FILES, "stdout": "stdout", "stderr": "stderr", "all": "all"}
# What a job prints is shown, and never run.
_HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff"}


def log_address(request: Request) -> Callable[[TaskRow], str]:
    """For a task, the address of its logs as this client reaches us; it ends in `/` and needs no token."""
    ctx, base = context(request), own_url(request)

    def address(task: TaskRow) -> str:
        ticket = ctx.tickets.issue(_what(task.uid), _LIFETIME_S)
        return f"{base}/log-manager/tail/{ticket}/{task.uid}/"

    return address


def _what(uid: str) -> str:
    return f"logs:{uid}"


async def list_files(request: Request) -> Response:
    """The files of a task, for those who open the address itself."""
    await _task(request, context(request))
    links = "".join(f'<p><a href="{name}/?start=0">{name}</a></p>' for name in _FILES)
    return HTMLResponse(f"<!DOCTYPE html>{links}", headers=_HEADERS)


async def read_file(request: Request) -> Response:
    """One log, from `start`: counted from its end when negative, the last 4096 bytes when absent."""
    ctx = context(request)
    task = await _task(request, ctx)
    file = request.path_params["file"]
    if file not in _STREAMS:
        raise NotFound(f"There is no log {file!r} of task {task.uid!r}.", code="NoTaskLogError")
    log = LogReader(ctx.logs.log_folder(task.uid), _STREAMS[file])
    size = await asyncio.to_thread(log.size)
    start = _start(request.query_params.get("start"), size)
    if "text/plain" in request.headers.get("accept", ""):
        return StreamingResponse(read_range(log, start, size), media_type="text/plain", headers=_HEADERS)
    return StreamingResponse(_page(log, start, size), media_type="text/html", headers=_HEADERS)


async def _task(request: Request, ctx: Context) -> TaskRow:
    uid = request.path_params["uid"]
    if not ctx.tickets.is_valid(request.path_params["ticket"], _what(uid)):
        raise Unauthorized(INVALID, hint="The address has expired: ask for the job's detail again.")
    task = await ctx.store.read(lambda conn: jobs.get_task(conn, uid))
    if task is None:
        raise NotFound(f"There is no log of task {uid!r}.", code="NoTaskLogError")
    return task


def _start(value: str | None, size: int) -> int:
    text = value or str(-TAIL)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise InvalidParameters('"start" must be a whole number.')
    return int(text) if digits is text else max(0, size - int(digits))


async def _page(log: LogReader, start: int, end: int) -> AsyncIterator[bytes]:
    # A line break right after <pre> is not shown: without one of ours, the log's first could get lost.
    yield b"<!DOCTYPE html><meta charset=utf-8><pre>\n"
    async for data in read_range(log, start, end):
        yield data.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
    yield b"</pre>\n"
