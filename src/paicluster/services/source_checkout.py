"""Source checkout: extracts a job's source archive into the storage at ``<workspace>/jobs/<job>/source``.

Tasks do not read these files: they extract the archive itself, which cannot change. So users may change or
delete the copies, and a job never waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple, Unpack

from sqlalchemy import Connection

from paicluster.files import Storage, StorageUser
from paicluster.files.tar_extraction import ExtractedFolder, is_marked, remove_marked
from paicluster.services.work_journal import Step, WorkJournal
from paicluster.store import Store, groups, jobs, users
from paicluster.store.rows import JobRow, JobSpecRow
from paiprotocol.errors import PaiError
from paiprotocol.jobs import JobSpec, read_job
from paiprotocol.jobs.states import framework_name
from paiprotocol.jobs.storage_layout import source_folder

log = logging.getLogger("paicluster.files")

# A submission waits this long for its checkout: few small files are ready by then, a large archive comes
# later.
_CHECKOUT_WAIT_TIMEOUT_S = 0.02
_SHUTDOWN_TIMEOUT_S = 2.0
# Few, so that a thousand jobs at once do not slow down other file operations.
_THREADS = 2
# Fixed width: a new watermark overwrites the old one in a single write.
_WATERMARK_DIGITS = 19
_CHECKOUT_STEPS = (Step.LOAD, Step.UNPACK)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SourceCheckouts:
    """Background extraction of source archives into the storage.

    The file `checkout-watermark` in the home holds the lowest job id whose checkout may still be missing. A
    finished checkout is not checked again: users may delete it.
    """

    def __init__(
        self,
        storage: Storage,
        store: Store,
        sources: Path,
        work_journal: WorkJournal | None = None,
        *,
        shutdown_timeout_s: float = _SHUTDOWN_TIMEOUT_S,
    ):
        self._storage = storage
        self._store = store
        self._sources = sources
        self._shutdown_timeout_s = shutdown_timeout_s
        self._work_journal = work_journal or WorkJournal()
        self._threads = ThreadPoolExecutor(_THREADS, "sources")
        # Work that waits for a thread has not begun.
        self._free_threads = asyncio.Semaphore(_THREADS)
        self._tasks: set[asyncio.Task[None]] = set()
        # Jobs whose checkout is not finished, and the newest known job.
        self._missing: set[int] = set()
        self._newest = 0
        self._watermark_fd = -1
        self._closing = False

    async def resume(self) -> None:
        """Continue the checkouts that an earlier server left unfinished.

        Call it before the first job is admitted.
        """
        self._watermark_fd = os.open(
            self._sources.with_name("checkout-watermark"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        watermark = os.pread(self._watermark_fd, _WATERMARK_DIGITS, 0)

        def read(conn: Connection) -> tuple[list[int], int]:
            newest = jobs.newest_id(conn)
            # Without the file the home is new, or older than this feature: nothing is missing. A damaged one
            # may have any number.
            since = min(int(watermark), newest + 1) if watermark.isdigit() else newest + 1
            return jobs.ids_with(conn, "sha256", since), newest

        missing, self._newest = await self._store.read(read)
        self._missing.update(missing)
        self._save_watermark()
        if missing:
            self._start(self._check_out_missing(missing))

    async def check_out(self, job: JobSpec, user: StorageUser, job_id: int) -> None:
        """Start the checkout of a job that was just admitted; a long one continues in the background."""
        if job.additions.sources is None:
            return
        # Jobs are admitted in the order of their ids, so none before this one can follow.
        self._newest = max(self._newest, job_id)
        self._missing.add(job_id)
        await asyncio.wait(
            [self._start(self._run_checkout(job, user, job_id))], timeout=_CHECKOUT_WAIT_TIMEOUT_S
        )

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run_checkout(self, job: JobSpec, user: StorageUser, job_id: int) -> None:
        assert job.additions.sources is not None
        path = source_folder(job, user.name)
        framework = framework_name(user.name, job.name)
        mark = _mark(framework, job_id)
        archive = self._sources / f"{job.additions.sources.sha256}.tar"
        try:
            async with self._free_threads, self._work_journal.work(job_id, Step.UNPACK):
                await self._in_thread(
                    _extract, self._storage, archive, path, mark, user, lambda: self._closing
                )
            if await self._store.read(lambda conn: jobs.get_job_by_id(conn, job_id)) is None:
                # The job was deleted before the checkout was finished.
                await self._in_thread(remove_marked, self._storage, path, mark)
        except PaiError as error:
            if self._closing:
                return
            await self._add_event(
                job_id,
                f"The source files were not copied to the storage (the job still has them): {error.message}",
            )
        except Exception:
            log.exception("Cannot check out the sources of %s", framework)
        self._mark_done(job_id)

    async def _check_out_missing(self, job_ids: Sequence[int]) -> None:
        """In the order of job ids: of two jobs with the same path the later one wins."""
        condemned = {job_id: self._work_journal.verdict(job_id, _CHECKOUT_STEPS) for job_id in job_ids}
        for job_id in job_ids:
            if condemned[job_id]:
                message = f"{condemned[job_id]} The source files are not copied to the storage."
                await self._add_event(job_id, message)
                self._mark_done(job_id)
                self._work_journal.settle(job_id, (Step.UNPACK,))
                continue
            async with self._work_journal.work(job_id, Step.LOAD):
                checkout = await self._store.read(partial(_checkout_of, job_id=job_id))
            if checkout is None:
                self._mark_done(job_id)
            else:
                await self._run_checkout(*checkout, job_id)

    def _mark_done(self, job_id: int) -> None:
        self._missing.discard(job_id)
        self._save_watermark()

    def _save_watermark(self) -> None:
        # If this is not written (crash, full disk), the next server checks a few finished checkouts
        # needlessly.
        with contextlib.suppress(OSError):
            os.pwrite(
                self._watermark_fd,
                b"%0*d" % (_WATERMARK_DIGITS, min(self._missing, default=self._newest + 1)),
                0,
            )

    async def _in_thread(self, call: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    async def _add_event(self, job_id: int, message: str) -> None:
        def write(conn: Connection) -> None:
            if jobs.get_job_by_id(conn, job_id) is not None:
                jobs.add_event(
                    conn,
                    job_id,
                    type="Normal",
                    reason="SourcesNotKept",
                    message=message,
                    now_ms=int(time.time() * 1000),
                    source="cluster",
                )

        try:
            await self._store.write(write)
        except PaiError as error:
            log.warning("%s (%s)", message, error)

    async def close(self) -> None:
        """Shut down: wait a moment for running checkouts; the next server does the rest."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._shutdown_timeout_s)
        self._closing = True
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        os.close(self._watermark_fd)

    async def remove(self, job_ids: Sequence[int]) -> None:
        """Delete the checkouts of deleted jobs. Outputs stay."""

        def read(conn: Connection) -> list[tuple[JobRow, JobSpecRow]]:
            rows = ((jobs.get_job_by_id(conn, job_id), jobs.job_spec(conn, job_id)) for job_id in job_ids)
            return [
                (row, spec)
                for row, spec in rows
                if row is not None and spec is not None and "sha256" in spec.job
            ]

        for row, spec in await self._store.read(read):
            await self._in_thread(self._remove_checkout, row, spec)

    def _remove_checkout(self, row: JobRow, spec: JobSpecRow) -> None:
        try:
            job = read_job(spec.job, stored=True)
            if job.additions.sources is not None:
                remove_marked(self._storage, source_folder(job, row.username), _mark(row.framework, row.id))
        except (PaiError, OSError) as error:
            log.warning("Cannot remove the source files of %s: %s", row.framework, error)


def _mark(framework: str, job_id: int) -> str:
    """Mark of a job's checkout. A job name can be reused after a deletion, an id cannot."""
    return f"{framework} {job_id}"


def _checkout_of(conn: Connection, job_id: int) -> tuple[JobSpec, StorageUser] | None:
    """Job and user of a missing checkout; None when job or user were deleted or the job has no sources."""
    row, spec = jobs.get_job_by_id(conn, job_id), jobs.job_spec(conn, job_id)
    if row is None or spec is None or users.get_user(conn, row.username) is None:
        return None
    job = read_job(spec.job, stored=True)
    if job.additions.sources is None:
        return None
    return job, StorageUser(row.username, frozenset(groups.access_of(conn, row.username).groups))


def _extract(
    storage: Storage, archive: Path, path: str, mark: str, user: StorageUser, stop: Callable[[], bool]
) -> None:
    if is_marked(storage, path, mark):
        return  # an earlier server finished it
    folder = ExtractedFolder(storage, path, user, stop)
    try:
        folder.extract(archive)
        folder.publish(mark)
    finally:
        folder.discard()
