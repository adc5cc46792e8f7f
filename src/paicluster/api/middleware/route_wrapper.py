"""Wrapper of every route: errors become responses; headers, audit log and metrics are applied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.authority import UNDECLARED, Authority
from paicluster.api.middleware.body_budget import RESERVED_KEY
from paicluster.api.middleware.policies import AUTHORITY_KEY, RATE_LIMIT_KEY, HttpPolicies
from paicluster.api.middleware.rate_limits import RateWindow
from paicluster.api.responses import exception_response

Handler = Callable[[Request], Awaitable[Response]]

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


def wrap_route(
    route: Handler,
    path: str,
    methods: Sequence[str],
    policies: HttpPolicies,
    rate: RateWindow | None = None,
    *,
    authority: Authority = UNDECLARED,
    audited: bool = True,
    changes: bool = False,
) -> Handler:
    """Wrap a route. ``rate`` counts a request for its user once `authenticate` knows the user, and
    ``authority`` says whether that user's token is accepted.

    ``audited``: requests that change something go into the audit log; with ``changes`` even a GET does.
    """
    series = {method: policies.metrics.series(method, path) for method in (*methods, "HEAD")}
    other = policies.metrics.series("OTHER", path)
    apply_headers = policies.headers.apply
    audit = policies.audit if audited else None

    async def wrapped(request: Request) -> Response:
        started = perf_counter()
        scope = request.scope
        method = scope["method"]
        scope[AUTHORITY_KEY] = authority
        if rate is not None:
            scope[RATE_LIMIT_KEY] = rate
        try:
            response = await route(request)
        except Exception as error:
            response = exception_response(request, error, path)
        finally:
            if RESERVED_KEY in scope:
                policies.body_budget.release(scope)
        apply_headers(response)
        if audit is not None and (changes or method not in _READS):
            audit.record(request, path, response.status_code)
        series.get(method, other).count(response.status_code, perf_counter() - started)
        return response

    return wrapped
