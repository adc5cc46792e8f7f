"""Virtual clusters as version 1 shows them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import NotFound
from paicluster.api.answers import answer
from paicluster.api.context import Context, context, identify
from paicluster.api.v1 import shapes
from paicluster.api.v2.clusters import virtual_clusters
from paicluster.store import jobs


async def list_clusters(request: Request) -> Response:
    await identify(request)
    return answer(await _all(context(request)))


async def one_cluster(request: Request) -> Response:
    await identify(request)
    name = request.path_params["vc"]
    found = await _all(context(request))
    if name not in found:
        raise NotFound(f"Vc {name} not found", code="NoVirtualClusterError")
    return answer(found[name])


async def _all(ctx: Context) -> dict[str, Any]:
    known = await virtual_clusters(ctx)
    counts = await ctx.store.read(
        lambda conn: {name: (_count(conn, name, "RUNNING"), _count(conn, name, "WAITING")) for name in known}
    )
    addresses = [node.ip for node in ctx.nodes()]
    return {name: shapes.virtual_cluster(vc, *counts[name], addresses) for name, vc in known.items()}


def _count(conn: Connection, vc: str, state: str) -> int:
    query = jobs.JobQuery(vc=(vc,), state=(state,), limit=0, with_total=True)
    return jobs.list_jobs(conn, query).total or 0
