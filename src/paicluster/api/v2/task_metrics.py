"""Route of the metrics that a job's tasks log per step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal, TypeVar

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Query, Routes, Text
from paicluster.api.v2.jobs import admit_response, job_row
from paicluster.api.wire.jobs import Count, MetricSegment, MetricSeriesPart, SeriesCount
from paicluster.api.wire.query_parameters import int_param
from paicluster.api.wire.responses import Encoded, encode
from paicluster.auth.tokens import Identity
from paicluster.logs.event_file_worker import event_files_size
from paicluster.logs.metric_series import MAX_ALL_POINTS, MAX_NAMES, read_series
from paicluster.logs.task_metrics import metrics_size, read_metrics
from paicluster.services.event_metrics import read_in_worker
from paicluster.store import history
from paicluster.store.rows import TaskRow
from paiprotocol.errors import InvalidParameters
from paiprotocol.plain_numbers import plain_number

route = Routes("job")
T = TypeVar("T")

MEDIA_TYPE = "application/x-ndjson"
# Values of a series that a plot requests without saying how many, and about what each takes in a response.
_POINTS = 2048
_POINT_BYTES = 40
_MAX_TIME_S = 1e12


@route(
    "GET /api/v2/jobs/{framework}/metrics",
    authority=JOBS,
    summary="Metrics that a task logs per step, one line of JSON each",
    query=(
        Query("role"),
        Query("index", Count),
        Query("start", Count, description="Byte offset to start from."),
    ),
    returns={200: Text("application/x-ndjson")},
    other_methods=405,
)
async def metrics(request: Request) -> Response:
    """One line of JSON per step, from a byte offset on; by default of the first task."""
    uid = await _attempt_uid(request, await authenticate(request))
    if uid is None:
        return Response(b"", media_type=MEDIA_TYPE)
    start = int_param(request.query_params.get("start"), "start", 0)
    data = await _read_folder(request, uid, lambda folder: read_metrics(folder, start))
    return Response(data, media_type=MEDIA_TYPE)


@route(
    "GET /api/v2/jobs/{framework}/metric-series",
    authority=JOBS,
    summary="Metrics of a task for plots: of each as many values as a plot can show, with its extremes",
    query=(
        Query("role"),
        Query("index", Count),
        Query("start", Count, description="Byte offset to start from: `next` of the part before."),
        Query("points", Count, description="Values of each metric, at most about so many."),
        Query("metric", description="Only this metric; may be repeated."),
        Query(
            "source",
            Literal["logged", "tensorboard"],
            description="`tensorboard`: scalars of event files in the task's outputs; `start` is then the"
            " size of those that were read. By default what the task logged.",
        ),
    ),
    other_methods=405,
)
async def metric_series(request: Request) -> Encoded[MetricSeriesPart]:
    """A part of the file at a time, thinned; by default of the first task."""
    identity = await authenticate(request)
    uid = await _attempt_uid(request, identity)
    get = request.query_params.get
    start = int_param(get("start"), "start", 0)
    points = int_param(get("points"), "points", _POINTS)
    names = request.query_params.getlist("metric")
    if len(names) > MAX_NAMES:
        raise InvalidParameters(f"A request may have {MAX_NAMES} metrics.")
    if uid is None:
        return Encoded(encode(MetricSeriesPart([], [], start, False)))
    if get("source") == "tensorboard":
        return await _event_series(request, identity, uid, start, points, names)
    size = await _read_folder(request, uid, metrics_size)
    await admit_response(request, identity, min(MAX_ALL_POINTS * _POINT_BYTES, size - start))
    return Encoded(
        await _read_folder(request, uid, lambda folder: _encoded_series(folder, start, points, names))
    )


async def _event_series(
    request: Request, identity: Identity, uid: str, known: int, points: int, names: Collection[str]
) -> Encoded[MetricSeriesPart]:
    if await _read_folder(request, uid, event_files_size) == known:
        return Encoded(encode(MetricSeriesPart([], [], known, False)))
    async with context(request).jobs.event_file_turns:
        found = await _read_folder(request, uid, lambda folder: read_in_worker(folder, points, names))
    await admit_response(request, identity, _POINT_BYTES * sum(len(one.steps) for one in found.series))
    part = MetricSeriesPart(
        [
            MetricSegment(one.name, 1, one.steps, [_milliseconds(at) for at in one.times], one.values)
            for one in found.series
        ],
        [SeriesCount(one.name, one.count, one.not_finite) for one in found.series],
        found.size,
        has_more=False,
        is_whole=True,
    )
    return Encoded(encode(part))


def _encoded_series(folder: Path, start: int, points: int, names: Collection[str]) -> bytes:
    found = read_series(folder, start, points, names)
    # Names that came late leave the others fewer points.
    segments = [
        MetricSegment(
            name,
            segment.attempt,
            kept.steps,
            [_milliseconds(time_s) for time_s in kept.times],
            [plain_number(value) for value in kept.values],
        )
        for name, series in found.series.items()
        for segment, kept in series.thinned(found.most)
    ]
    counts = [SeriesCount(name, series.count, series.not_finite) for name, series in found.series.items()]
    return encode(MetricSeriesPart(segments, counts, found.end, found.has_more))


def _milliseconds(time_s: object) -> int | None:
    if not isinstance(time_s, int | float) or not 0 <= time_s < _MAX_TIME_S:
        return None
    return round(time_s * 1000)


async def _attempt_uid(request: Request, identity: Identity) -> str | None:
    """Of the last attempt of the task that the query names; None before its start."""
    ctx = context(request)
    row = await job_row(request, identity)
    get = request.query_params.get
    role, index = get("role"), int_param(get("index"), "index", 0)

    def read(conn: Connection) -> TaskRow | None:
        tasks = [
            task
            for task in history.tasks_of(conn, row.id, row.attempt)
            if task.task_index == index and task.role == (role or task.role)
        ]
        return max(tasks, key=lambda task: (-task.role_order, task.task_attempt), default=None)

    task = await ctx.store.read(read)
    return None if task is None else task.uid


async def _read_folder(request: Request, uid: str, read: Callable[[Path], T]) -> T:
    """In a thread; the folder of an engine whose files may stall, in one of those that wait for such."""
    ctx = context(request)
    engines = ctx.engines
    return await ctx.jobs.log_watcher.run(
        lambda: read(engines.log_folder(uid)), may_stall=engines.may_stall(uid)
    )
