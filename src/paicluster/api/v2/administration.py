"""Routes that show administrators the cluster's settings and its audit log."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import authenticate, context
from paicluster.api.responses import int_param, json_response

_DEFAULT_ENTRIES = 100
_MAX_ENTRIES = 1000


async def settings(request: Request) -> Response:
    """Settings as the server uses them: those of the file and of options, else the defaults."""
    await authenticate(request)
    return json_response({"settings": context(request).settings()})


async def audit(request: Request) -> Response:
    """Last entries of the audit log, newest first; ``keyword`` keeps those that contain it."""
    await authenticate(request)
    get = request.query_params.get
    limit = min(int_param(get("limit"), "limit", _DEFAULT_ENTRIES), _MAX_ENTRIES)
    log = context(request).policies.audit
    if log is None:  # the embedded cluster, which has one user
        return json_response({"entries": [], "isKept": False})
    entries = await asyncio.to_thread(log.last_entries, limit, get("keyword", ""))
    return json_response({"entries": entries, "isKept": True})
