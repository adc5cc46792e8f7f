"""The index finds the same route as a search of all routes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from paicluster.api.routes import ROUTES
from paicluster.api.routing.route_index import RouteIndex, RouteRow


async def _handler(request: Request) -> Response:
    return Response()


_ROWS: list[RouteRow] = [(route.path, route.methods, _handler) for route in ROUTES]
_ROUTES = [Route(path, handler, methods=list(methods)) for path, methods, handler in _ROWS]
_INDEX = RouteIndex(_ROWS, lambda routes: Starlette(routes=list(routes)))
_PATHS = sorted({re.sub(r"\{[^}]*\}", "7", route.path) for route in ROUTES})


def matches(routes: Sequence[object], path: str) -> list[str]:
    scope = {"type": "http", "method": "GET", "path": path, "root_path": ""}
    return [route.path for route in routes if route.matches(scope)[0] is not Match.NONE]  # type: ignore[attr-defined]


@pytest.mark.parametrize("end", ["", "/", "/more", "/a/b/c"])
def test_every_path_matches_the_same_routes(end: str) -> None:
    for path in [*_PATHS, "/", "/api", "/api/v2x", "/api/v2/none", "/webhdfs", "/webhdfs/v1", "/none/at/all"]:
        found = _INDEX.application_for(path + end).routes
        assert matches(found, path + end) == matches(_ROUTES, path + end), path + end


@pytest.mark.parametrize(
    "path", ["/webhdfs/v1/alice/file", "/api/v2/transfer/file", "/api/v2/jobs/alice~job"]
)
def test_frequent_paths_are_compared_with_few_routes(path: str) -> None:
    assert len(_INDEX.application_for(path).routes) < len(_ROUTES) / 4
