"""Route that searches a task's log for a text: hits as lines of JSON, sent while the search goes on.

The search ends with the client's connection or token. However many clients search, the server looks through
a few blocks at a time, in turns.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paicluster.api.context import Context, context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.requests.permissions import check_may_see
from paicluster.api.requests.task_log import TaskLog, open_log
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Query, Routes, Text
from paicluster.api.v2.follow import job_and_roles, selected_task
from paicluster.api.wire.jobs import Count
from paicluster.api.wire.query_parameters import choice_param, int_param
from paicluster.api.wire.responses import encode
from paicluster.auth.tokens import Identity
from paicluster.logs.reader import STREAMS
from paicluster.logs.search import MAX_TEXT_BYTES, Hit, LogSearch
from paicluster.store import jobs
from paicluster.store.rows import JobRow, TaskRow
from paiprotocol.errors import InvalidParameters, NotFound

route = Routes("job")

MEDIA_TYPE = "application/x-ndjson"
MAX_HITS = 1000
"""Hits of one request, with their lines at most 4 MB. The next request starts where this one ended."""
PROGRESS_INTERVAL_S = 0.25
_DIRECTIONS = ("forward", "backward")


@route(
    "GET /api/v2/jobs/{framework}/log-search",
    authority=JOBS,
    summary="Search a task's log for a text, in upper or lower case; lines of JSON: `hit` with the offsets "
    "of the text and of its line, `progress`, and `end`, whose `offset` is where a next search may start",
    query=(
        Query("text", required=True, description="One line of 1 to 1024 bytes."),
        Query("role"),
        Query("index", Count),
        Query("attempt", Count, description="By default the latest attempt of the job and of the task."),
        Query("taskAttempt", Count),
        Query("stream", Literal["all", "stdout", "stderr"]),
        Query("direction", Literal["forward", "backward"]),
        Query("from", Count, description="Byte offset; by default the start, or backward the end."),
        Query("limit", Annotated[int, Meta(ge=1, le=1000)], description="Number of lines, by default 1."),
        Query("matchCase", bool),
    ),
    returns={200: Text("application/x-ndjson")},
    other_methods=405,
)
async def search(request: Request) -> Response:
    """Lines with the text, from an offset on: `hit`, meanwhile `progress`, and at the end `end`."""
    identity = await authenticate(request)
    ctx = context(request)
    get = request.query_params.get
    text = _text(get("text"))
    stream = choice_param(get("stream"), "stream", STREAMS)
    backward = choice_param(get("direction"), "direction", _DIRECTIONS) == "backward"
    start = int_param(get("from"), "from", -1)
    limit = int_param(get("limit"), "limit", 1, MAX_HITS)
    if not limit:
        raise InvalidParameters('"limit" must be at least 1.')
    task = await requested_task(request, identity)
    if task is None:
        return StreamingResponse(_nothing(), media_type=MEDIA_TYPE)
    log = await open_log(ctx, task.uid, stream)
    if start < 0:
        start = await log.run(log.reader.size) if backward else 0
    matches_case = get("matchCase") == "true"
    begun = await log.run(
        lambda: LogSearch(log.reader, text, start, backward=backward, matches_case=matches_case)
    )
    place = {"attempt": task.attempt, "taskAttempt": task.task_attempt}
    frames = _frames(ctx, log, begun, limit, place, identity.token_id)
    return StreamingResponse(frames, media_type=MEDIA_TYPE)


async def requested_task(request: Request, identity: Identity) -> TaskRow | None:
    """The attempt of a task that a request for its log names; None before the first one."""
    ctx = context(request)
    get = request.query_params.get
    attempt = int_param(get("attempt"), "attempt", -1)
    task_attempt = int_param(get("taskAttempt"), "taskAttempt", -1)
    framework = request.path_params["framework"]

    def read(conn: Connection) -> tuple[JobRow, TaskRow | None]:
        row, roles = job_and_roles(conn, framework)
        check_may_see(identity, row)
        role, index = selected_task(row, roles, get("role"), get("index"))
        attempts = jobs.task_attempts_of(conn, row.id, row.attempt if attempt < 0 else attempt, role, index)
        # The newest one is the first.
        tasks = (task for task in attempts if task_attempt in (-1, task.task_attempt))
        return row, next(tasks, None)

    row, task = await ctx.store.read(read)
    if task is None and (attempt >= 0 or task_attempt >= 0):
        raise NotFound(f"Job {row.name} has no such attempt of this task.", code="NoTaskLogError")
    return task


def _text(value: str | None) -> bytes:
    text = (value or "").encode("utf-8", "replace")
    if not text or b"\n" in text or len(text) > MAX_TEXT_BYTES:
        raise InvalidParameters(f'"text" must be one line of 1 to {MAX_TEXT_BYTES} bytes.')
    return text


async def _frames(
    ctx: Context, log: TaskLog, search: LogSearch, limit: int, place: dict[str, int], token_id: str
) -> AsyncIterator[bytes]:
    sent = time.monotonic()
    while (
        not search.is_complete
        and (limit or search.is_in_line)
        and await ctx.identity.tokens.is_live(token_id)
    ):
        async with ctx.jobs.log_search_turns:
            hits = await log.run(partial(search.step, limit))
        limit -= len(hits)
        if hits:
            yield b"".join(_hit(hit, place) for hit in hits)
        elif time.monotonic() - sent >= PROGRESS_INTERVAL_S:
            yield _frame(kind="progress", offset=search.position)
        else:
            continue
        sent = time.monotonic()
    yield _frame(kind="end", offset=search.position, isComplete=search.is_complete)


async def _nothing() -> AsyncIterator[bytes]:
    """The log of a task that has not started."""
    yield _frame(kind="end", offset=0, isComplete=True)


def _hit(hit: Hit, place: dict[str, int]) -> bytes:
    line = hit.line.decode("utf-8", "replace")
    return _frame(kind="hit", **place, offset=hit.offset, lineOffset=hit.line_offset, line=line)


def _frame(**fields: object) -> bytes:
    return encode(fields) + b"\n"
