"""Route that searches a task's log for a text: hits as lines of JSON, sent while the search goes on.

The search ends with the client's connection or token. However many clients search, the server looks through
a few blocks at a time, in turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from openpaisdk.errors import InvalidParameters, NotFound
from paicluster.api.context import Context, authenticate, context
from paicluster.api.permissions import check_may_see
from paicluster.api.responses import encode, int_param
from paicluster.api.v2.follow import job_and_roles, selected_task
from paicluster.logs.reader import STREAMS, LogReader
from paicluster.logs.search import MAX_TEXT_BYTES, Hit, LogSearch
from paicluster.store import jobs
from paicluster.store.rows import JobRow, TaskRow

MEDIA_TYPE = "application/x-ndjson"
MAX_HITS = 1000
"""Hits of one request, with their lines at most 4 MB. The next request starts where this one ended."""
PROGRESS_INTERVAL_S = 0.25
_DIRECTIONS = ("forward", "backward")


async def search(request: Request) -> Response:
    """Lines with the text, from an offset on: `hit`, meanwhile `progress`, and at the end `end`."""
    identity = await authenticate(request)
    ctx = context(request)
    get = request.query_params.get
    text = _text(get("text"))
    stream = _one_of(get("stream"), "stream", STREAMS)
    backward = _one_of(get("direction"), "direction", _DIRECTIONS) == "backward"
    start = int_param(get("from"), "from", -1)
    limit = int_param(get("limit"), "limit", 1, MAX_HITS)
    if not limit:
        raise InvalidParameters('"limit" must be at least 1.')
    attempt = int_param(get("attempt"), "attempt", -1)
    task_attempt = int_param(get("taskAttempt"), "taskAttempt", -1)
    framework = request.path_params["framework"]

    def read(conn: Connection) -> tuple[JobRow, TaskRow | None]:
        row, roles = job_and_roles(conn, framework)
        check_may_see(identity, row)
        role, index = selected_task(row, roles, get("role"), get("index"))
        found = jobs.task_attempts_of(conn, row.id, row.attempt if attempt < 0 else attempt, role, index)
        # The newest one is the first.
        tasks = (task for task in found if task_attempt in (-1, task.task_attempt))
        return row, next(tasks, None)

    row, task = await ctx.store.read(read)
    if task is None:
        if attempt >= 0 or task_attempt >= 0:
            raise NotFound(f"Job {row.name} has no such attempt of this task.", code="NoTaskLogError")
        return StreamingResponse(_nothing(), media_type=MEDIA_TYPE)
    log = LogReader(ctx.logs.log_folder(task.uid), stream)
    if start < 0:
        start = await asyncio.to_thread(log.size) if backward else 0
    matches_case = get("matchCase") == "true"
    begun = await asyncio.to_thread(
        lambda: LogSearch(log, text, start, backward=backward, matches_case=matches_case)
    )
    place = {"attempt": task.attempt, "taskAttempt": task.task_attempt}
    return StreamingResponse(_frames(ctx, begun, limit, place, identity.token_id), media_type=MEDIA_TYPE)


def _text(value: str | None) -> bytes:
    text = (value or "").encode("utf-8", "replace")
    if not text or b"\n" in text or len(text) > MAX_TEXT_BYTES:
        raise InvalidParameters(f'"text" must be one line of 1 to {MAX_TEXT_BYTES} bytes.')
    return text


def _one_of(value: str | None, name: str, allowed: tuple[str, ...]) -> str:
    """The value of a parameter; by default the first one that is allowed."""
    if value and value not in allowed:
        raise InvalidParameters(f'"{name}" must be one of {", ".join(allowed)}, not {value[:100]!r}.')
    return value or allowed[0]


async def _frames(
    ctx: Context, search: LogSearch, limit: int, place: dict[str, int], token_id: str
) -> AsyncIterator[bytes]:
    sent = time.monotonic()
    while not search.is_complete and (limit or search.is_in_line) and await ctx.tokens.is_live(token_id):
        async with ctx.log_search_turns:
            hits = await asyncio.to_thread(search.step, limit)
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
