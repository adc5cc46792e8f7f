"""Routes of version 1 virtual clusters."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import Context, context
from paicluster.api.permissions import authenticate_reader
from paicluster.api.responses import json_response
from paicluster.api.v1 import serializers
from paicluster.api.v2 import virtual_clusters as v2
from paicluster.api.v2.virtual_clusters import virtual_clusters
from paicluster.services.virtual_clusters import no_cluster
from paicluster.store import jobs


async def list_clusters(request: Request) -> Response:
    await authenticate_reader(request)
    return json_response(await _virtual_clusters(context(request)))


async def one_cluster(request: Request) -> Response:
    await authenticate_reader(request)
    name = v2.validate_name(request.path_params["vc"])
    clusters = await _virtual_clusters(context(request))
    if name not in clusters:
        raise no_cluster(name)
    return json_response(clusters[name])


async def _virtual_clusters(ctx: Context) -> dict[str, Any]:
    v2_clusters = await virtual_clusters(ctx)
    counts = await ctx.store.read(
        lambda conn: {
            name: (_count(conn, name, "RUNNING"), _count(conn, name, "WAITING")) for name in v2_clusters
        }
    )
    addresses = [node.ip for node in await ctx.nodes()]
    return {
        name: serializers.virtual_cluster(vc, *counts[name], addresses, _status(ctx, name, sum(counts[name])))
        for name, vc in v2_clusters.items()
    }


def _count(conn: Connection, vc: str, state: str) -> int:
    query = jobs.JobQuery(vc=(vc,), state=(state,), limit=0, with_total=True)
    return jobs.list_jobs(conn, query).total or 0


def _status(ctx: Context, name: str, unfinished: int) -> str:
    if name not in ctx.virtual_clusters.stopped:
        return "RUNNING"
    return "DRAINING" if unfinished else "STOPPED"


# -- changes --------------------------------------------------------------------------------------


async def put_cluster(request: Request) -> Response:
    result = await v2.put(request)
    verb = "create" if result.created else "update"
    return json_response(
        {"message": f"{verb} vc: {result.name} to capacity: {result.capacity:g} successfully"}, 201
    )


async def put_status(request: Request) -> Response:
    name, status = await v2.set_status(request)
    verb = "stop" if status == "stopped" else "active"
    return json_response({"message": f"{verb} vc {name} successfully"}, 201)


async def delete_cluster(request: Request) -> Response:
    return json_response({"message": f"Remove vc: {await v2.remove(request)} successfully"}, 201)
