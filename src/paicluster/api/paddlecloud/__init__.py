"""PaddleCloud's dialect. Not implemented yet: every request is answered with 501."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.responses import json_response


async def not_implemented(request: Request) -> Response:
    """Error in PaddleCloud's format: the status code again, and a message."""
    return json_response({"code": 501, "msg": "This cluster does not speak PaddleCloud's dialect yet."}, 501)
