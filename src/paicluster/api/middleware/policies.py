"""HTTP policies of one server: rate limits, login throttle, headers, audit log, metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from paicluster.api.middleware.audit import AuditLog
from paicluster.api.middleware.body_budget import BodyBudget
from paicluster.api.middleware.connection_limits import TokenConnectionLimit
from paicluster.api.middleware.rate_limits import LoginThrottle, RateLimits, RateWindow, rate_window
from paicluster.api.middleware.response_budget import ResponseBudget
from paicluster.api.middleware.security_headers import SecurityHeaders
from paicluster.api.routing.authority import Authority
from paicluster.api.routing.route import Bound, Rate, Route
from paicluster.config.settings import Settings
from paicluster.metrics.http_metrics import HttpMetrics
from paicluster.metrics.loop_watchdog import LoopWatchdog
from paicluster.remote_storages.remote_changes import MAX_UPLOAD_MEMORY_BYTES


class BoundRoute(NamedTuple):
    """What a request's route declares, with the limits of this server."""

    authority: Authority
    # Counts the request once its user is authenticated.
    rate: RateWindow | None
    # None: no body is read whole.
    body_limit: int | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HttpPolicies:
    """One per server. Without arguments nothing is limited or recorded."""

    rate_limits: RateLimits = field(default_factory=RateLimits)
    token_connections: TokenConnectionLimit | None = None
    login_throttle: LoginThrottle = field(default_factory=LoginThrottle)
    headers: SecurityHeaders = field(default_factory=SecurityHeaders)
    metrics: HttpMetrics = field(default_factory=HttpMetrics)
    audit: AuditLog | None = None
    loop_watchdog: LoopWatchdog | None = None
    max_body_bytes: int = 8 << 20
    max_sources_bytes: int = 4 << 30
    body_budget: BodyBudget = field(default_factory=lambda: BodyBudget(128 << 20, 8 << 20))
    response_budget: ResponseBudget = field(default_factory=ResponseBudget)

    @classmethod
    def open(cls, settings: Settings) -> HttpPolicies:
        """Built from the settings. The embedded cluster has one user: no rate limits, no audit log."""
        limits, authentication = settings.limits, settings.authentication
        per_token = None if settings.embedded else limits.connections_per_token
        largest_body = max(limits.body_mb << 20, MAX_UPLOAD_MEMORY_BYTES)
        return cls(
            rate_limits=RateLimits()
            if settings.embedded
            else RateLimits(
                rate_window(limits.requests_per_minute, 60),
                rate_window(limits.lists_per_minute, 60),
                rate_window(limits.submissions_per_hour, 3600),
            ),
            token_connections=None if per_token is None else TokenConnectionLimit(per_token),
            login_throttle=LoginThrottle(
                authentication.logins_per_account, authentication.logins_per_address
            ),
            headers=SecurityHeaders(frozenset(settings.cors_origins), secure=settings.tls_cert is not None),
            audit=None if settings.embedded else AuditLog(settings.home / "audit.log"),
            loop_watchdog=LoopWatchdog(),
            max_body_bytes=limits.body_mb << 20,
            max_sources_bytes=limits.sources_mb << 20,
            body_budget=BodyBudget(limits.bodies_mb << 20, largest_body),
        )

    def bind(self, route: Route) -> BoundRoute:
        """The declaration of a route with the limits of this server."""
        rates = {Rate.LISTS: self.rate_limits.lists, Rate.SUBMISSIONS: self.rate_limits.submissions}
        settings = {Bound.BODY_SETTING: self.max_body_bytes, Bound.SOURCES_SETTING: self.max_sources_bytes}
        limit = None if route.body is None else route.body.limit
        return BoundRoute(
            route.authority,
            None if route.rate is None else rates.get(route.rate),
            settings.get(limit) if isinstance(limit, Bound) else limit,
        )

    def close(self) -> None:
        if self.loop_watchdog is not None:
            self.loop_watchdog.close()
        if self.audit is not None:
            self.audit.close()
