"""Routes that show administrators the cluster's settings and its audit log."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import ADMIN_READS
from paicluster.api.routing.route import Query, Routes
from paicluster.api.wire.clusters import AuditReport, SettingsReport
from paicluster.api.wire.jobs import Count
from paicluster.api.wire.query_parameters import int_param
from paicluster.config.settings_view import render_settings

route = Routes("cluster")

_DEFAULT_ENTRIES = 100
_MAX_ENTRIES = 1000


@route(
    "GET /api/v2/settings",
    authority=ADMIN_READS,
    summary="Settings of the server, for administrators",
    other_methods=405,
)
async def settings(request: Request) -> SettingsReport:
    """Settings as the server uses them: those of the file and of options, else the defaults."""
    await authenticate(request)
    return SettingsReport(render_settings(context(request).server.settings))


@route(
    "GET /api/v2/audit",
    authority=ADMIN_READS,
    summary="Last entries of the audit log, newest first, for administrators",
    query=(Query("limit", Count, description="At most 1000."), Query("keyword")),
    other_methods=405,
)
async def audit(request: Request) -> AuditReport:
    """Last entries of the audit log, newest first; ``keyword`` keeps those that contain it."""
    await authenticate(request)
    get = request.query_params.get
    limit = min(int_param(get("limit"), "limit", _DEFAULT_ENTRIES), _MAX_ENTRIES)
    log = context(request).server.policies.audit
    if log is None:  # the embedded cluster, which has one user
        return AuditReport([], is_kept=False)
    entries = await asyncio.to_thread(log.last_entries, limit, get("keyword", ""))
    return AuditReport(entries, is_kept=True)
