"""Pending reasons: reported as events, each reason once, and only for jobs that do not start at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from paicluster.controller.reconcile_changes import Changes, Event
from paicluster.controller.timings import DEFAULT_TIMINGS

# A reason in which only numbers change, such as the free cores, is reported again after this time at the
# earliest: with many jobs ending, each change would be an event.
NUMBERS_INTERVAL_S = 10.0
STARTING = "The job is placed and is being started."


class PendingReasons:
    """Reasons of pending jobs. ``wake`` is called when one is due to be reported."""

    def __init__(
        self, wake: Callable[[], None], *, report_after_s: float = DEFAULT_TIMINGS.report_reason_after_s
    ):
        self._wake = wake
        self._report_after_s = report_after_s
        # Reasons and when they were reported.
        self._reported: dict[int, tuple[str, float]] = {}
        # Since when jobs are pending without a reported reason.
        self._unreported_since: dict[int, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def is_due(self, job_id: int) -> bool:
        """Whether to report why a job is pending. If not yet, ``wake`` is called when it is."""
        if job_id in self._reported:
            return True
        loop = asyncio.get_running_loop()
        since = self._unreported_since.setdefault(job_id, loop.time())
        left_s = since + self._report_after_s - loop.time()
        if left_s <= 0:
            return True
        if self._timer is None:
            self._timer = loop.call_later(left_s, self._on_due)
        return False

    def report(self, job_id: int, reason: str, changes: Changes) -> None:
        reported, since = self._reported.get(job_id, ("", 0.0))
        now = asyncio.get_running_loop().time()
        is_recent = now - since < NUMBERS_INTERVAL_S and _words(reported) == _words(reason)
        if reported != reason and not is_recent:
            self._reported[job_id] = reason, now
            self._unreported_since.pop(job_id, None)
            changes.events.append(
                Event(job_id, "Warning", "FailedScheduling", reason, "default-scheduler", pending=True)
            )

    def started(self, job_id: int, changes: Changes) -> None:
        """The job is no longer pending. An event supersedes the reported reason: until the job
        runs, its state stays WAITING."""
        if job_id in self._reported:
            changes.events.append(
                Event(job_id, "Normal", "Scheduled", STARTING, "default-scheduler", pending=True)
            )
        self.forget(job_id)

    def forget(self, job_id: int) -> None:
        self._reported.pop(job_id, None)
        self._unreported_since.pop(job_id, None)

    def clear(self) -> None:
        self._reported.clear()
        self._unreported_since.clear()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_due(self) -> None:
        self._timer = None
        self._wake()


def _words(reason: str) -> str:
    """A reason without its numbers."""
    return re.sub(r"\d+", "", reason)
