"""Report API of tasks on nodes without the cluster's file system: launch bundle, claim, logs, usage, end.

Tasks authenticate with the ticket of their attempt, which is good for nothing else. Every call is idempotent:
a task that got no response repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paicluster.api.context import context
from paicluster.api.requests.authentication import token_of
from paicluster.api.routing.authority import TICKET
from paicluster.api.routing.route import Audit, Body, Routes
from paicluster.api.wire.base import WireModel
from paicluster.api.wire.query_parameters import int_param
from paicluster.api.wire.request_body import read_body
from paicluster.engines.interface import MAX_USAGE_REPORT_BYTES, ReportSink
from paicluster.logs.reader import STREAMS
from paiprotocol.errors import InvalidParameters, Unauthorized

_METRICS_STREAM = "metrics"
_TIMES_STREAM = "times"
_MAX_CHUNK_BYTES = 1 << 20
_MAX_DIAGNOSTICS_BYTES = 1 << 12
_MAX_OFFSET = 1 << 52

_RECORD = Body(limit=1 << 16)

# Not in the audit log: reports come from tasks, not from users.
route = Routes(other_methods=405, audit=Audit.NEVER)


class Accepted(WireModel):
    """Response without content."""


class Placed(WireModel):
    # Of all tasks of the gang, in its order; None: some are not known yet, and the task asks again.
    placements: Sequence[Mapping[str, Any]] | None


class Appended(WireModel):
    # Bytes of the stream that the server has.
    end: int
    # None, or how the task ends.
    stop: Mapping[str, Any] | None


class Ended(WireModel):
    """``ends`` are the bytes of each stream; unless ``taken``, what the server has of them."""

    taken: bool
    ends: Mapping[str, int]


def _authorize(request: Request) -> tuple[ReportSink, str]:
    """Report sink and uid of the attempt in the path; raises Unauthorized without its ticket."""
    uid = str(request.path_params["uid"])
    ticket, _ = token_of(request)
    sink = context(request).engines.report_sink(uid)
    if sink is None or not sink.allows(uid, ticket):
        raise Unauthorized("The ticket is not valid for this attempt.")
    return sink, uid


def _number(request: Request, name: str, default: int | None = None) -> int:
    return int_param(request.query_params.get(name), name, default, maximum=_MAX_OFFSET)


async def _mapping(request: Request) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await read_body(request), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidParameters("The body must be a JSON object.") from None


@route("GET /api/v2/attempts/{uid:uuid}/bundle", authority=TICKET)
async def bundle(request: Request) -> Response:
    """Launch bundle of the batch script, or with ``component`` and ``rank`` that of one task of the gang."""
    sink, uid = _authorize(request)
    component = _number(request, "component") if "component" in request.query_params else None
    job = str(_number(request, "job", 0))
    launch_bundle = await sink.launch_bundle(uid, job, component, _number(request, "rank", 0))
    return StreamingResponse(launch_bundle.chunks(), media_type="application/x-tar")


@route("PUT /api/v2/attempts/{uid:uuid}/claim", authority=TICKET, body=_RECORD)
async def claim(request: Request) -> Accepted:
    sink, uid = _authorize(request)
    await sink.claim(uid, await _mapping(request))
    return Accepted()


@route("PUT /api/v2/attempts/{uid:uuid}/placement", authority=TICKET, body=_RECORD)
async def placement(request: Request) -> Placed:
    """Report where a task of a gang runs. Answered when all tasks have reported, or after some seconds."""
    sink, uid = _authorize(request)
    return Placed(await sink.place(uid, await _mapping(request)))


@route(
    "PUT /api/v2/attempts/{uid:uuid}/logs/{stream}",
    authority=TICKET,
    body=Body(limit=_MAX_CHUNK_BYTES),
)
async def append(request: Request) -> Appended:
    sink, uid = _authorize(request)
    stream = request.path_params["stream"]
    if stream not in (*STREAMS, _METRICS_STREAM, _TIMES_STREAM):
        names = ", ".join((*STREAMS, _METRICS_STREAM))
        raise InvalidParameters(f"The streams are {names} and {_TIMES_STREAM}.")
    at, after = _number(request, "at"), _number(request, "after")
    appended = await sink.append(uid, stream, at, after, await read_body(request))
    return Appended(appended.end, appended.stop)


@route("PUT /api/v2/attempts/{uid:uuid}/end", authority=TICKET, body=_RECORD)
async def end(request: Request) -> Ended:
    sink, uid = _authorize(request)
    sizes: dict[str, int] = {stream: _number(request, stream) for stream in STREAMS}
    missing = await sink.end(uid, await _mapping(request), sizes)
    return Ended(missing is None, sizes if missing is None else missing)


@route(
    "PUT /api/v2/attempts/{uid:uuid}/usage",
    authority=TICKET,
    body=Body(limit=MAX_USAGE_REPORT_BYTES),
)
async def usage(request: Request) -> Accepted:
    sink, uid = _authorize(request)
    await sink.record_usage(uid, await read_body(request))
    return Accepted()


@route(
    "PUT /api/v2/attempts/{uid:uuid}/diagnostics",
    authority=TICKET,
    body=Body(limit=_MAX_DIAGNOSTICS_BYTES),
)
async def diagnostics(request: Request) -> Accepted:
    sink, uid = _authorize(request)
    await sink.record_diagnostics(uid, await read_body(request))
    return Accepted()
