"""Whatever a route does, what leaves is an answer for people, with its headers, and counted."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from openpaisdk.errors import NotFound, TooManyRequests
from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.middleware.route_wrapper import wrap_route


def ask(edge: HttpPolicies, outcome: Any, method: str = "GET") -> Response:
    async def route(request: Request) -> Response:
        if isinstance(outcome, BaseException):
            raise outcome
        answer: Response = outcome
        return answer

    scope = {"type": "http", "method": method, "path": "/x/very-secret", "headers": [], "query_string": b""}
    guarded = wrap_route(route, "/x/{token}", ["GET"], edge)

    async def run() -> Response:
        return await guarded(Request(scope))

    return asyncio.run(run())


def test_an_error_of_ours_has_no_stack_and_its_place_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    edge = HttpPolicies()
    with caplog.at_level(logging.ERROR, "paicluster.api"):
        reply = ask(edge, RuntimeError("what nobody should read"))
    assert reply.status_code == 500
    said = bytes(reply.body)
    assert b"Internal error of the cluster" in said
    assert b"nobody should read" not in said
    assert b"Traceback" not in said
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].getMessage() == "GET /x/{token} failed"
    assert edge.metrics.series("GET", "/x/{token}").statuses == {500: 1}


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (PlainTextResponse("well"), 200),
        (NotFound("It is not there."), 404),
        (TooManyRequests("Too often.", retry_after_s=2.2, limit=5), 429),
        (ClientDisconnect(), 499),
    ],
)
def test_every_answer_is_counted_and_has_its_headers(outcome: Any, status: int) -> None:
    edge = HttpPolicies()
    reply = ask(edge, outcome, "PROPFIND")
    assert reply.status_code == status
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert edge.metrics.series("OTHER", "/x/{token}").statuses == {status: 1}
    if status == 429:
        assert reply.headers["retry-after"] == "3"


def test_headers_a_route_set_itself_stay() -> None:
    own = {"Content-Security-Policy": "sandbox", "Cache-Control": "max-age=9"}
    reply = ask(HttpPolicies(), PlainTextResponse("page", headers=own))
    assert reply.headers.getlist("content-security-policy") == ["sandbox"]
    assert reply.headers.getlist("cache-control") == ["max-age=9"]
    assert reply.headers["referrer-policy"] == "no-referrer"
