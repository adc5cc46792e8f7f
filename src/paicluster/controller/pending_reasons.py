"""Why jobs wait: said once for each reason, and not of what starts in a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from paicluster.controller.changes import Changes, Event

# So long a job waits before it is said why: what starts at once need not worry anybody.
REPORT_AFTER_S = 1.0
STARTING = "The job has its place, and is being started."


class PendingReasons:
    """``wake`` is called when it has become time to say something."""

    def __init__(self, wake: Callable[[], None]):
        self._wake = wake
        self._said: dict[int, str] = {}
        # Since when jobs wait of which nothing was said yet.
        self._silent: dict[int, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def is_due(self, job_id: int) -> bool:
        """Whether people should be told why it waits. If not yet, we are woken when it is."""
        if job_id in self._said:
            return True
        loop = asyncio.get_running_loop()
        left = self._silent.setdefault(job_id, loop.time()) + REPORT_AFTER_S - loop.time()
        if left <= 0:
            return True
        if self._timer is None:
            self._timer = loop.call_later(left, self._speak)
        return False

    def report(self, job_id: int, reason: str, changes: Changes) -> None:
        if self._said.get(job_id) != reason:
            self._said[job_id] = reason
            self._silent.pop(job_id, None)
            changes.events.append(Event(job_id, "Warning", "FailedScheduling", reason, "default-scheduler"))

    def started(self, job_id: int, changes: Changes) -> None:
        """It waits no more. Who was told why it waits is told so: until it runs it still looks the same."""
        if job_id in self._said:
            changes.events.append(Event(job_id, "Normal", "Scheduled", STARTING, "default-scheduler"))
        self.forget(job_id)

    def forget(self, job_id: int) -> None:
        self._said.pop(job_id, None)
        self._silent.pop(job_id, None)

    def clear(self) -> None:
        self._said.clear()
        self._silent.clear()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _speak(self) -> None:
        self._timer = None
        self._wake()
