"""Replies of PaddleCloud's dialect: what a handler returns is what the document describes."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse

from paicluster.api.paddlecloud import files, jobs, replies
from paicluster.api.requests.endpoint import endpoint_of
from paicluster.api.routing.route import Either, Route
from paicluster.api.wire.handler_types import response_types
from paicluster.api.wire.paddlecloud import PaddleJobs, PaddleReply, PaddleUnauthorized, PaddleUrl
from paiprotocol.errors import InvalidParameters, TooManyRequests


def route_of(declared: object, handler: str) -> Route:
    return next(one for one in declared.route if one.handler.__name__ == handler)  # type: ignore[attr-defined]


def test_described_type_is_what_the_handler_returns() -> None:
    assert response_types(route_of(jobs, "list_jobs")) == {200: PaddleJobs, 401: PaddleUnauthorized}
    assert response_types(route_of(files, "publish"))[200] == Either(PaddleUrl, PaddleReply)


def test_download_is_a_response_and_its_error_a_reply() -> None:
    render = endpoint_of(route_of(files, "get_file")).render
    assert render is not None
    download = PlainTextResponse("content")
    assert render(download) is download
    assert render(PaddleReply(400, "no")).body == b'{"code":400,"msg":"no"}'


def test_error_is_a_reply_with_its_status_in_the_code() -> None:
    error = InvalidParameters("no topology", hint="Name one.")
    assert replies.error_reply(error) == PaddleReply(400, "no topology. Name one.")


@pytest.mark.parametrize("error", [TooManyRequests("Slow down."), InvalidParameters("Large.", status=413)])
def test_error_with_a_status_of_its_own_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        replies.error_reply(error)  # type: ignore[arg-type]
