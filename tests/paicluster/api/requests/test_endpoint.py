"""Endpoints: the annotations of a handler declare its body and its response."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NoReturn

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.middleware.route_wrapper import wrap_route
from paicluster.api.requests.endpoint import endpoint_of
from paicluster.api.routes import OPENPAI_ROUTES, PADDLECLOUD_ROUTES
from paicluster.api.routing.authority import JOBS, PUBLIC
from paicluster.api.routing.route import FORM, JSON, Body, Either, Handler, Routes, takes_body
from paicluster.api.wire import handler_types
from paicluster.api.wire.base import Message, WireModel
from paicluster.api.wire.responses import Encoded, Reply, encoded
from paiprotocol.errors import Forbidden, InvalidParameters


class Tag(WireModel):
    value: str


async def send(handler: Handler, sent: bytes = b"", method: str = "PUT", **declared: Any) -> Response:
    routes = Routes()
    routes("GET|PUT /x", **{"authority": PUBLIC, **declared})(handler)
    (route,) = routes

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": sent, "more_body": False}

    scope = {"type": "http", "method": method, "path": "/x", "headers": [], "query_string": b""}
    response: Response = await wrap_route(route, endpoint_of(route), HttpPolicies())(Request(scope, receive))
    return response


def reply_of(handler: Handler, sent: bytes = b"", **declared: Any) -> tuple[int, Any]:
    response = asyncio.run(send(handler, sent, **declared))
    return response.status_code, json.loads(bytes(response.body))


async def tagged(request: Request, tag: Tag) -> Message:
    return Message(tag.value)


async def plain(request: Request) -> Response:
    return PlainTextResponse("1")


async def in_a_thread(request: Request) -> Encoded[list[Message]]:
    return await asyncio.to_thread(encoded, [Message("a")])


async def with_headers(request: Request) -> Reply[Message]:
    return Reply(Message("a"), 202, {"X-Warning": "w"})


async def encoded_with_headers(request: Request) -> Reply[Encoded[list[Message]]]:
    return Reply(encoded([Message("a")]), headers={"X-Warning": "w"})


async def one_of_two(request: Request) -> dict[str, Message] | dict[str, Tag]:
    return {"a": Tag("b")}


def test_value_of_a_handler_is_the_response() -> None:
    assert reply_of(tagged, b'{"value": "a"}', status=201) == (201, {"message": "a"})
    assert reply_of(plain) == (200, 1)
    assert reply_of(in_a_thread) == (200, [{"message": "a"}])
    assert reply_of(one_of_two) == (200, {"a": {"value": "b"}})


def test_reply_has_its_own_status_and_headers() -> None:
    for handler, status in ((with_headers, 202), (encoded_with_headers, 200)):
        response = asyncio.run(send(handler))
        assert (response.status_code, response.headers["x-warning"]) == (status, "w")
        assert response.media_type == JSON


def test_body_is_decoded_before_the_handler_is_called() -> None:
    assert reply_of(tagged, b"") == (
        400,
        {"code": "InvalidParametersError", "message": '"value" is required'},
    )
    assert reply_of(tagged, b"", body=Body(may_be_empty=False))[1]["message"].endswith("not valid JSON.")
    assert reply_of(tagged, b'{"value": "abc"}', body=Body(limit=4))[0] == 413
    # GET has none.
    assert reply_of(tagged, b'{"value": "abc"}', method="GET")[0] == 400


def test_guard_comes_before_the_body() -> None:
    async def refuse(request: Request) -> None:
        raise Forbidden("You may not.")

    assert reply_of(tagged, b"{", guard=refuse)[0] == 403
    # Without a token, no body is read.
    assert reply_of(tagged, b"{", authority=JOBS)[0] == 401


def test_errors_of_body_and_handler_are_replies_of_a_dialect() -> None:
    async def around(handle: Handler, request: Request) -> Any:
        try:
            return await handle(request)
        except InvalidParameters as error:
            return Reply({"msg": error.message}, 202)

    # Of a route that needs a token, `around` authenticates the caller.
    declared = {"authority": JOBS, "around": around, "status": 201}
    assert reply_of(tagged, b'{"value": "a"}', **declared) == (201, {"message": "a"})
    assert reply_of(tagged, b"", **declared) == (202, {"msg": '"value" is required'})
    assert reply_of(plain, **declared) == (200, 1)
    assert reply_of(with_headers, **declared) == (202, {"message": "a"})


def test_shared_around_is_for_routes_that_need_a_token() -> None:
    async def around(handle: Handler, request: Request) -> Any: ...

    routes = Routes(around=around)
    routes("GET /a", authority=JOBS)(plain)
    routes("GET /b", authority=PUBLIC)(plain)
    assert [route.around for route in routes] == [around, None]


def test_types_of_a_handler() -> None:
    routes = Routes()
    routes("PUT /a", authority=PUBLIC, status=201)(tagged)
    routes("PUT /b", authority=PUBLIC, body=Body(media=(JSON,)), returns={409: Tag})(tagged)
    routes("PUT /c", authority=PUBLIC)(encoded_with_headers)
    routes("PUT /d", authority=PUBLIC, returns={200: str})(plain)
    routes("PUT /e", authority=PUBLIC)(one_of_two)
    first, second, third, fourth, fifth = routes
    assert handler_types.body_types(first) == {JSON: Tag, FORM: Tag}
    assert handler_types.body_types(second) == {JSON: Tag}
    assert handler_types.response_types(first) == {201: Message}
    assert handler_types.response_types(second) == {409: Tag, 200: Message}
    assert handler_types.response_types(third) == {200: list[Message]}
    assert handler_types.response_types(fourth) == {200: str}
    assert handler_types.response_types(fifth) == {200: Either(dict[str, Message], dict[str, Tag])}


@pytest.mark.parametrize("routes", [OPENPAI_ROUTES, PADDLECLOUD_ROUTES], ids=["openpai", "paddlecloud"])
def test_annotations_of_all_handlers_are_what_their_text_says(routes: Any) -> None:
    for route in routes:
        handler = route.handler
        kind = handler_types.returned_type(handler)
        is_response = kind is NoReturn or (isinstance(kind, type) and issubclass(kind, Response))
        assert handler_types.returns_response(handler) == is_response, handler
        if takes_body(handler):
            assert issubclass(handler_types.body_type(handler), msgspec.Struct)
