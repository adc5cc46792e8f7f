"""ASGI application: all routes, under `/api` and under `/rest-server/api`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import cache

from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from paicluster.api import marketplace, prometheus_query, server_status, task_reports
from paicluster.api.authority import PUBLIC, UNDECLARED, Authority
from paicluster.api.context import Context, context, identify
from paicluster.api.dialect import LOOKED_AT_BYTES, SHARED_JOBS_PATH, Dialect, dialect_of
from paicluster.api.middleware.rate_limits import RateWindow
from paicluster.api.middleware.request_filter import RequestFilter
from paicluster.api.middleware.route_wrapper import wrap_route
from paicluster.api.paddlecloud import jobs as paddle_jobs
from paicluster.api.paddlecloud import routes as paddlecloud
from paicluster.api.portal import routes as portal
from paicluster.api.responses import KEY, json_response, peek_body
from paicluster.api.route_authorities import AUTHORITIES
from paicluster.api.transfer import routes as transfer
from paicluster.api.v1 import jobs as v1_jobs
from paicluster.api.v1 import routes as v1
from paicluster.api.v2 import (
    apps,
    browser_sessions,
    follow,
    forward,
    jobs,
    login,
    sources,
    task_logs,
    virtual_clusters,
)
from paicluster.api.v2 import exec as exec_route
from paicluster.api.v2 import routes as v2
from paicluster.api.webhdfs import routes as webhdfs

Handler = Callable[[Request], Awaitable[Response]]

_PREFIX = "/rest-server"
_JOB = "/api/v2/jobs/{framework}"
_TASK = _JOB + "/attempts/{attempt:count}/taskRoles/{role}/taskIndex/{index:count}/attempts"
_ANY = ["GET", "POST", "PUT", "DELETE"]


async def openapi(request: Request) -> Response:
    """In this module because the document describes its `ROUTES`."""
    body = await asyncio.to_thread(_openapi_json, context(request).version)
    return Response(body, media_type="application/json")


@cache
def _openapi_json(version: str) -> bytes:
    """Built at the first request: the types of the description take time and memory to import."""
    from paicluster.api.openapi import openapi_json

    return openapi_json(DESCRIBED_ROUTES, version)


def authority_of(handler: Handler) -> Authority:
    """The declared authority of a route; without a declaration it accepts no token."""
    return PUBLIC if handler is openapi else AUTHORITIES.get(handler, UNDECLARED)


ROUTES: list[tuple[str, list[str], Handler]] = [
    ("/api/v2/jobs", ["POST"], jobs.submit),
    ("/api/v2/jobs", ["GET"], jobs.list_jobs),
    (_JOB, ["GET"], jobs.detail),
    (_JOB + "/follow", ["GET"], follow.follow),
    (_JOB + "/forward", ["GET"], forward.forward),
    (_JOB + "/apps", ["POST"], apps.open_app),
    (_JOB + "/config", ["GET"], jobs.config),
    (_JOB + "/executionType", ["PUT"], jobs.execution_type),
    (_JOB + "/events", ["GET"], jobs.events),
    (_JOB + "/attempts/{attempt:count}", ["GET"], jobs.detail),
    (_TASK, ["GET"], jobs.task_attempts),
    (_TASK + "/{task_attempt:count}/logs", ["GET"], task_logs.locations),
    ("/log-manager/{node}/api/v1/logs/{stream}", ["GET"], task_logs.read_log),
    ("/api/v2/sources/{sha256}", ["HEAD"], sources.has_sources),
    ("/api/v2/sources/{sha256}", ["PUT"], sources.put_sources),
    ("/api/v2/virtual-clusters", ["GET"], virtual_clusters.list_clusters),
    ("/api/v2/virtual-clusters/{vc}", ["GET"], virtual_clusters.one_cluster),
    ("/api/v2", _ANY, login.banner),
    ("/api/v2/info", _ANY, login.info),
    ("/api/v2/authn/info", ["GET"], login.authn_info),
    ("/api/v2/authn/basic/login", ["POST"], login.login),
    ("/api/v2/authn/basic/logout", ["DELETE"], login.logout),
    ("/api/v2/authn/session", ["POST"], browser_sessions.sign_in),
    ("/api/v2/authn/session", ["DELETE"], browser_sessions.sign_out),
    ("/api/v2/authn/links", ["POST"], browser_sessions.issue_link),
    ("/api/v2/tokens", ["GET"], login.list_tokens),
    ("/api/v2/tokens/application", ["POST"], login.application_token),
    ("/api/v2/tokens/check", ["GET"], login.check_token),
    ("/api/v2/tokens/{token}", ["DELETE"], login.revoke_token),
    ("/api/v1", _ANY, login.info),
    ("/api/v1/token", ["POST"], login.login),
    *v2.ROUTES,
    *v1.ROUTES,
    *paddlecloud.ROUTES,
    ("/healthz", ["GET"], server_status.health),
    ("/healthz/", ["GET"], server_status.health),
    ("/metrics", ["GET"], server_status.metrics),
    ("/openapi.json", ["GET"], openapi),
    *marketplace.ROUTES,
    ("/prometheus/api/v1/query", ["GET", "POST"], prometheus_query.query),
    ("/prometheus/api/v1/query_range", ["GET", "POST"], prometheus_query.query_range),
]
DESCRIBED_ROUTES = (*ROUTES, *paddlecloud.SHARED)
# They are described in `/openapi.json`. The rest is not: WebHDFS is Hadoop's protocol, with its operations
# in the query; transfers are between our client and server, reports between our tasks and server; and OpenAPI
# has no words for a WebSocket. The portal is for browsers.
_SESSION_ROUTES = [(_JOB + "/exec", ["GET"], exec_route.exec_session)]
_UNDESCRIBED = (*_SESSION_ROUTES, *webhdfs.ROUTES, *transfer.ROUTES, *task_reports.ROUTES, *portal.ROUTES)
ALL_ROUTES = (*ROUTES, *_UNDESCRIBED)


class _Count(IntegerConvertor):
    """A number in a path. A longer one than the server ever issues becomes one that matches nothing."""

    def convert(self, value: str) -> int:
        return int(value) if len(value) <= 9 else 10**9


register_url_convertor("count", _Count())


# Routes that OpenPAI does not have: another method is 405 there. On OpenPAI's own it is 404, as in OpenPAI,
# and some of its clients test for that.
_NOT_OF_OPENPAI = {
    _JOB + "/follow",
    _JOB + "/log-search",
    _JOB + "/apps",
    _JOB + "/metrics",
    _JOB + "/usage",
    "/api/v2/usage",
    "/api/v2/usage/nodes/{node}",
    "/api/v2/usage/virtual-clusters/{vc}",
    "/api/v2/job-checks",
    "/api/v2/job-schemas/{version}",
    "/api/v2/settings",
    "/api/v2/audit",
    "/api/v2/sources/{sha256}",
    "/api/v2/authn/session",
    "/api/v2/authn/links",
    "/healthz",
    "/healthz/",
    "/metrics",
    "/openapi.json",
    *(path for path, _, _ in _UNDESCRIBED),
}


async def not_found(request: Request, error: Exception) -> Response:
    allowed = _allowed_methods(request)
    status = 405 if allowed else 404
    policies = context(request).policies
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
    """Methods of the routes of a path that OpenPAI does not have; empty for other paths."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in routes if route.path in _NOT_OF_OPENPAI for method in route.methods}


def _method(request: Request) -> str:
    return request.method if request.method in (*_ANY, "HEAD", "OPTIONS", "PATCH") else "OTHER"


class Gateway:
    """ASGI entry point: strips `/rest-server`, filters requests, notes the time of the last one.

    Routes without a path parameter are looked up here in a dict: submitting and listing, the most frequent
    requests, then cost a third less than through Starlette's router.
    """

    def __init__(
        self,
        app: Starlette,
        direct: dict[tuple[str, str], Handler],
        request_filter: RequestFilter,
        ctx: Context,
    ):
        self._app = app
        self._direct = direct
        self._request_filter = request_filter
        self._context = ctx
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
        scope[KEY] = self._context
        self.open_requests += 1
        try:
            handler = self._direct.get((scope.get("method", ""), path))
            if self._request_filter.applies_to(path):
                receive, send, dialect_handler = await self._request_filter.apply(scope, receive, send)
                handler = dialect_handler or handler
            if handler is None:
                await self._app(scope, receive, send)
            else:
                response = await handler(Request(scope, receive, send))
                await response(scope, receive, send)
        finally:
            self.open_requests -= 1
            self.last_request = time.monotonic()


def _by_dialect(openpai: Handler, paddle: Handler) -> Handler:
    """Route of a path on which the body decides the dialect.

    The caller is authenticated before any of the body is read, and only the beginning of it is looked at:
    otherwise requests of strangers could fill the memory.
    """

    async def route(request: Request) -> Response:
        await identify(request)
        head, receive = await peek_body(request, LOOKED_AT_BYTES)
        handler = paddle if dialect_of(request.scope, head) is Dialect.PADDLECLOUD else openpai
        return await handler(Request(request.scope, receive))

    return route


def build(ctx: Context) -> Gateway:
    policies = ctx.policies
    rates: dict[Handler, RateWindow | None] = {
        jobs.list_jobs: policies.rate_limits.lists,
        jobs.submit: policies.rate_limits.submissions,
    }
    rates |= {v1_jobs.list_jobs: policies.rate_limits.lists, v1_jobs.submit: policies.rate_limits.submissions}
    rates |= dict.fromkeys((paddle_jobs.list_jobs, paddle_jobs.list_pservers), policies.rate_limits.lists)
    rates |= dict.fromkeys(
        (paddle_jobs.submit, paddle_jobs.submit_v1, paddle_jobs.submit_v2), policies.rate_limits.submissions
    )

    v1_submit = _by_dialect(v1_jobs.submit, paddle_jobs.submit)
    report_handlers = {handler for _, _, handler in task_reports.ROUTES}

    def wrapped(
        path: str, methods: list[str], handler: Handler, dialect: Dialect = Dialect.OPENPAI
    ) -> Handler:
        route = (
            policies.login_throttle.wrap(handler) if handler in (login.login, login.log_token) else handler
        )
        if handler is v1_jobs.submit and path == SHARED_JOBS_PATH and dialect is Dialect.OPENPAI:
            route = v1_submit
        # Reports come from tasks, not from users: they are not recorded in the audit log.
        return wrap_route(
            route,
            path,
            methods,
            policies,
            rates.get(handler),
            authority=authority_of(handler),
            audited=handler not in report_handlers,
            changes=handler in (exec_route.exec_session, forward.forward),
        )

    rows = [(path, methods, wrapped(path, methods, handler)) for path, methods, handler in ALL_ROUTES]
    routes = [Route(path, handler, methods=methods) for path, methods, handler in rows]
    direct = {
        (method, path): handler for path, methods, handler in rows if "{" not in path for method in methods
    }
    app = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found})
    app.router.redirect_slashes = False
    paddle_handlers = {
        (method, path): wrapped(path, methods, handler, dialect=Dialect.PADDLECLOUD)
        for path, methods, handler in (*paddlecloud.ROUTES, *paddlecloud.SHARED)
        for method in methods
    }
    unknown = wrap_route(paddlecloud.not_found, "paddlecloud", [*_ANY, "PATCH", "OPTIONS"], policies)
    router = paddlecloud.PaddleCloudRouter(paddle_handlers, unknown)
    return Gateway(app, direct, RequestFilter(policies, router), ctx)
