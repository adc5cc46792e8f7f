"""What the server says of itself: whether work moves, how it is doing, what it can be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from paicluster.api.context import Context, authenticate, context
from paicluster.engines.interface import Node
from paicluster.metrics.http_metrics import Sample, family
from paicluster.scheduler.resource_requests import Resources
from paicluster.store import jobs

# A healthy cluster commits in milliseconds and passes in less than a second.
_SICK_AFTER_S = 10.0
_STATES = ("WAITING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED")
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


async def health(request: Request) -> Response:
    """Ready means that work moves, not that the port is open."""
    ctx = context(request)
    if trouble := ctx.degraded_reason():
        return PlainTextResponse(f"{trouble}\n", 503)
    waiting, passing = ctx.store.queue_age(), ctx.controller_age()
    if waiting > _SICK_AFTER_S:
        return PlainTextResponse(f"Writes have been waiting for {waiting:.0f} s.\n", 503)
    if passing > _SICK_AFTER_S:
        return PlainTextResponse(f"The controller has been busy for {passing:.0f} s.\n", 503)
    return PlainTextResponse("Pylon ready.")


async def openapi(request: Request) -> Response:
    """Made once, when somebody first asks: nobody else pays for it."""
    # Imported here because it describes the routes, of which this is one.
    from paicluster.api.openapi import openapi_json

    body = await asyncio.to_thread(openapi_json, context(request).version)
    return Response(body, media_type="application/json")


async def metrics(request: Request) -> Response:
    """For Prometheus, with the token of anybody who may look at the cluster."""
    return Response("\n".join([*await metric_lines(request), ""]), media_type=_TEXT)


async def metric_lines(request: Request) -> list[str]:
    """The figures as lines, for whoever may look at the cluster."""
    await authenticate(request)
    ctx = context(request)
    counted = await ctx.store.read(lambda conn: _count_all(conn, tuple(ctx.shares)))
    return [*_cluster(await ctx.nodes(), counted), *_server(ctx), *ctx.policies.meters.lines()]


@dataclass(frozen=True, slots=True)
class _Counted:
    states: dict[str, int]
    waiting: dict[str, int]
    used: dict[str, Resources]


def _count_all(conn: Connection, virtual_clusters: Sequence[str]) -> _Counted:
    def count(state: str, vc: tuple[str, ...] = ()) -> int:
        return jobs.list_jobs(conn, jobs.JobQuery(state=(state,), vc=vc, limit=0, with_total=True)).total or 0

    used: dict[str, Resources] = {}
    for place in jobs.held_places(conn):
        taken = Resources(int(place.cpu), place.memory_mb, place.gpus)
        used[place.node] = used.get(place.node, Resources()).plus(taken)
    return _Counted(
        {state: count(state) for state in _STATES},
        {vc: count("WAITING", (vc,)) for vc in virtual_clusters},
        used,
    )


def _cluster(nodes: Sequence[Node], counted: _Counted) -> Iterator[str]:
    by_state: list[Sample] = [("", {"state": state}, count) for state, count in counted.states.items()]
    yield from family("paicluster_jobs", "gauge", "Jobs the cluster knows, by state.", by_state)
    queued: list[Sample] = [("", {"virtual_cluster": vc}, count) for vc, count in counted.waiting.items()]
    yield from family("paicluster_jobs_waiting", "gauge", "Jobs that wait, by virtual cluster.", queued)
    whole: list[Sample] = []
    free: list[Sample] = []
    for node in nodes:
        has = Resources(node.cpu, node.memory_mb, len(node.gpus))
        rest = has.minus(counted.used.get(node.name, Resources()))
        for kind, all_of_it, left in zip(("cpu", "memory_mb", "gpu"), has, rest, strict=True):
            labels = {"node": node.name, "resource": kind}
            whole.append(("", labels, all_of_it))
            free.append(("", labels, max(0, left)))
    yield from family("paicluster_resources_total", "gauge", "What each node has.", whole)
    yield from family("paicluster_resources_free", "gauge", "What each node has left.", free)


def _server(ctx: Context) -> Iterator[str]:
    def one(name: str, text: str, value: float, kind: str = "gauge") -> Iterator[str]:
        return family(f"paicluster_{name}", kind, text, [("", {}, value)])

    yield from one("writer_queue_age_seconds", "How long the oldest write waits.", ctx.store.queue_age())
    yield from one("controller_pass_age_seconds", "How long this pass takes already.", ctx.controller_age())
    yield from one(
        "cannot_write", "1 while the controller can write nothing down.", bool(ctx.degraded_reason())
    )
    yield from one(
        "jobs_set_aside", "Jobs that an unexpected error keeps from going on.", ctx.quarantined_jobs()
    )
    yield from one("stops_not_written", "Stops that could not be written down yet.", ctx.unwritten_stops())
    yield from one("database_commits_total", "Transactions on disk.", ctx.store.commits, "counter")
    heartbeat = ctx.policies.heartbeat
    if heartbeat is not None:
        worst = heartbeat.take_worst()
        yield from one("loop_lag_seconds", "How late the event loop last was.", heartbeat.lag_s)
        yield from one("loop_lag_worst_seconds", "The worst since this was last asked for.", worst)
        yield from one(
            "loop_stuck_total", "Times the loop's stack was printed.", heartbeat.stuck_total, "counter"
        )
