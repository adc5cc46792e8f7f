"""Server status: `/healthz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from paicluster.api.context import Context, context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import CLUSTER, PUBLIC
from paicluster.api.routing.route import Routes, Text
from paicluster.engines.interface import Node
from paicluster.metrics import exposition
from paicluster.metrics.usage_exposition import usage_lines
from paicluster.scheduler.resource_requests import Resources
from paicluster.store import jobs

route = Routes("server")

# A healthy cluster commits in milliseconds and reconciles in less than a second.
_UNHEALTHY_AFTER_S = 10.0
_STATES = ("WAITING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED")
_PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


@route(
    "GET /healthz",
    "GET /healthz/",
    authority=PUBLIC,
    summary="Health: 200 while jobs make progress",
    returns={200: Text(), 503: Text()},
    other_methods=405,
)
async def health(request: Request) -> Response:
    """Readiness: jobs make progress, not only that the port is open."""
    ctx = context(request)
    if degraded := ctx.controller.degraded_reason():
        return PlainTextResponse(f"{degraded}\n", 503)
    queue_age_s, reconcile_age_s = ctx.store.queue_age(), ctx.controller.reconcile_age()
    if queue_age_s > _UNHEALTHY_AFTER_S:
        return PlainTextResponse(f"Writes have been waiting for {queue_age_s:.0f} s.\n", 503)
    if reconcile_age_s > _UNHEALTHY_AFTER_S:
        return PlainTextResponse(f"The controller has been busy for {reconcile_age_s:.0f} s.\n", 503)
    if failure := await ctx.store.write_failure():
        return PlainTextResponse(f"{failure.message} {failure.hint}\n", 503)
    # PaddleCloud's path ends with a slash.
    return PlainTextResponse("OK" if request.url.path.endswith("/") else "Pylon ready.")


@route(
    "GET /metrics",
    authority=CLUSTER,
    summary="Metrics in Prometheus' text format",
    returns={200: Text()},
    other_methods=405,
)
async def metrics(request: Request) -> Response:
    """For Prometheus, with the token of any user."""
    return Response("\n".join([*await metric_lines(request), ""]), media_type=_PROMETHEUS_TEXT)


async def metric_lines(request: Request) -> list[str]:
    """All metrics as lines of Prometheus' text format; needs a token."""
    await authenticate(request)
    ctx = context(request)
    counts = await ctx.store.read(lambda conn: _job_counts(conn, tuple(ctx.capacity.virtual_clusters.quotas)))
    return [
        *exposition.cluster_lines(_cluster_snapshot(await ctx.capacity.nodes.current(), counts)),
        *exposition.server_lines(_server_snapshot(ctx)),
        *usage_lines(ctx.capacity.usage.current),
        *ctx.server.policies.metrics.lines(),
    ]


class _JobCounts(msgspec.Struct, frozen=True):
    """Jobs by state, pending jobs by virtual cluster, allocated resources by node."""

    by_state: dict[str, int]
    pending: dict[str, int]
    allocated: dict[str, Resources]


def _job_counts(conn: Connection, virtual_clusters: Sequence[str]) -> _JobCounts:
    def count(state: str, vc: tuple[str, ...] = ()) -> int:
        return jobs.list_jobs(conn, jobs.JobQuery(state=(state,), vc=vc, limit=0, with_total=True)).total or 0

    allocated: dict[str, Resources] = {}
    for placement in jobs.task_usage(conn):
        resources = Resources(int(placement.cpu), placement.memory_mb, placement.gpus)
        allocated[placement.node] = allocated.get(placement.node, Resources()).plus(resources)
    return _JobCounts(
        {state: count(state) for state in _STATES},
        {vc: count("WAITING", (vc,)) for vc in virtual_clusters},
        allocated,
    )


def _cluster_snapshot(nodes: Sequence[Node], counts: _JobCounts) -> exposition.ClusterSnapshot:
    resources = {}
    for node in nodes:
        capacity = Resources(node.cpu, node.memory_mb, len(node.gpus))
        free = capacity.minus(counts.allocated.get(node.name, Resources()))
        resources[node.name] = exposition.NodeResources(
            (capacity.cpu, capacity.memory_mb, capacity.gpu), (free.cpu, free.memory_mb, free.gpu)
        )
    return exposition.ClusterSnapshot(counts.by_state, counts.pending, resources)


def _server_snapshot(ctx: Context) -> exposition.ServerSnapshot:
    watchdog = ctx.server.policies.loop_watchdog
    event_loop = None
    if watchdog is not None:
        max_lag_s = watchdog.take_max_lag()
        event_loop = exposition.EventLoopSnapshot(watchdog.lag_s, max_lag_s, watchdog.stalls_total)
    return exposition.ServerSnapshot(
        writer_queue_age_s=ctx.store.queue_age(),
        reconcile_age_s=ctx.controller.reconcile_age(),
        store_unwritable=bool(ctx.controller.degraded_reason()),
        quarantined_jobs=ctx.controller.quarantined(),
        stops_pending_write=ctx.controller.pending_stops(),
        commits=ctx.store.commits,
        event_loop=event_loop,
    )
