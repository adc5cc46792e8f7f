"""Wrapper of every route: errors become responses; headers, audit log and metrics are applied."""

from __future__ import annotations

from time import perf_counter

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.middleware.body_budget import RESERVED_KEY
from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.middleware.response_budget import PIECE_BYTES, sent_in_pieces
from paicluster.api.routing.route import Audit, Endpoint, Rate, Responder, Route
from paicluster.api.routing.scope import IDENTITY_KEY, ROUTE_KEY
from paicluster.api.wire.responses import exception_response

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


def wrap_route(route: Route, endpoint: Endpoint, policies: HttpPolicies) -> Responder:
    path = route.path
    bound = policies.bind(route)
    handle, render = endpoint
    if route.rate is Rate.LOGINS:
        handle = policies.login_throttle.wrap(handle)
    series = {method: policies.metrics.series(method, path) for method in (*route.methods, "HEAD")}
    other = policies.metrics.series("OTHER", path)
    apply_headers = policies.headers.apply
    audit = None if route.audit is Audit.NEVER else policies.audit
    audits_reads = route.audit is Audit.ALWAYS

    async def wrapped(request: Request) -> Response:
        started = perf_counter()
        scope = request.scope
        method = scope["method"]
        scope[ROUTE_KEY] = bound
        try:
            value = await handle(request)
            response: Response = value if render is None else render(value)
            body = getattr(response, "body", b"")
            if len(body) > PIECE_BYTES:
                identity = scope.get(IDENTITY_KEY)
                owner = identity.username if identity is not None else ""
                policies.response_budget.hold(scope, owner, body)
                response = sent_in_pieces(response)
        except Exception as error:
            response = exception_response(request, error, path)
        finally:
            if RESERVED_KEY in scope:
                policies.body_budget.release(scope)
        apply_headers(response)
        if audit is not None and (audits_reads or method not in _READS):
            audit.record(request, path, response.status_code)
        series.get(method, other).count(response.status_code, perf_counter() - started)
        return response

    return wrapped
