"""OpenPAI's marketplace API: always empty and read-only.

OpenPAI's portal and editor extensions query it for job templates, and accept an empty list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, NotFound
from paicluster.api.context import authenticate
from paicluster.api.responses import json_response

Handler = Callable[[Request], Awaitable[Response]]

_BASE = "/marketplace/api"
_ITEM = _BASE + "/items/{item}"


async def empty_list(request: Request) -> Response:
    await authenticate(request)
    return json_response([])


async def no_item(request: Request) -> Response:
    await authenticate(request)
    raise NotFound(f"Item {request.path_params['item'][:100]} is not found.", code="NoItemError")


async def refuse_change(request: Request) -> Response:
    await authenticate(request)
    raise InvalidParameters("This cluster has no marketplace.", code="NotImplementedError")


ROUTES: list[tuple[str, list[str], Handler]] = [
    *((f"{_BASE}/{kind}", ["GET"], empty_list) for kind in ("items", "tags", "categories")),
    *(
        (f"{_BASE}/{kind}", ["POST"], refuse_change)
        for kind in ("items", "tags", "categories", "storages/blobs")
    ),
    (_ITEM, ["GET"], no_item),
    (_ITEM, ["PUT", "DELETE"], refuse_change),
    *((f"{_ITEM}/{kind}", ["GET"], no_item) for kind in ("tag", "category")),
    *((f"{_ITEM}/{kind}", ["POST"], refuse_change) for kind in ("tag", "category")),
    *((f"{_ITEM}/{kind}/{{which}}", ["PUT", "DELETE"], refuse_change) for kind in ("tag", "category")),
]
