"""Routes of version 1 for a task's logs: HTML pages below one URL, `containerLog`.

Clients append a file name and parse the page's `<pre>`; `Accept: text/plain` gets the bytes alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from paicluster.api.context import Context, context
from paicluster.api.requests.own_url import own_url
from paicluster.api.requests.task_log import TaskLog, open_log
from paicluster.api.routing.authority import TICKET
from paicluster.api.routing.route import Query, Routes, Text
from paicluster.api.v2.task_logs import read_range
from paicluster.auth.tokens import INVALID
from paicluster.logs.reader import Stream
from paicluster.store import jobs
from paicluster.store.rows import TaskRow
from paiprotocol.errors import InvalidParameters, NotFound, Unauthorized

route = Routes("log")

_HTML = Text("text/html")

TAIL_BYTES = 4096
# Clients take the URL from a job's detail; a page with it may stay open for a while.
_TICKET_LIFETIME_S = 3600
_FILES: dict[str, Stream] = {"user.pai.stdout": "stdout", "user.pai.stderr": "stderr", "user.pai.all": "all"}
_STREAMS: dict[str, Stream] = {**_FILES, "stdout": "stdout", "stderr": "stderr", "all": "all"}
# Output of a job is displayed, never executed.
_HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff"}


def log_url(request: Request) -> Callable[[TaskRow], str]:
    """Function from a task to the URL of its logs, which ends in `/` and needs no token."""
    ctx, base = context(request), own_url(request)

    def url(task: TaskRow) -> str:
        ticket = ctx.identity.tickets.issue(_ticket_subject(task.uid), _TICKET_LIFETIME_S)
        return f"{base}/log-manager/tail/{ticket}/{task.uid}/"

    return url


def _ticket_subject(uid: str) -> str:
    return f"logs:{uid}"


@route(
    "GET /log-manager/tail/{ticket}/{uid}/",
    authority=TICKET,
    summary="Index page of a task's logs",
    returns={200: _HTML},
    errors=(401,),
)
async def list_files(request: Request) -> Response:
    """Index page of a task's log files."""
    await _task(request, context(request))
    links = "".join(f'<p><a href="{name}/?start=0">{name}</a></p>' for name in _FILES)
    return HTMLResponse(f"<!DOCTYPE html>{links}", headers=_HEADERS)


@route(
    "GET /log-manager/tail/{ticket}/{uid}/{file}",
    "GET /log-manager/tail/{ticket}/{uid}/{file}/",
    authority=TICKET,
    summary="Read a task's log",
    query=(Query("start", int, description="Byte offset; a negative one counts from the end."),),
    returns={200: (_HTML, Text())},
    errors=(401,),
)
async def read_file(request: Request) -> Response:
    """One log from `start`; a negative `start` counts from the end, by default the last 4096 bytes."""
    ctx = context(request)
    task = await _task(request, ctx)
    file = request.path_params["file"]
    if file not in _STREAMS:
        raise NotFound(f"There is no log {file!r} of task {task.uid!r}.", code="NoTaskLogError")
    log = await open_log(ctx, task.uid, _STREAMS[file])
    size = await log.run(log.reader.size)
    start = _start(request.query_params.get("start"), size)
    if "text/plain" in request.headers.get("accept", ""):
        return StreamingResponse(read_range(log, start, size), media_type="text/plain", headers=_HEADERS)
    return StreamingResponse(_page(log, start, size), media_type="text/html", headers=_HEADERS)


async def _task(request: Request, ctx: Context) -> TaskRow:
    uid = request.path_params["uid"]
    if not ctx.identity.tickets.is_valid(request.path_params["ticket"], _ticket_subject(uid)):
        raise Unauthorized(INVALID, hint="The URL has expired: request the job's detail again.")
    task = await ctx.store.read(lambda conn: jobs.get_task(conn, uid))
    if task is None:
        raise NotFound(f"There is no log of task {uid!r}.", code="NoTaskLogError")
    return task


def _start(value: str | None, size: int) -> int:
    text = value or str(-TAIL_BYTES)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise InvalidParameters('"start" must be an integer.')
    return int(text) if digits is text else max(0, size - int(digits))


async def _page(log: TaskLog, start: int, end: int) -> AsyncIterator[bytes]:
    # Browsers drop a line break right after <pre>: without this one, the log's own first could be lost.
    yield b"<!DOCTYPE html><meta charset=utf-8><pre>\n"
    async for data in read_range(log, start, end):
        yield data.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
    yield b"</pre>\n"
