"""Alerts in Alertmanager's format: jobs pending for long, and a server that lags."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import Context, authenticate, context
from paicluster.api.responses import json_response
from paicluster.api.v2.serializers import iso
from paicluster.auth.tokens import Identity
from paicluster.store import admin_queries
from paicluster.store.admin_queries import LongPendingJob

# As in OpenPAI's alert rule.
PENDING_THRESHOLD_S = 30 * 60
_LAG_THRESHOLD_S = 10.0
_MAX_ALERTS = 1000


async def alerts(request: Request) -> Response:
    """All alerts for administrators; for other users those about their own jobs."""
    identity = await authenticate(request)
    return json_response(await _alerts(context(request), identity))


async def as_alertmanager(request: Request) -> Response:
    """The same alerts at the path of Alertmanager's API."""
    identity = await authenticate(request)
    return json_response({"status": "success", "data": await _alerts(context(request), identity)})


async def _alerts(ctx: Context, identity: Identity) -> list[dict[str, Any]]:
    now_ms = int(time.time() * 1000)
    username = None if identity.admin else identity.username
    pending_jobs = await ctx.store.read(
        lambda conn: admin_queries.long_pending_jobs(
            conn, now_ms - PENDING_THRESHOLD_S * 1000, username, _MAX_ALERTS
        )
    )
    active = [_pending_alert(job) for job in pending_jobs]
    if identity.admin:
        for name, lag_s in (("writer", ctx.store.queue_age()), ("controller", ctx.controller_age())):
            if lag_s > _LAG_THRESHOLD_S:
                active.append(
                    _alert(
                        {"alertname": "PaiServicesNotReady", "service_name": name, "severity": "fatal"},
                        f"The {name} has been busy with one operation for {lag_s:.0f} s.",
                        now_ms - int(lag_s * 1000),
                    )
                )
    return active


def _pending_alert(job: LongPendingJob) -> dict[str, Any]:
    labels = {
        "alertname": "PaiJobPending",
        "job_name": job.framework,
        "username": job.username,
        "virtual_cluster": job.vc,
        "severity": "warn",
    }
    since_ms = job.submission_ms + PENDING_THRESHOLD_S * 1000
    return _alert(labels, f"Job {job.framework} has been waiting for more than 30 minutes.", since_ms)


def _alert(labels: dict[str, str], summary: str, since_ms: int) -> dict[str, Any]:
    name = "|".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return {
        "labels": labels,
        "annotations": {"summary": summary},
        "startsAt": iso(since_ms),
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "status": {"state": "active", "silencedBy": [], "inhibitedBy": []},
        "receivers": ["pai-email-admin"],
        "fingerprint": hashlib.sha256(name.encode()).hexdigest()[:16],
    }
