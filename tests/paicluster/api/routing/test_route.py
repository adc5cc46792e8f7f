"""Declarations of routes."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.middleware.route_wrapper import wrap_route
from paicluster.api.requests.endpoint import endpoint_of
from paicluster.api.routes import OPENPAI_ROUTES, PADDLECLOUD_ROUTES, ROUTES
from paicluster.api.routing.authority import JOBS, PUBLIC
from paicluster.api.routing.route import MAX_FIELDS_BYTES, Audit, Body, Bound, Route, Routes
from paicluster.api.wire.request_body import read_body


async def handler(request: Request) -> Response:
    return Response(await read_body(request))


def declared(routes: Routes) -> list[tuple[tuple[str, ...], str]]:
    return [(route.methods, route.path) for route in routes]


def test_one_declaration_has_alternative_methods_and_paths() -> None:
    route = Routes()
    route("GET|PUT /api/(v2|v1)/(users|user)/{user}", "DELETE /me", authority=JOBS)(handler)
    both = ("GET", "PUT")
    assert declared(route) == [
        (both, "/api/v2/users/{user}"),
        (both, "/api/v2/user/{user}"),
        (both, "/api/v1/users/{user}"),
        (both, "/api/v1/user/{user}"),
        (("DELETE",), "/me"),
    ]


def test_routes_of_a_module_share_its_defaults() -> None:
    route = Routes("job", returns={401: str}, audit=Audit.NEVER, other_methods=405)
    route("GET /a", authority=JOBS, returns={200: int})(handler)
    route("GET /b", authority=PUBLIC, tag="log", audit=Audit.ALWAYS, other_methods=404)(handler)
    first, second = route
    assert (first.tag, first.returns, first.audit, first.other_methods) == (
        "job",
        {401: str, 200: int},
        Audit.NEVER,
        405,
    )
    # A route that needs no token never responds with 401.
    assert (second.tag, second.returns, second.audit, second.other_methods) == ("log", {}, Audit.ALWAYS, 404)


@pytest.mark.parametrize(
    ("body", "method", "bound"),
    [
        (None, "PUT", None),
        (Body(), "PUT", MAX_FIELDS_BYTES),
        (Body(), "GET", None),
        (Body(limit=Bound.STREAMED), "PUT", Bound.STREAMED),
    ],
)
def test_bound_of_a_body(body: Body | None, method: str, bound: int | Bound | None) -> None:
    route = Route(handler=handler, methods=("GET", "PUT"), path="/", authority=PUBLIC, body=body)
    assert route.bound(method) == bound


def status_of(body: Body | None, sent: bytes) -> int:
    """Status of a request to a route that reads its body."""
    route = Route(handler=handler, methods=("PUT",), path="/x", authority=PUBLIC, body=body)
    wrapped = wrap_route(route, endpoint_of(route), HttpPolicies())

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": sent, "more_body": False}

    scope = {"type": "http", "method": "PUT", "path": "/x", "headers": [], "query_string": b""}

    async def run() -> int:
        return (await wrapped(Request(scope, receive))).status_code

    return asyncio.run(run())


def test_handler_reads_no_more_than_its_route_declares() -> None:
    assert status_of(Body(limit=3), b"abc") == 200
    assert status_of(Body(limit=3), b"abcd") == 413


def test_handler_cannot_read_a_body_that_its_route_does_not_declare() -> None:
    assert status_of(None, b"") == 500


def test_no_method_of_a_path_is_declared_twice_in_a_dialect() -> None:
    for routes in (OPENPAI_ROUTES, PADDLECLOUD_ROUTES, ROUTES):
        rows = [(method, route.path) for route in routes for method in route.methods]
        assert len(rows) == len(set(rows))
