"""Route wrapper: every outcome of a route becomes a response with headers and is counted."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.middleware.route_wrapper import wrap_route
from paicluster.api.requests.endpoint import endpoint_of
from paicluster.api.routing.authority import PUBLIC
from paicluster.api.routing.route import Route
from paiprotocol.errors import NotFound, TooManyRequests


def call(policies: HttpPolicies, outcome: Any, method: str = "GET") -> Response:
    async def route(request: Request) -> Response:
        if isinstance(outcome, BaseException):
            raise outcome
        response: Response = outcome
        return response

    scope = {"type": "http", "method": method, "path": "/x/very-secret", "headers": [], "query_string": b""}
    declared = Route(handler=route, methods=("GET",), path="/x/{token}", authority=PUBLIC)
    wrapped = wrap_route(declared, endpoint_of(declared), policies)

    async def run() -> Response:
        return await wrapped(Request(scope))

    return asyncio.run(run())


def test_unexpected_error_is_logged_and_hidden_from_the_client(caplog: pytest.LogCaptureFixture) -> None:
    policies = HttpPolicies()
    with caplog.at_level(logging.ERROR, "paicluster.api"):
        reply = call(policies, RuntimeError("an internal detail"))
    assert reply.status_code == 500
    body = bytes(reply.body)
    assert b"Internal error of the cluster" in body
    assert b"internal detail" not in body
    assert b"Traceback" not in body
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].getMessage() == "GET /x/{token} failed"
    assert policies.metrics.series("GET", "/x/{token}").statuses == {500: 1}


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (PlainTextResponse("well"), 200),
        (NotFound("It is not there."), 404),
        (TooManyRequests("Too often.", retry_after_s=2.2, limit=5), 429),
        (ClientDisconnect(), 499),
    ],
)
def test_every_response_is_counted_and_has_security_headers(outcome: Any, status: int) -> None:
    policies = HttpPolicies()
    reply = call(policies, outcome, "PROPFIND")
    assert reply.status_code == status
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert policies.metrics.series("OTHER", "/x/{token}").statuses == {status: 1}
    if status == 429:
        assert reply.headers["retry-after"] == "3"


def test_headers_set_by_a_route_are_kept() -> None:
    own = {"Content-Security-Policy": "sandbox", "Cache-Control": "max-age=9"}
    reply = call(HttpPolicies(), PlainTextResponse("page", headers=own))
    assert reply.headers.getlist("content-security-policy") == ["sandbox"]
    assert reply.headers.getlist("cache-control") == ["max-age=9"]
    assert reply.headers["referrer-policy"] == "no-referrer"
