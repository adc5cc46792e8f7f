"""Routes of usage: what tasks, jobs, nodes and virtual clusters use now, and used over time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, cast

from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Query, Routes
from paicluster.api.v2.jobs import job_row
from paicluster.api.wire.clusters import (
    ClusterUsage,
    CurrentUsage,
    JobUsage,
    JobUsageOverTime,
    NamedUsage,
    RunningTaskUsage,
    UsageOverTime,
    UsageSeries,
)
from paicluster.api.wire.jobs import Count
from paicluster.api.wire.query_parameters import int_param
from paicluster.metrics.usage import Usage, total
from paicluster.metrics.usage_history import (
    Point,
    SeriesKey,
    job_key,
    node_key,
    task_key,
    virtual_cluster_key,
)
from paicluster.metrics.usage_sampler import TaskSample, UsageSample
from paicluster.services.virtual_clusters import no_cluster
from paiprotocol.errors import InvalidParameters, NotFound

route = Routes("virtual cluster")

# Jobs and tasks in one response, those that use most CPU first.
MAX_JOBS = 1000
MAX_TASKS = 2000
_MB = 1 << 20

_Amounts = tuple[float, int, int, int, float | None, int | None]


@route(
    "GET /api/v2/usage",
    authority=JOBS,
    summary="Usage of nodes, virtual clusters and running jobs now",
    query=(Query("user", description="Only jobs of this user."),),
    other_methods=405,
)
async def current(request: Request) -> ClusterUsage:
    """Usage of nodes, virtual clusters, running jobs and the server now; with ``user``, of jobs of a user."""
    identity = await authenticate(request)
    ctx = context(request)
    user = request.query_params.get("user")
    sample = ctx.capacity.usage.current
    tasks = [
        one
        for one in sample.tasks
        if (user is None or one.task.user == user)
        # A task may run untrusted code: it sees only the jobs of its own user.
        and (identity.job_id is None or one.task.user == identity.username)
    ]
    totals = {
        node.name: (node.cpu, node.memory_mb, len(node.gpus)) for node in await ctx.capacity.nodes.current()
    }
    totals_of_clusters = {
        name: (quota.cpu, quota.memory_mb, quota.gpu)
        for name, quota in ctx.capacity.virtual_clusters.quotas.items()
    }
    jobs = [_job_usage(of_job) for of_job in UsageSample(tasks=tasks).jobs().values()]
    jobs.sort(key=lambda job: (-job.cpu, job.user, job.name))
    return ClusterUsage(
        *_time_and_interval(ctx),
        nodes=[
            NamedUsage(name, *_amounts(usage), *_totals(totals.get(name)))
            for name, (usage, _) in sample.nodes.items()
        ],
        virtual_clusters=[
            NamedUsage(name, *_amounts(usage), *_totals(totals_of_clusters.get(name)))
            for name, usage in sample.virtual_clusters.items()
        ],
        jobs=jobs[:MAX_JOBS],
        job_count=len(jobs),
        server=CurrentUsage(*_amounts(sample.server)),
    )


@route(
    "GET /api/v2/jobs/{framework}/usage",
    authority=JOBS,
    summary="Usage of a job or of one of its tasks over time, and of its running tasks now",
    tag="job",
    query=(Query("role"), Query("index", Count)),
    other_methods=405,
)
async def of_job(request: Request) -> JobUsageOverTime:
    """Usage of a job over time, or with ``role`` and ``index`` of one task; and of its running tasks now."""
    identity = await authenticate(request)
    ctx = context(request)
    row = await job_row(request, identity)
    role, index = request.query_params.get("role"), request.query_params.get("index")
    if index and not role:
        raise InvalidParameters('"index" needs "role": send the task role of the task, too.')
    key = task_key(row.id, role, int_param(index, "index", 0)) if role else job_key(row.id)
    tasks = [one for one in ctx.capacity.usage.current.tasks if one.task.job_id == row.id]
    # The order of the job's tasks, whatever they use: a table that is shown again and again must not jump.
    tasks.sort(key=lambda one: (one.task.role, one.task.index))
    return JobUsageOverTime(
        *_time_and_interval(ctx),
        series=await _series(ctx, key),
        tasks=[_task_usage(one) for one in tasks[:MAX_TASKS]],
        task_count=len(tasks),
    )


@route(
    "GET /api/v2/usage/nodes/{node}",
    authority=JOBS,
    summary="Usage of a node over time",
    other_methods=405,
)
async def of_node(request: Request) -> UsageOverTime:
    await authenticate(request)
    ctx = context(request)
    name = request.path_params["node"]
    series = await _series(ctx, node_key(name))
    if not series.times and all(node.name != name for node in await ctx.capacity.nodes.current()):
        raise NotFound(f"There is no node {name[:200]!r} in this cluster.")
    return UsageOverTime(*_time_and_interval(ctx), series=series)


@route(
    "GET /api/v2/usage/virtual-clusters/{vc}",
    authority=JOBS,
    summary="Usage of a virtual cluster over time",
    other_methods=405,
)
async def of_virtual_cluster(request: Request) -> UsageOverTime:
    await authenticate(request)
    ctx = context(request)
    name = request.path_params["vc"]
    if name not in ctx.capacity.virtual_clusters.quotas:
        raise no_cluster(name[:200])
    return UsageOverTime(*_time_and_interval(ctx), series=await _series(ctx, virtual_cluster_key(name)))


def _time_and_interval(ctx: Context) -> tuple[int | None, float | None]:
    """The fields that every response begins with."""
    usage = ctx.capacity.usage
    return usage.current.time_ms or None, usage.interval_s


async def _series(ctx: Context, key: SeriesKey) -> UsageSeries:
    points: Sequence[Point] = await asyncio.to_thread(ctx.capacity.usage.history.points, key)
    columns: list[list[Any]] = [
        list(column) for column in zip(*(_amounts(point.usage) for point in points), strict=True)
    ]
    return UsageSeries([point.time_ms for point in points], *(columns or ([] for _ in Usage._fields)))


def _job_usage(tasks: Sequence[TaskSample]) -> JobUsage:
    first = tasks[0].task
    used = total(one.usage for one in tasks)
    return JobUsage(first.user, first.job, first.vc, len(tasks), *_amounts(used), *_totals(_requested(tasks)))


def _task_usage(sample: TaskSample) -> RunningTaskUsage:
    task = sample.task
    return RunningTaskUsage(
        task.role, task.index, task.node, *_amounts(sample.usage), *_totals(_requested([sample]))
    )


def _requested(tasks: Sequence[TaskSample]) -> tuple[float, int, int]:
    return (
        sum(one.task.cpu for one in tasks),
        sum(one.task.memory_mb for one in tasks),
        sum(len(one.task.gpus) for one in tasks),
    )


def _amounts(usage: Usage) -> _Amounts:
    """The fields of a `CurrentUsage`: cores and GPUs with three digits, bytes as whole numbers; None for what
    is not measured.
    """

    def exact(value: float) -> float | None:
        return None if math.isnan(value) else round(value, 3)

    def whole(value: float) -> int | None:
        return None if math.isnan(value) else round(value)

    amounts = (
        exact(usage.cpu),
        whole(usage.memory),
        whole(usage.read),
        whole(usage.write),
        exact(usage.gpu),
        whole(usage.gpu_memory),
    )
    # All but GPUs are always measured.
    return cast(_Amounts, amounts)


def _totals(totals: tuple[float, int, int] | None) -> tuple[float, int, int]:
    """What there is: a node's capacity, a virtual cluster's quota, a task's request; memory in bytes."""
    cpu, memory_mb, gpus = totals or (0, 0, 0)
    return cpu, memory_mb * _MB, gpus
