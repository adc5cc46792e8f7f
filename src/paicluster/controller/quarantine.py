"""Quarantine: jobs that are skipped after an unexpected error and retried with back-off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paicluster.controller.timings import DEFAULT_TIMINGS, Backoff
from paiprotocol.errors import PaiError

log = logging.getLogger("paicluster.controller")


@dataclass(slots=True)
class _Entry:
    framework: str
    reason: str = ""
    failures: int = 0
    # Runs while the job is excluded; None while it is being retried.
    timer: asyncio.TimerHandle | None = None


class Quarantine:
    """Jobs skipped after an unexpected error.

    ``on_retry(job_id)`` is called after the back-off, ``on_change(job_id)`` when a job enters or leaves.
    """

    def __init__(
        self,
        on_retry: Callable[[int], None],
        on_change: Callable[[int], None],
        backoff: Backoff = DEFAULT_TIMINGS.quarantine_backoff,
    ):
        self._on_retry = on_retry
        self._on_change = on_change
        self._backoff = backoff
        self._entries: dict[int, _Entry] = {}

    def __len__(self) -> int:
        """Number of jobs, those being retried included until they succeed."""
        return len(self._entries)

    @property
    def excluded(self) -> set[int]:
        """Jobs that are skipped now."""
        return self._entries.keys() - self.retrying()

    def excludes(self, job_id: int) -> bool:
        entry = self._entries.get(job_id)
        return entry is not None and entry.timer is not None

    def add(self, job_id: int, framework: str, error: Exception) -> None:
        """Exclude a job. It keeps its allocations: what could not be written is not known to be free."""
        entry = self._entries.setdefault(job_id, _Entry(framework))
        if entry.timer is not None:
            entry.timer.cancel()
        reason = error.message if isinstance(error, PaiError) else f"{type(error).__name__}: {error}"
        reason = reason.partition("\n")[0]
        if entry.reason != reason:
            log.error("Job %s quarantined after an unexpected error.", framework, exc_info=error)
        entry.reason = reason
        delay_s = self._backoff.delay_s(entry.failures)
        entry.failures += 1
        entry.timer = asyncio.get_running_loop().call_later(delay_s, self.retry_now, job_id)
        self._on_change(job_id)

    def retry_now(self, job_id: int) -> None:
        """Retry it in the next reconcile; no effect if it is not excluded."""
        entry = self._entries.get(job_id)
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
            self._on_retry(job_id)

    def retrying(self) -> set[int]:
        """Jobs to be retried now."""
        return {job_id for job_id, entry in self._entries.items() if entry.timer is None}

    def release(self, job_ids: Iterable[int]) -> None:
        """Readmit jobs that were reconciled without an error."""
        for job_id in job_ids:
            log.warning("Job %s left quarantine.", self._entries.pop(job_id).framework)
            self._on_change(job_id)

    def reason(self, framework: str) -> str:
        """For users: why a job is quarantined; empty when it is not. On any thread."""
        for entry in tuple(self._entries.values()):
            if entry.framework == framework:
                return (
                    f"The job is quarantined after an unexpected error ({entry.reason}). "
                    "The cluster's log has the details. The cluster retries the job with increasing delays."
                )
        return ""

    def close(self) -> None:
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()
