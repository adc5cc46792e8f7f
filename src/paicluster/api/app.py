"""The application: every route, under `/api` and under `/rest-server/api`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from paicluster.api.answers import answer, route_errors
from paicluster.api.context import KEY, Context, context
from paicluster.api.v1 import routes as v1
from paicluster.api.v2 import authn, clusters, follow, jobs, sources, tasklogs

Handler = Callable[[Request], Awaitable[Response]]

# A healthy cluster commits in milliseconds and passes in less than a second.
_SICK_AFTER_S = 10.0
_PREFIX = "/rest-server"
_JOB = "/api/v2/jobs/{framework}"
_TASK = _JOB + "/attempts/{attempt:count}/taskRoles/{role}/taskIndex/{index:count}/attempts"
_ANY = ["GET", "POST", "PUT", "DELETE"]

_ROUTES: list[tuple[str, list[str], Handler]] = [
    ("/api/v2/jobs", ["POST"], jobs.submit),
    ("/api/v2/jobs", ["GET"], jobs.list_jobs),
    (_JOB, ["GET"], jobs.detail),
    (_JOB + "/follow", ["GET"], follow.follow),
    (_JOB + "/config", ["GET"], jobs.config),
    (_JOB + "/executionType", ["PUT"], jobs.execution_type),
    (_JOB + "/events", ["GET"], jobs.events),
    (_JOB + "/attempts/{attempt:count}", ["GET"], jobs.detail),
    (_TASK, ["GET"], jobs.task_attempts),
    (_TASK + "/{task_attempt:count}/logs", ["GET"], tasklogs.locations),
    ("/log-manager/{node}/api/v1/logs/{stream}", ["GET"], tasklogs.read_log),
    ("/api/v2/sources/{sha256}", ["HEAD"], sources.has_sources),
    ("/api/v2/sources/{sha256}", ["PUT"], sources.put_sources),
    ("/api/v2/virtual-clusters", ["GET"], clusters.list_clusters),
    ("/api/v2/virtual-clusters/{vc}", ["GET"], clusters.one_cluster),
    ("/api/v2", _ANY, authn.banner),
    ("/api/v2/info", _ANY, authn.info),
    ("/api/v2/authn/info", ["GET"], authn.authn_info),
    ("/api/v2/authn/basic/login", ["POST"], authn.login),
    ("/api/v2/authn/basic/logout", ["DELETE"], authn.logout),
    ("/api/v2/tokens", ["GET"], authn.list_tokens),
    ("/api/v2/tokens/application", ["POST"], authn.application_token),
    ("/api/v2/tokens/check", ["GET"], authn.check_token),
    ("/api/v2/tokens/{token}", ["DELETE"], authn.revoke_token),
    ("/api/v1", _ANY, authn.info),
    ("/api/v1/token", ["POST"], authn.login),
    *v1.ROUTES,
]


class _Count(IntegerConvertor):
    """A number in a path. One longer than any we give out is a number that nothing has."""

    def convert(self, value: str) -> int:
        return int(value) if len(value) <= 9 else 10**9


register_url_convertor("count", _Count())


async def health(request: Request) -> Response:
    """Ready means that work moves, not that the port is open."""
    ctx = context(request)
    waiting, passing = ctx.store.queue_age(), ctx.controller_age()
    if waiting > _SICK_AFTER_S:
        return PlainTextResponse(f"Writes have been waiting for {waiting:.0f} s.\n", 503)
    if passing > _SICK_AFTER_S:
        return PlainTextResponse(f"The controller has been busy for {passing:.0f} s.\n", 503)
    return PlainTextResponse("Pylon ready.")


async def _unknown(request: Request, error: Exception) -> Response:
    path = request.url.path
    return answer({"code": "NoApiError", "message": f"API {path} is not found."}, 404)


class Door:
    """Takes the `/rest-server` prefix off, and knows when somebody last asked for something.

    Routes without a parameter are found here, in one look: submitting and listing, which clients do most,
    then cost a third less than through the router.
    """

    def __init__(self, app: Starlette, direct: dict[tuple[str, str], Handler], ctx: Context):
        self._app = app
        self._direct = direct
        self._context = ctx
        self.last_request = time.monotonic()
        self.open_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.last_request = time.monotonic()
        path = scope.get("path", "")
        if path.startswith(_PREFIX) and (len(path) == len(_PREFIX) or path[len(_PREFIX)] == "/"):
            scope["path"] = path[len(_PREFIX) :] or "/"
            path = scope["path"]
        scope[KEY] = self._context
        self.open_requests += 1
        try:
            handler = self._direct.get((scope.get("method", ""), path))
            if handler is None:
                await self._app(scope, receive, send)
            else:
                answer = await handler(Request(scope, receive, send))
                await answer(scope, receive, send)
        finally:
            self.open_requests -= 1
            self.last_request = time.monotonic()


def build(ctx: Context) -> Door:
    guarded = [(path, methods, route_errors(handler)) for path, methods, handler in _ROUTES]
    guarded.append(("/healthz", ["GET"], route_errors(health)))
    routes = [Route(path, handler, methods=methods) for path, methods, handler in guarded]
    direct = {
        (method, path): handler for path, methods, handler in guarded if "{" not in path for method in methods
    }
    app = Starlette(routes=routes, exception_handlers={404: _unknown, 405: _unknown})
    app.router.redirect_slashes = False
    return Door(app, direct, ctx)
