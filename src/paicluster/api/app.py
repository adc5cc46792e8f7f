"""The application: every route, under `/api` and under `/rest-server/api`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from paicluster.api import marketplace, own, paddlecloud, prometheus, reports
from paicluster.api.answers import KEY, answer
from paicluster.api.context import Context, context
from paicluster.api.door import Doorkeeper
from paicluster.api.guard import guard
from paicluster.api.limits import Window
from paicluster.api.pages import job as job_page
from paicluster.api.transfer import routes as transfer
from paicluster.api.v1 import jobs as v1_jobs
from paicluster.api.v1 import routes as v1
from paicluster.api.v2 import authn, clusters, follow, jobs, sources, tasklogs
from paicluster.api.v2 import routes as v2
from paicluster.api.webhdfs import routes as webhdfs

Handler = Callable[[Request], Awaitable[Response]]

_PREFIX = "/rest-server"
_JOB = "/api/v2/jobs/{framework}"
_TASK = _JOB + "/attempts/{attempt:count}/taskRoles/{role}/taskIndex/{index:count}/attempts"
_ANY = ["GET", "POST", "PUT", "DELETE"]

ROUTES: list[tuple[str, list[str], Handler]] = [
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
    *v2.ROUTES,
    *v1.ROUTES,
    ("/job-detail.html", ["GET"], job_page.job_detail),
    ("/job-detail.html", ["POST"], job_page.sign),
    ("/healthz", ["GET"], own.health),
    ("/metrics", ["GET"], own.metrics),
    ("/openapi.json", ["GET"], own.description),
    *marketplace.ROUTES,
    ("/prometheus/api/v1/query", ["GET", "POST"], prometheus.query),
    ("/prometheus/api/v1/query_range", ["GET", "POST"], prometheus.query_range),
]
# Not described: WebHDFS is Hadoop's, with its operations in the query; transfers are our own client's affair,
# and reports that of our tasks.
_EVERY = (*ROUTES, *webhdfs.ROUTES, *transfer.ROUTES, *reports.ROUTES)


class _Count(IntegerConvertor):
    """A number in a path. One longer than any we give out is a number that nothing has."""

    def convert(self, value: str) -> int:
        return int(value) if len(value) <= 9 else 10**9


register_url_convertor("count", _Count())


async def _unknown(request: Request, error: Exception) -> Response:
    edge = context(request).edge
    # Under one name: whoever tries addresses must not fill our memory with them.
    edge.meters.series(_method(request), "unknown").count(404, 0.0)
    path = request.url.path
    response = answer({"code": "NoApiError", "message": f"API {path} is not found."}, 404)
    edge.headers.put_on(response)
    return response


def _method(request: Request) -> str:
    return request.method if request.method in (*_ANY, "HEAD", "OPTIONS", "PATCH") else "OTHER"


class Door:
    """Takes the `/rest-server` prefix off, and knows when somebody last asked for something.

    Routes without a parameter are found here, in one look: submitting and listing, which clients do most,
    then cost a third less than through the router.
    """

    def __init__(
        self,
        app: Starlette,
        direct: dict[tuple[str, str], Handler],
        doorkeeper: Doorkeeper,
        ctx: Context,
    ):
        self._app = app
        self._direct = direct
        self._doorkeeper = doorkeeper
        self._context = ctx
        self.last_request = time.monotonic()
        self.open_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.last_request = time.monotonic()
        path = scope.get("path", "")
        if path.startswith(_PREFIX) and (len(path) == len(_PREFIX) or path[len(_PREFIX)] == "/"):
            scope["path"] = path[len(_PREFIX) :] or "/"
            path = scope["path"]
        if path.endswith("/") and path.startswith("/api/"):
            # The original does not mind a slash at the end, and some of its clients always send one.
            path = scope["path"] = path.rstrip("/")
        scope[KEY] = self._context
        self.open_requests += 1
        try:
            handler = self._direct.get((scope.get("method", ""), path))
            if self._doorkeeper.wanted(path):
                receive, send, other = await self._doorkeeper.look(scope, receive, send)
                handler = other or handler
            if handler is None:
                await self._app(scope, receive, send)
            else:
                answer = await handler(Request(scope, receive, send))
                await answer(scope, receive, send)
        finally:
            self.open_requests -= 1
            self.last_request = time.monotonic()


def build(ctx: Context) -> Door:
    edge = ctx.edge
    rates: dict[Handler, Window | None] = {
        jobs.list_jobs: edge.rates.lists,
        jobs.submit: edge.rates.submissions,
    }
    rates |= {v1_jobs.list_jobs: edge.rates.lists, v1_jobs.submit: edge.rates.submissions}

    of_tasks = {handler for _, _, handler in reports.ROUTES}

    def guarded(path: str, methods: list[str], handler: Handler) -> Handler:
        route = edge.logins.guarded(handler) if handler in (authn.login, authn.log_token) else handler
        # A log that grows is nobody's doing.
        return guard(route, path, methods, edge, rates.get(handler), recorded=handler not in of_tasks)

    rows = [(path, methods, guarded(path, methods, handler)) for path, methods, handler in _EVERY]
    routes = [Route(path, handler, methods=methods) for path, methods, handler in rows]
    direct = {
        (method, path): handler for path, methods, handler in rows if "{" not in path for method in methods
    }
    app = Starlette(routes=routes, exception_handlers={404: _unknown, 405: _unknown})
    app.router.redirect_slashes = False
    elsewhere = guard(paddlecloud.not_yet, "paddlecloud", [*_ANY, "PATCH", "OPTIONS"], edge)
    return Door(app, direct, Doorkeeper(edge, elsewhere), ctx)
