"""The marketplace's address: it is empty, and nothing can be put into it.

Portals and editors of the original look here for templates of jobs, and are content with none.
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


async def nothing(request: Request) -> Response:
    """Of whatever there could be."""
    await authenticate(request)
    return json_response([])


async def no_item(request: Request) -> Response:
    await authenticate(request)
    raise NotFound(f"Item {request.path_params['item'][:100]} is not found.", code="NoItemError")


async def not_kept(request: Request) -> Response:
    await authenticate(request)
    raise InvalidParameters("This cluster keeps no marketplace.", code="NotImplementedError")


ROUTES: list[tuple[str, list[str], Handler]] = [
    *((f"{_BASE}/{kind}", ["GET"], nothing) for kind in ("items", "tags", "categories")),
    *((f"{_BASE}/{kind}", ["POST"], not_kept) for kind in ("items", "tags", "categories", "storages/blobs")),
    (_ITEM, ["GET"], no_item),
    (_ITEM, ["PUT", "DELETE"], not_kept),
    *((f"{_ITEM}/{kind}", ["GET"], no_item) for kind in ("tag", "category")),
    *((f"{_ITEM}/{kind}", ["POST"], not_kept) for kind in ("tag", "category")),
    *((f"{_ITEM}/{kind}/{{which}}", ["PUT", "DELETE"], not_kept) for kind in ("tag", "category")),
]
