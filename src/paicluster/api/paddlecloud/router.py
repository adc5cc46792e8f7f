"""Router of PaddleCloud's dialect. Its paths have no trailing slash: the gateway strips it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.middleware.route_wrapper import wrap_route
from paicluster.api.requests.endpoint import endpoint_of
from paicluster.api.routing.authority import PUBLIC
from paicluster.api.routing.route import Route
from paicluster.api.wire.paddlecloud import PaddleReply
from paicluster.api.wire.responses import json_response

_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")


class PaddleCloudRouter:
    """Finds the handler of a request of this dialect."""

    def __init__(self, routes: Sequence[Route], policies: HttpPolicies):
        self._routes = routes
        self._handlers = {
            (method, route.path): handler
            for route in routes
            for handler in [wrap_route(route, endpoint_of(route), policies)]
            for method in route.methods
        }
        unknown = Route(handler=self._not_found, methods=_METHODS, path="paddlecloud", authority=PUBLIC)
        self._unknown = wrap_route(unknown, endpoint_of(unknown), policies)

    async def __call__(self, request: Request) -> Response:
        scope = request.scope
        path: str = scope["path"].rstrip("/")
        handler = self._handlers.get((scope["method"], path))
        if handler is None:
            parent, _, name = path.rpartition("/")
            handler = self._handlers.get((scope["method"], parent + "/{job}")) if name else None
            scope["path_params"] = {"job": name}
        return await (handler or self._unknown)(request)

    async def _not_found(self, request: Request) -> Response:
        path = request.url.path
        methods = self._methods_of(request.scope["path"].rstrip("/"))
        if methods:
            message = f"PaddleCloud has no {request.method} {path}; it takes {methods}."
            return json_response(PaddleReply(405, message), 405, {"Allow": methods})
        return json_response(PaddleReply(404, f"PaddleCloud has no {request.method} {path}."), 404)

    def _methods_of(self, path: str) -> str:
        """Methods that a path of this dialect takes."""
        parent, _, name = path.rpartition("/")
        paths = (path, parent + "/{job}" if name else "")
        return ", ".join(
            sorted({method for route in self._routes if route.path in paths for method in route.methods})
        )
