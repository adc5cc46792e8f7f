"""OpenPAI's marketplace API: always empty and read-only.

OpenPAI's portal and editor extensions query it for job templates, and accept an empty list.
"""

from __future__ import annotations

from typing import Any, NoReturn

from starlette.requests import Request

from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import CLUSTER
from paicluster.api.routing.route import Routes
from paicluster.api.wire.base import Problem
from paiprotocol.errors import InvalidParameters, NotFound

route = Routes("server")


@route(
    "GET /marketplace/api/(items|tags|categories)",
    authority=CLUSTER,
    summary="Empty list: the cluster has no marketplace",
)
async def empty_list(request: Request) -> list[Any]:
    await authenticate(request)
    return []


@route(
    "GET /marketplace/api/items/{item}",
    "GET /marketplace/api/items/{item}/(tag|category)",
    authority=CLUSTER,
    summary="Not found: the cluster has no marketplace",
    returns={404: Problem},
)
async def no_item(request: Request) -> NoReturn:
    await authenticate(request)
    raise NotFound(f"Item {request.path_params['item'][:100]} is not found.", code="NoItemError")


@route(
    "POST /marketplace/api/(items|tags|categories|storages/blobs)",
    "PUT|DELETE /marketplace/api/items/{item}",
    "POST /marketplace/api/items/{item}/(tag|category)",
    "PUT|DELETE /marketplace/api/items/{item}/(tag|category)/{which}",
    authority=CLUSTER,
    summary="Refused: the cluster has no marketplace",
    returns={400: Problem},
)
async def refuse_change(request: Request) -> NoReturn:
    await authenticate(request)
    raise InvalidParameters("This cluster has no marketplace.", code="NotImplementedError")
