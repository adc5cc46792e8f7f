"""Recovery of the controller: reload from the database, degraded state, quarantine, journaled stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from paicluster.controller.active_jobs import ActiveJobs
from paicluster.controller.pending_queue import PendingQueue
from paicluster.controller.pending_reasons import PendingReasons
from paicluster.controller.quarantine import Quarantine
from paicluster.controller.starvation import StarvationGuard
from paicluster.controller.stop_journal import StopJournal
from paicluster.controller.timings import Timings
from paicluster.controller.wakeups import Wakeups
from paicluster.engines.router import EngineRouter
from paicluster.services.work_journal import WorkJournal
from paicluster.store import Store, jobs
from paicluster.store.sqlite import UnreadableRow
from paiprotocol.errors import StoreError

log = logging.getLogger("paicluster.controller")

# Interval at which a degraded controller checks whether the database can be written again.
_PROBE_INTERVAL_S = 1.0


class Recovery:
    """What survives a failed reconcile: which jobs are quarantined, which stops are not yet in the database,
    and why nothing can be written."""

    def __init__(
        self,
        store: Store,
        engines: EngineRouter,
        active: ActiveJobs,
        queue: PendingQueue,
        wakeups: Wakeups,
        reasons: PendingReasons,
        starvation: StarvationGuard,
        stop_journal: StopJournal,
        work_journal: WorkJournal,
        *,
        grace_s: float,
        timings: Timings,
    ):
        self._store = store
        self._engines = engines
        self._active = active
        self._queue = queue
        self._wakeups = wakeups
        self._reasons = reasons
        self._starvation = starvation
        self._grace_s = grace_s
        self._reload_backoff = timings.reload_backoff
        self.stop_journal = stop_journal
        self._work_journal = work_journal
        self.quarantine = Quarantine(wakeups.retry, store.changes.publish, timings.quarantine_backoff)
        self._store_error: StoreError | None = None

    # -- degraded state ------------------------------------------------------------------------

    def degraded_reason(self, framework: str = "") -> str:
        """Why nothing can be written now and what to do, or why this job is quarantined. On any thread.

        Kept in memory only: a database that cannot be written cannot record it.
        """
        error = self._store_error
        if error is None:
            return self.quarantine.reason(framework)
        sentences = (error.message, error.hint, "The cluster resumes once it can write again.")
        return " ".join(filter(None, sentences))

    def set_store_error(self, error: Exception | None) -> None:
        before = self.degraded_reason()
        # A damaged row is a matter of one job: all others go on.
        if isinstance(error, StoreError) and not isinstance(error, UnreadableRow):
            self._store_error = error
        else:
            self._store_error = None
        if self.degraded_reason() != before:
            self._store.changes.wake_all()

    # -- deaths of servers ---------------------------------------------------------------------

    async def report_suspects(self) -> None:
        """Log which jobs the previous server was working on when it died."""
        suspects = self._work_journal.suspects()
        names = await self._store.read(lambda conn: jobs.names_of(conn, suspects)) if suspects else {}
        for job_id, doing in suspects.items():
            name = names.get(job_id, f"number {job_id}, which was deleted")
            log.warning("A server died while it was %s: %s.", doing, name)

    def settle_suspects(self) -> None:
        """Clear suspect jobs that have nothing more to launch: they run, or have finished."""
        for job_id in self._work_journal.suspects():
            record = self._active.records.get(job_id)
            is_waiting = job_id in self._queue or job_id in self._wakeups.submitted
            if record is not None:
                is_waiting = is_waiting or record.launching is not None or bool(record.to_launch)
                is_waiting = is_waiting or bool(record.condemned)
            if not is_waiting and not self.quarantine.excludes(job_id):
                self._work_journal.settle(job_id)

    # -- reload --------------------------------------------------------------------------------

    async def load_all(self) -> None:
        """Drop everything in memory and load every unfinished job from the database."""
        self._wakeups.cancel_retries()
        await self._active.clear()
        # Cleared before reading: jobs submitted meanwhile are then enqueued on top of those that are read.
        for state in (self._wakeups, self._queue, self._reasons):
            state.clear()
        pending = await self._active.load_all()
        self._wakeups.submitted.update(dict.fromkeys(job.id for job in pending))
        self._starvation.resume(await self._active.pending_since(pending))
        self._wakeups.requests.update(self._active.records)
        self._wakeups.requests.update(self._work_journal.condemned())
        self._wakeups.hint_live()
        self._wakeups.wake()

    async def reload(self, failed_job: int, failure: Exception) -> None:
        """Load all jobs, retrying until that succeeds; quarantine ``failed_job`` unless it is 0 (unknown)."""
        failures = 0
        while True:
            try:
                if self._store_error is not None:
                    # Reading all jobs is expensive, and without effect while nothing can be written.
                    await self._store.probe_write()
                await self.load_all()
                names = await self._store.read(lambda conn: jobs.names_of(conn, [failed_job]))
            except StoreError as error:
                if str(error) != str(self._store_error):
                    log.warning("Cannot load jobs from the database: %s", error)
                self.set_store_error(error)
                await asyncio.sleep(_PROBE_INTERVAL_S)
            except Exception:
                log.exception("Cannot load jobs from the database.")
                await asyncio.sleep(self._reload_backoff.delay_s(failures))
                failures += 1
            else:
                break
        if failed_job in names:
            self.quarantine.add(failed_job, names[failed_job], failure)
            await self._stop_quarantined(failed_job)

    # -- stops ---------------------------------------------------------------------------------

    async def stop_without_store(self, job_id: int) -> None:
        """Stop a job's tasks while the database cannot be written: journal the stop and write it later."""
        await self.stop_journal.add(job_id)
        self._wakeups.request(job_id)
        records = self._active.records
        if job_id in records:
            records[job_id].row = replace(records[job_id].row, execution_type="STOP")
        await self._try_to_stop(await self._store.read(lambda conn: jobs.live_tasks_of(conn, job_id)))

    async def _stop_quarantined(self, job_id: int) -> None:
        """Stop its tasks if the user asked for that: the request is in the database, and a task that ended
        on it is reported as stopped even though the tasks' `stop_requested` was not written."""
        record = self._active.records.get(job_id)
        if record is not None and record.stop_requested:
            await self._try_to_stop([task.uid for task in record.live])

    async def _try_to_stop(self, uids: Sequence[str]) -> None:
        """An error here may be the very error of the job; it must not hold up all other jobs."""
        try:
            await self._engines.stop(uids, self._grace_s)
        except OSError as error:  # such as a full disk
            log.warning("Cannot stop tasks; will retry: %s", error)
        except Exception:
            log.exception("Cannot stop tasks; will retry.")
