"""Route of the times at which parts of a task's log were written."""

from __future__ import annotations

from typing import Literal

from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.requests.task_log import open_log
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Query, Routes
from paicluster.api.v2.log_search import requested_task
from paicluster.api.wire.jobs import Count, LogTimes
from paicluster.api.wire.query_parameters import choice_param, int_param
from paicluster.logs.reader import STREAMS

route = Routes("job")

_MAX_OFFSET = 1 << 60


@route(
    "GET /api/v2/jobs/{framework}/log-times",
    authority=JOBS,
    summary="When a part of a task's log was written: pairs of an offset and a time in milliseconds, each "
    "for the bytes up to the next pair; of a log without times, `precisionMs` is null",
    query=(
        Query("role"),
        Query("index", Count),
        Query("attempt", Count, description="By default the latest attempt of the job and of the task."),
        Query("taskAttempt", Count),
        Query("stream", Literal["all", "stdout", "stderr"]),
        Query("start", Count, description="First byte; by default that of the log."),
        Query("end", Count, description="The byte after the last; by default the log's end."),
    ),
    other_methods=405,
)
async def times(request: Request) -> LogTimes:
    """At most 16384 pairs, as many as the index of a log has."""
    identity = await authenticate(request)
    get = request.query_params.get
    stream = choice_param(get("stream"), "stream", STREAMS)
    start = int_param(get("start"), "start", 0)
    end = int_param(get("end"), "end", _MAX_OFFSET)
    task = await requested_task(request, identity)
    if task is None:
        return LogTimes(None, [])
    log = await open_log(context(request), task.uid, stream)
    found = await log.times(start, end)
    return LogTimes(None, []) if found is None else LogTimes(found.precision_ms, found.times)
