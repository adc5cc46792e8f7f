"""Wake-ups of the reconcile loop: requests, hints, notices, retry timers and the periodic sweep."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from paicluster.controller.active_jobs import ActiveJobs
from paicluster.controller.pending_queue import PendingQueue
from paicluster.controller.timings import DEFAULT_TIMINGS
from paicluster.engines.interface import Notice
from paicluster.store.change_feed import Requests

# Delay before new jobs are enqueued while others are pending: many are then enqueued in one batch.
_ENQUEUE_DELAY_S = 0.02


class Wakeups:
    """Work for the next reconcile, and the event that starts it. All methods run on the event loop."""

    def __init__(
        self,
        active: ActiveJobs,
        queue: PendingQueue,
        *,
        sweep_interval_s: float = DEFAULT_TIMINGS.sweep_interval_s,
    ):
        self._active = active
        self._queue = queue
        self._sweep_interval_s = sweep_interval_s
        self._event = asyncio.Event()
        # New jobs. None: only the id is known; the row is read when the job is enqueued.
        self.submitted: Requests = {}
        # Jobs to look at again, and tasks to observe.
        self.requests: set[int] = set()
        self.hints: set[str] = set()
        # Notices of the engines by task uid, not yet written as events.
        self.notices: list[tuple[str, Notice]] = []
        # Jobs whose next attempt or launch waits for a delay.
        self.timers: dict[int, asyncio.TimerHandle] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._enqueue: asyncio.TimerHandle | None = None

    # -- the event -----------------------------------------------------------------------------

    async def wait(self) -> None:
        """Wait for the next wake-up."""
        await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        self._event.set()

    @property
    def is_awake(self) -> bool:
        """Whether a reconcile is due."""
        return self._event.is_set()

    # -- sources -------------------------------------------------------------------------------

    def add_requests(self, requests: Requests) -> None:
        """Changes of the API: new jobs, and known jobs (None) that were changed."""
        urgent = not len(self._queue.pending)
        for job_id, new_job in requests.items():
            if new_job is None:
                self.requests.add(job_id)
                urgent = True
            else:
                self.submitted[job_id] = new_job
        if urgent:
            self.wake()
        elif self._enqueue is None:
            self._enqueue = asyncio.get_running_loop().call_later(_ENQUEUE_DELAY_S, self._enqueue_due)

    def request(self, job_id: int) -> None:
        self.requests.add(job_id)
        self.wake()

    def retry(self, job_id: int) -> None:
        """Look at a job and all its live tasks again, or enqueue it if it is not active."""
        record = self._active.records.get(job_id)
        if record is None:
            self.submitted[job_id] = None
        else:
            self.requests.add(job_id)
            self.hints.update(task.uid for task in record.live)
        self.wake()

    def requeue_unschedulable(self) -> None:
        """Reconsider all pending jobs after a change of quotas: unschedulable ones may fit now."""
        for job_id in self._queue.take_unschedulable():
            if job_id in self.timers:
                self.timers.pop(job_id).cancel()
                self._active.records[job_id].deferred = False
            if job_id in self._active.records:
                self.requests.add(job_id)
            else:
                self.submitted[job_id] = None
        self.wake()

    def hint(self, uid: str) -> None:
        """The state of a task may have changed."""
        if uid in self._active.job_of:
            self.hints.add(uid)
            self.wake()

    def notice(self, uid: str, notice: Notice) -> None:
        """An engine reports something about a task."""
        if uid in self._active.job_of:
            self.notices.append((uid, notice))
            self.wake()

    def hint_live(self) -> None:
        """Observe all live tasks in the next reconcile."""
        for record in self._active.records.values():
            self.hints.update(record.tasks.live)

    def sweep(self) -> None:
        self._sweep = None
        self.hint_live()
        self.wake()

    # -- timers --------------------------------------------------------------------------------

    def arm_sweep(self) -> None:
        if self._active.job_of and self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._sweep_interval_s, self.sweep)

    def arm_retry(self, job_id: int, delay_s: float) -> None:
        """Request a job after a delay, unless its timer already runs."""
        if job_id not in self.timers:
            loop = asyncio.get_running_loop()
            self.timers[job_id] = loop.call_later(delay_s, self.retry_due, job_id)

    def retry_due(self, job_id: int) -> None:
        self.timers.pop(job_id, None)
        record = self._active.records.get(job_id)
        if record is not None:
            # The delay was measured by the event loop's clock; the wall clock may have jumped.
            record.row = replace(record.row, retry_at_ms=0)
            record.deferred = False
            self.request(job_id)

    def cancel_retry(self, job_id: int) -> None:
        timer = self.timers.pop(job_id, None)
        if timer is not None:
            timer.cancel()

    def _enqueue_due(self) -> None:
        self._enqueue = None
        self.wake()

    # -- life ----------------------------------------------------------------------------------

    def cancel_retries(self) -> None:
        for timer in self.timers.values():
            timer.cancel()

    def clear(self) -> None:
        """Forget timers and new jobs: both are read from the database again."""
        self.timers.clear()
        self.submitted.clear()

    def close(self) -> None:
        self.cancel_retries()
        for timer in filter(None, (self._sweep, self._enqueue)):
            timer.cancel()
