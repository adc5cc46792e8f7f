"""PaddleCloud's dialect: its addresses, its words, its shapes. Not spoken yet: every request is told so."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.responses import json_response


async def not_yet(request: Request) -> Response:
    """In the shape PaddleCloud's clients read: the code again, and a sentence."""
    return json_response({"code": 501, "msg": "This cluster does not speak PaddleCloud's dialect yet."}, 501)
