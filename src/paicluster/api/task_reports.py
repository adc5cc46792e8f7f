"""Report API of tasks on nodes without the cluster's file system: launch bundle, claim, logs, usage, end.

Tasks authenticate with the ticket of their attempt, which is good for nothing else. Every call is idempotent:
a task that got no response repeats it.
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

_METRICS_STREAM = "metrics"
_MAX_CHUNK_BYTES = 1 << 20
_MAX_RECORD_BYTES = 1 << 16
_MAX_DIAGNOSTICS_BYTES = 1 << 12
_MAX_OFFSET = 1 << 52


def _authorize(request: Request) -> tuple[ReportSink, str]:
    """Report sink and uid of the attempt in the path; raises Unauthorized without its ticket."""
    uid = str(request.path_params["uid"])
    ticket, _ = token_of(request)
    sink = context(request).reports_of(uid)
    if sink is None or not sink.allows(uid, ticket):
        raise Unauthorized("The ticket is not valid for this attempt.")
    return sink, uid


def _number(request: Request, name: str, default: int | None = None) -> int:
    return int_param(request.query_params.get(name), name, default, maximum=_MAX_OFFSET)


async def _mapping(request: Request) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await read_body(request, _MAX_RECORD_BYTES), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidParameters("The body must be a JSON object.") from None


async def bundle(request: Request) -> Response:
    """Launch bundle of the batch script, or with ``component`` and ``rank`` that of one task of the gang."""
    sink, uid = _authorize(request)
    component = _number(request, "component") if "component" in request.query_params else None
    job = str(_number(request, "job", 0))
    launch_bundle = await sink.launch_bundle(uid, job, component, _number(request, "rank", 0))
    return StreamingResponse(launch_bundle.chunks(), media_type="application/x-tar")


async def claim(request: Request) -> Response:
    sink, uid = _authorize(request)
    await sink.claim(uid, await _mapping(request))
    return json_response({})


async def append(request: Request) -> Response:
    sink, uid = _authorize(request)
    stream = request.path_params["stream"]
    if stream not in (*STREAMS, _METRICS_STREAM):
        raise InvalidParameters(f"The streams are {', '.join(STREAMS)} and {_METRICS_STREAM}.")
    at, after = _number(request, "at"), _number(request, "after")
    appended = await sink.append(uid, stream, at, after, await read_body(request, _MAX_CHUNK_BYTES))
    return json_response({"end": appended.end, "stop": appended.stop})


async def end(request: Request) -> Response:
    sink, uid = _authorize(request)
    sizes = {stream: _number(request, stream) for stream in STREAMS}
    missing = await sink.end(uid, await _mapping(request), sizes)
    return json_response({"taken": missing is None, "ends": sizes if missing is None else missing})


async def usage(request: Request) -> Response:
    sink, uid = _authorize(request)
    await sink.record_usage(uid, await read_body(request, sink.max_usage_bytes))
    return json_response({})


async def diagnostics(request: Request) -> Response:
    sink, uid = _authorize(request)
    await sink.record_diagnostics(uid, await read_body(request, _MAX_DIAGNOSTICS_BYTES))
    return json_response({})


_ATTEMPT = "/api/v2/attempts/{uid:uuid}"

ROUTES: list[tuple[str, list[str], Callable[[Request], Awaitable[Response]]]] = [
    (_ATTEMPT + "/bundle", ["GET"], bundle),
    (_ATTEMPT + "/claim", ["PUT"], claim),
    (_ATTEMPT + "/logs/{stream}", ["PUT"], append),
    (_ATTEMPT + "/end", ["PUT"], end),
    (_ATTEMPT + "/usage", ["PUT"], usage),
    (_ATTEMPT + "/diagnostics", ["PUT"], diagnostics),
]
