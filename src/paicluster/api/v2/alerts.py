"""Alerts in Alertmanager's format: jobs pending for long, and a server that lags."""

from __future__ import annotations

import hashlib
import time

from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import CLUSTER
from paicluster.api.routing.route import Routes
from paicluster.api.v2.serializers import iso
from paicluster.api.wire.clusters import Alert, AlertList, AlertStatus
from paicluster.auth.tokens import Identity
from paicluster.store import admin_queries
from paicluster.store.admin_queries import LongPendingJob

route = Routes("alert")

# As in OpenPAI's alert rule.
PENDING_THRESHOLD_S = 30 * 60
_LAG_THRESHOLD_S = 10.0
_MAX_ALERTS = 1000


@route(
    "GET /api/v2/alerts",
    authority=CLUSTER,
    summary="List alerts",
)
async def alerts(request: Request) -> list[Alert]:
    """All alerts for administrators; for other users those about their own jobs."""
    identity = await authenticate(request)
    return await _alerts(context(request), identity)


@route(
    "GET /alert-manager/api/v1/alerts",
    authority=CLUSTER,
    summary="List alerts, in Alertmanager's format",
)
async def as_alertmanager(request: Request) -> AlertList:
    """The same alerts at the path of Alertmanager's API."""
    identity = await authenticate(request)
    return AlertList("success", await _alerts(context(request), identity))


async def _alerts(ctx: Context, identity: Identity) -> list[Alert]:
    now_ms = int(time.time() * 1000)
    username = None if identity.admin else identity.username
    pending_jobs = await ctx.store.read(
        lambda conn: admin_queries.long_pending_jobs(
            conn, now_ms - PENDING_THRESHOLD_S * 1000, username, _MAX_ALERTS
        )
    )
    active = [_pending_alert(job) for job in pending_jobs]
    if identity.admin:
        for name, lag_s in (
            ("writer", ctx.store.queue_age()),
            ("controller", ctx.controller.reconcile_age()),
        ):
            if lag_s > _LAG_THRESHOLD_S:
                active.append(
                    _alert(
                        {"alertname": "PaiServicesNotReady", "service_name": name, "severity": "fatal"},
                        f"The {name} has been busy with one operation for {lag_s:.0f} s.",
                        now_ms - int(lag_s * 1000),
                    )
                )
    return active


def _pending_alert(job: LongPendingJob) -> Alert:
    labels = {
        "alertname": "PaiJobPending",
        "job_name": job.framework,
        "username": job.username,
        "virtual_cluster": job.vc,
        "severity": "warn",
    }
    since_ms = job.submission_ms + PENDING_THRESHOLD_S * 1000
    return _alert(labels, f"Job {job.framework} has been waiting for more than 30 minutes.", since_ms)


def _alert(labels: dict[str, str], summary: str, since_ms: int) -> Alert:
    name = "|".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return Alert(
        labels=labels,
        annotations={"summary": summary},
        starts_at=iso(since_ms),
        ends_at="0001-01-01T00:00:00Z",
        generator_url="",
        status=AlertStatus("active", silenced_by=[], inhibited_by=[]),
        receivers=["pai-email-admin"],
        fingerprint=hashlib.sha256(name.encode()).hexdigest()[:16],
    )
