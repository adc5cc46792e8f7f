"""Starvation guard. Fair share alone can starve a user whose jobs are large: each time resources become free,
users with a smaller share come first. After an hour without a start in a virtual cluster, a user is scheduled
first there once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

STARVATION_S = 3600.0


class StarvationGuard:
    """Since when users wait, by (virtual cluster, user). Times are of any monotonic clock."""

    def __init__(self, after_s: float = STARVATION_S):
        self._after_s = after_s
        self._since: dict[tuple[str, str], float] = {}

    def starved(self, waiting: Iterable[tuple[str, str]], now: float) -> frozenset[tuple[str, str]]:
        """The waiting users without a start for too long."""
        self._since = {vc_user: self._since.get(vc_user, now) for vc_user in waiting}
        return frozenset(vc_user for vc_user, since in self._since.items() if now - since >= self._after_s)

    def resume(self, since: Mapping[tuple[str, str], float]) -> None:
        """Continue with waits that began before this controller, by the same clock."""
        self._since = dict(since)

    def started(self, vc: str, user: str) -> None:
        self._since.pop((vc, user), None)

    def clear(self) -> None:
        """Forget all waits: no job is pending."""
        self._since.clear()
