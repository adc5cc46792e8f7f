"""What stands between the network and the routes: rates, logins, headers, the audit log, the counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from paicluster.api.middleware.audit import AuditLog
from paicluster.api.middleware.rate_limits import LoginThrottle, Rates, window
from paicluster.api.middleware.security_headers import Headers
from paicluster.config.settings import Settings
from paicluster.metrics.http_metrics import HttpMetrics
from paicluster.metrics.loop_watchdog import LoopWatchdog

# Where a request carries the rate that counts it once its user is known.
RATE = "paicluster.rate"


@dataclass(frozen=True, slots=True)
class HttpPolicies:
    """One for each server. Without arguments nothing is limited or recorded."""

    rates: Rates = field(default_factory=Rates)
    logins: LoginThrottle = field(default_factory=LoginThrottle)
    headers: Headers = field(default_factory=Headers)
    meters: HttpMetrics = field(default_factory=HttpMetrics)
    audit: AuditLog | None = None
    heartbeat: LoopWatchdog | None = None
    largest_body: int = 8 << 20
    largest_sources: int = 4 << 30

    @classmethod
    def open(cls, settings: Settings) -> HttpPolicies:
        """As the settings have it. On one's own machine there is nobody to be told apart, or kept from it."""
        limits, who = settings.limits, settings.authentication
        alone = settings.embedded
        return cls(
            rates=Rates()
            if alone
            else Rates(
                window(limits.requests_per_minute, 60),
                window(limits.lists_per_minute, 60),
                window(limits.submissions_per_hour, 3600),
            ),
            logins=LoginThrottle(who.logins_per_account, who.logins_per_address),
            headers=Headers(frozenset(settings.cors_origins), secure=settings.tls_cert is not None),
            audit=None if alone else AuditLog(settings.home / "audit.log"),
            heartbeat=LoopWatchdog(),
            largest_body=limits.body_mb << 20,
            largest_sources=limits.sources_mb << 20,
        )

    def close(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.close()
        if self.audit is not None:
            self.audit.close()
