"""Timings of the reconcile loop: back-offs, delays and the interval of the sweep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double with every failure, up to a limit."""

    min_s: float
    max_s: float

    def delay_s(self, failures: int) -> float:
        """The delay after ``failures`` earlier failures."""
        return min(self.min_s * 2.0 ** min(failures, 10), self.max_s)


@dataclass(frozen=True, slots=True)
class Timings:
    # Lost hints are made up for by observing all live tasks at this interval.
    sweep_interval_s: float = 30.0
    # Report a pending reason only after this delay, so that jobs that start at once produce no event.
    report_reason_after_s: float = 1.0
    # Before a job that could not be launched is tried again.
    launch_backoff: Backoff = Backoff(1.0, 60.0)
    # Before a task that did not start is launched again.
    relaunch_backoff: Backoff = Backoff(0.2, 5.0)
    # Before a quarantined job is retried.
    quarantine_backoff: Backoff = Backoff(1.0, 300.0)
    # Before all jobs are read from the database again after a failure.
    reload_backoff: Backoff = Backoff(0.2, 10.0)


DEFAULT_TIMINGS = Timings()
