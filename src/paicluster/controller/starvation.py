"""Who has waited too long: what is fair at every moment may leave one person with nothing for ever.

A job that needs much, of a user who already holds something, would find all who hold less before it each time
that anything becomes free. So whoever of a virtual cluster gets nothing for an hour comes first there, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

STARVATION_S = 3600.0


class StarvationGuard:
    """Since when users wait, by virtual cluster and user. Times are of any clock that only goes forward."""

    def __init__(self, too_long_s: float = STARVATION_S):
        self._too_long_s = too_long_s
        self._since: dict[tuple[str, str], float] = {}

    def starved(self, waiting: Iterable[tuple[str, str]], now: float) -> frozenset[tuple[str, str]]:
        """Who of those that wait has got nothing for too long."""
        self._since = {place: self._since.get(place, now) for place in waiting}
        return frozenset(place for place, since in self._since.items() if now - since >= self._too_long_s)

    def resume(self, since: Mapping[tuple[str, str], float]) -> None:
        """Those who waited already when we came, by the same clock."""
        self._since = dict(since)

    def started(self, vc: str, user: str) -> None:
        self._since.pop((vc, user), None)

    def clear(self) -> None:
        """Nobody waits."""
        self._since.clear()
