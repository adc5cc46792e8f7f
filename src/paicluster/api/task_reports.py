"""What tasks fetch and report that run where nothing of the cluster's files is seen.

They show the ticket of their attempt instead of anybody's token, and can do nothing else with it. Everything
may be sent again: whoever got no answer does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from openpaisdk.errors import InvalidParameters, Unauthorized
from paicluster.api.context import context, token_of
from paicluster.api.responses import int_param, json_response, read_body
from paicluster.engines.interface import ReportSink
from paicluster.logs.reader import STREAMS

_FIGURES = "metrics"
_LARGEST_PIECE = 1 << 20
_LARGEST_RECORD = 1 << 16
_LARGEST_WORDS = 1 << 12
_LARGEST_OFFSET = 1 << 52


def _asked(request: Request) -> tuple[ReportSink, str]:
    """Where the attempt of this address reports to, for whoever has its ticket."""
    uid = str(request.path_params["uid"])
    ticket, _ = token_of(request)
    reports = context(request).reports_of(uid)
    if reports is None or not reports.allows(uid, ticket):
        raise Unauthorized("The ticket is not good for this attempt.")
    return reports, uid


def _number(request: Request, name: str, default: int | None = None) -> int:
    return int_param(request.query_params.get(name), name, default, largest=_LARGEST_OFFSET)


async def _mapping(request: Request) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await read_body(request, _LARGEST_RECORD), type=dict[str, Any])
    except msgspec.DecodeError:
        raise InvalidParameters("The body must be a JSON object.") from None


async def bundle(request: Request) -> Response:
    """What the batch script needs, or with ``component`` and ``rank`` one task of several."""
    reports, uid = _asked(request)
    component = _number(request, "component") if "component" in request.query_params else None
    job = str(_number(request, "job", 0))
    found = await reports.parcel(uid, job, component, _number(request, "rank", 0))
    return StreamingResponse(found.chunks(), media_type="application/x-tar")


async def claim(request: Request) -> Response:
    reports, uid = _asked(request)
    await reports.claim(uid, await _mapping(request))
    return json_response({})


async def append(request: Request) -> Response:
    reports, uid = _asked(request)
    stream = request.path_params["stream"]
    if stream not in (*STREAMS, _FIGURES):
        raise InvalidParameters(f"The streams are {', '.join(STREAMS)} and {_FIGURES}.")
    at, after = _number(request, "at"), _number(request, "after")
    taken = await reports.append(uid, stream, at, after, await read_body(request, _LARGEST_PIECE))
    return json_response({"end": taken.end, "stop": taken.stop})


async def end(request: Request) -> Response:
    reports, uid = _asked(request)
    sizes = {stream: _number(request, stream) for stream in STREAMS}
    missing = await reports.end(uid, await _mapping(request), sizes)
    return json_response({"taken": missing is None, "ends": sizes if missing is None else missing})


async def diagnostics(request: Request) -> Response:
    reports, uid = _asked(request)
    await reports.words(uid, await read_body(request, _LARGEST_WORDS))
    return json_response({})


_ATTEMPT = "/api/v2/attempts/{uid:uuid}"

ROUTES: list[tuple[str, list[str], Callable[[Request], Awaitable[Response]]]] = [
    (_ATTEMPT + "/parcel", ["GET"], bundle),
    (_ATTEMPT + "/claim", ["PUT"], claim),
    (_ATTEMPT + "/logs/{stream}", ["PUT"], append),
    (_ATTEMPT + "/end", ["PUT"], end),
    (_ATTEMPT + "/words", ["PUT"], diagnostics),
]
