"""Request counts and durations, in plain lists: counting one request costs about a microsecond."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from paicluster.metrics.exposition import Sample, family

# Seconds; the last bucket takes the rest.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Series:
    """The requests of one method on one route."""

    __slots__ = ("buckets", "method", "route", "statuses", "total_s")

    def __init__(self, method: str, route: str) -> None:
        self.method = method
        self.route = route
        self.statuses: dict[int, int] = {}
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total_s = 0.0

    def count(self, status: int, seconds: float) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total_s += seconds


class HttpMetrics:
    """All series of this server."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], Series] = {}

    def series(self, method: str, route: str) -> Series:
        """The series of this method and route, created on first use."""
        key = (method, route)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(method, route)
        return series

    def lines(self) -> Iterator[str]:
        """All series in Prometheus text format."""
        used = [series for series in self._series.values() if series.statuses]
        yield from family("paicluster_http_requests_total", "counter", "Completed requests.", _requests(used))
        yield from family(
            "paicluster_http_request_duration_seconds",
            "histogram",
            "Time from the request head to the response head; streams last longer.",
            _durations(used),
        )


def _requests(used: list[Series]) -> Iterator[Sample]:
    for series in used:
        for status, count in sorted(series.statuses.items()):
            yield "", {"method": series.method, "route": series.route, "status": str(status)}, count


def _durations(used: list[Series]) -> Iterator[Sample]:
    for series in used:
        labels = {"method": series.method, "route": series.route}
        below = 0
        for bound, count in zip(BOUNDS, series.buckets, strict=False):
            below += count
            yield "_bucket", {**labels, "le": f"{bound:g}"}, below
        total = below + series.buckets[-1]
        yield "_bucket", {**labels, "le": "+Inf"}, total
        yield "_sum", labels, series.total_s
        yield "_count", labels, total
