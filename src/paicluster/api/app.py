"""ASGI application: all routes, under `/api` and under `/rest-server/api`."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from paicluster.api.context import Context, context
from paicluster.api.identity.browser_login import PROOF_HEADER
from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.middleware.request_filter import RequestFilter
from paicluster.api.middleware.response_budget import HELD_KEY
from paicluster.api.middleware.route_wrapper import wrap_route
from paicluster.api.paddlecloud.router import PaddleCloudRouter
from paicluster.api.requests.authentication import identify, token_of
from paicluster.api.requests.endpoint import endpoint_of, responding
from paicluster.api.routes import PADDLECLOUD_ROUTES, ROUTES
from paicluster.api.routing.dialect import (
    CERTIFICATE_EXTENSION,
    LOOKED_AT_BYTES,
    SHARED_JOBS_PATH,
    Dialect,
    dialect_of,
)
from paicluster.api.routing.route import Endpoint, Responder, Route
from paicluster.api.routing.route_index import RouteIndex
from paicluster.api.routing.scope import CONTEXT_KEY, ROUTE_KEY
from paicluster.api.transfer.file_response import wait_for_disconnect
from paicluster.api.wire.request_body import peek_body
from paicluster.api.wire.responses import abort_response, json_response
from paiprotocol.errors import PaiError

log = logging.getLogger("paicluster.api")

_PREFIX = "/rest-server"
# Reports of tasks, by the uid of their attempt.
_REPORTS = "/api/v2/attempts/"
_PROOF_NAME = PROOF_HEADER.lower().encode()
_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
_PATHS_WITH_405 = frozenset(route.path for route in ROUTES if route.other_methods == 405)


async def not_found(request: Request, error: Exception) -> Response:
    allowed = _allowed_methods(request)
    status = 405 if allowed else 404
    policies = context(request).server.policies
    # One series for all unknown paths: a client that probes paths must not fill the memory with series.
    policies.metrics.series(_method(request), "unknown").count(status, 0.0)
    path = request.url.path
    if allowed:
        methods = ", ".join(sorted(allowed))
        body = {"code": "MethodNotAllowedError", "message": f"API {path} takes {methods}."}
        response = json_response(body, status, {"Allow": methods})
    else:
        response = json_response({"code": "NoApiError", "message": f"API {path} is not found."}, status)
    policies.headers.apply(response)
    return response


def _allowed_methods(request: Request) -> set[str]:
    """Methods of the routes of a path on which another method is 405; empty for other paths."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in routes if route.path in _PATHS_WITH_405 for method in route.methods}


def _method(request: Request) -> str:
    return request.method if request.method in _METHODS else "OTHER"


class Gateway:
    """ASGI entry point: strips `/rest-server`, filters requests, notes the time of the last one.

    Routes without a path parameter are looked up here in a dict: submitting and listing, the most frequent
    requests, then cost a third less than through Starlette's router.
    """

    def __init__(
        self,
        routes: RouteIndex,
        direct: dict[tuple[str, str], Responder],
        request_filter: RequestFilter,
        ctx: Context,
    ):
        self._routes = routes
        self._direct = direct
        self._request_filter = request_filter
        self._context = ctx
        self._responses = ctx.server.policies.response_budget
        self.last_request = time.monotonic()
        self.open_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.last_request = time.monotonic()
        path = scope.get("path", "")
        if path.startswith("//"):
            # PaddleCloud's Go client appends paths to an endpoint that may end with a slash.
            path = scope["path"] = "/" + path.lstrip("/")
        # The prefix alone is not the portal's address.
        if (
            path.startswith(_PREFIX)
            and path[len(_PREFIX) : len(_PREFIX) + 1] == "/"
            and path != _PREFIX + "/"
        ):
            path = scope["path"] = path[len(_PREFIX) :]
        if path.endswith("/") and path.startswith("/api/"):
            # OpenPAI accepts a trailing slash, and some of its clients always send one.
            path = scope["path"] = path.rstrip("/")
        scope[CONTEXT_KEY] = self._context
        self.open_requests += 1
        connection = receive
        try:
            handler = self._direct.get((scope.get("method", ""), path))
            if self._request_filter.applies_to(path):
                receive, send, dialect_handler = await self._request_filter.apply(scope, receive, send)
                handler = dialect_handler or handler
            if handler is None:
                await self._routes.application_for(path)(scope, receive, send)
            else:
                response = await handler(Request(scope, receive, send))
                await response(scope, receive, send)
        except PaiError as error:
            # Handlers answer with theirs: this one is of a response that has begun.
            if not abort_response(connection):
                raise
            log.info("a response to %s was cut: %s", scope["method"], error.message)
            await wait_for_disconnect(connection)
        finally:
            if HELD_KEY in scope:
                self._responses.release(scope)
            self.open_requests -= 1
            self.last_request = time.monotonic()


def _is_shared_submit(route: Route) -> bool:
    return route.path == SHARED_JOBS_PATH and "POST" in route.methods


def _by_dialect(openpai: Route, paddle: Route, policies: HttpPolicies) -> Endpoint:
    """Endpoint of a path on which the body decides the dialect.

    The caller is authenticated before any of the body is read, and only the beginning of it is looked at:
    otherwise requests of strangers could fill the memory.
    """
    bound_to_paddle = policies.bind(paddle)
    respond, respond_to_paddle = responding(openpai), responding(paddle)

    async def handle(request: Request) -> Response:
        await identify(request)
        head, receive = await peek_body(request, LOOKED_AT_BYTES)
        whole = Request(request.scope, receive)
        if dialect_of(request.scope, head) is not Dialect.PADDLECLOUD:
            return await respond(whole)
        request.scope[ROUTE_KEY] = bound_to_paddle
        return await respond_to_paddle(whole)

    return Endpoint(handle, None)


async def _token_id(scope: Scope) -> str | None:
    """Id of the valid token of a request, or of the attempt whose ticket it has."""
    names = [name for name, _ in scope["headers"]]
    if (
        b"authorization" not in names
        and _PROOF_NAME not in names
        and CERTIFICATE_EXTENSION not in scope.get("extensions", {})
    ):
        return None
    # In a scope of its own: whether the route accepts the caller is not decided here.
    request = Request(dict(scope))
    path: str = scope["path"]
    try:
        if path.startswith(_REPORTS):
            uid = path[len(_REPORTS) :].partition("/")[0]
            sink = context(request).engines.report_sink(uid)
            return uid if sink is not None and sink.allows(uid, token_of(request)[0]) else None
        return (await identify(request)).token_id
    except PaiError:
        return None


def _application(routes: Sequence[BaseRoute]) -> Starlette:
    app = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found})
    app.router.redirect_slashes = False
    return app


def build(ctx: Context) -> Gateway:
    policies = ctx.server.policies
    paddle_submit = next(route for route in PADDLECLOUD_ROUTES if _is_shared_submit(route))

    def wrapped(route: Route) -> Responder:
        is_shared = _is_shared_submit(route)
        endpoint = _by_dialect(route, paddle_submit, policies) if is_shared else endpoint_of(route)
        return wrap_route(route, endpoint, policies)

    rows = [(route.path, route.methods, wrapped(route)) for route in ROUTES]
    direct = {
        (method, path): handler for path, methods, handler in rows if "{" not in path for method in methods
    }
    paddlecloud = PaddleCloudRouter(PADDLECLOUD_ROUTES, policies)
    return Gateway(
        RouteIndex(rows, _application), direct, RequestFilter(policies, paddlecloud, _token_id), ctx
    )
