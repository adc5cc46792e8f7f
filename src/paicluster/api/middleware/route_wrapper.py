"""Around every route: failures become answers, answers get their headers, and all of it is counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.middleware.policies import RATE, HttpPolicies
from paicluster.api.middleware.rate_limits import RateWindow
from paicluster.api.responses import exception_response

Handler = Callable[[Request], Awaitable[Response]]

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


def wrap_route(
    route: Handler,
    path: str,
    methods: Sequence[str],
    edge: HttpPolicies,
    rate: RateWindow | None = None,
    *,
    recorded: bool = True,
) -> Handler:
    """A route as the network meets it. ``rate`` counts it for its user, once `identify` knows who that is.

    ``recorded``: what it changes is somebody's doing, and goes into the audit log.
    """
    series = {method: edge.meters.series(method, path) for method in (*methods, "HEAD")}
    other = edge.meters.series("OTHER", path)
    put_on = edge.headers.apply
    audit = edge.audit if recorded else None

    async def guarded(request: Request) -> Response:
        began = perf_counter()
        scope = request.scope
        method = scope["method"]
        if rate is not None:
            scope[RATE] = rate
        try:
            response = await route(request)
        except Exception as error:
            response = exception_response(request, error, path)
        put_on(response)
        if audit is not None and method not in _READS:
            audit.record(request, path, response.status_code)
        series.get(method, other).count(response.status_code, perf_counter() - began)
        return response

    return guarded
