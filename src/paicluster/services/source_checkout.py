"""What travels with a job, laid out on the storage as files: in ``<workspace>/jobs/<job>/source``.

The tasks do not read it: they unpack the bundle itself, which nobody can change. So people may do with these
copies what they like, and a job never waits for them.
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

from openpaisdk.errors import PaiError
from openpaisdk.protocol import JobSpec, read_job
from openpaisdk.protocol.states import framework_name
from openpaisdk.protocol.storage_layout import source_folder
from paicluster.files import Storage, StorageUser
from paicluster.files.tar_extraction import ExtractedFolder, is_marked, remove_marked
from paicluster.store import Store, groups, jobs, users
from paicluster.store.rows import JobRow, JobSpecRow

log = logging.getLogger("paicluster.files")

# A few small files are there before the job is answered for; a large folder comes after.
_BATCH_DELAY_S = 0.02
_SHUTDOWN_TIMEOUT_S = 2.0
# So few that a thousand jobs at once hold up nobody who reads or writes files.
_THREADS = 2
# A number is written over another one of the same length, in one step.
_DIGITS = 19

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SourceCheckouts:
    """All that are under way, and in the file ``laid`` from which job on some may be missing.

    Whoever laid a folder does not look at it again: people may take it away.
    """

    def __init__(self, storage: Storage, store: Store, sources: Path):
        self._storage = storage
        self._store = store
        self._sources = sources
        self._threads = ThreadPoolExecutor(_THREADS, "sources")
        self._under_way: set[asyncio.Task[None]] = set()
        # Jobs whose folders are missing so far, and the newest one we know of.
        self._missing: set[int] = set()
        self._newest = 0
        self._laid = -1
        self._leaving = False

    async def resume(self) -> None:
        """Before the first job is taken in: begin with what an earlier server left undone."""
        self._laid = os.open(self._sources.with_name("laid"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        written = os.pread(self._laid, _DIGITS, 0)

        def look(conn: Connection) -> tuple[list[int], int]:
            newest = jobs.newest_id(conn)
            # A home of the time before this file was there has all that it will have.
            since = int(written) if written.isdigit() else newest + 1
            return jobs.ids_with(conn, "sha256", since), newest

        missing, self._newest = await self._store.read(look)
        self._missing.update(missing)
        self._save_watermark()
        if missing:
            self._begin(self._lay_again(missing))

    async def check_out(self, job: JobSpec, who: StorageUser, job_id: int) -> None:
        """Begin with a job that was just taken in. What takes longer than a moment goes on by itself."""
        if job.additions.sources is None:
            return
        # Jobs are taken in by their numbers, so that none before this one is still to come.
        self._newest = max(self._newest, job_id)
        self._missing.add(job_id)
        await asyncio.wait([self._begin(self._lay(job, who, job_id))], timeout=_BATCH_DELAY_S)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _lay(self, job: JobSpec, who: StorageUser, job_id: int) -> None:
        assert job.additions.sources is not None
        path = source_folder(job, who.name)
        framework = framework_name(who.name, job.name)
        mark = _mark(framework, job_id)
        bundle = self._sources / f"{job.additions.sources.sha256}.tar"
        try:
            await self._in_thread(_lay_out, self._storage, bundle, path, mark, who, lambda: self._leaving)
            if await self._store.read(lambda conn: jobs.get_job_by_id(conn, job_id)) is None:
                # It was deleted sooner than this was done.
                await self._in_thread(remove_marked, self._storage, path, mark)
        except PaiError as error:
            if self._leaving:
                return
            words = (
                f"Its source files are not on the storage (the job has them all the same): {error.message}"
            )
            await self._tell(job_id, words)
        except Exception:
            log.exception("the files of %s could not be laid out", framework)
        self._is_laid(job_id)

    async def _lay_again(self, job_ids: Sequence[int]) -> None:
        """In their order: of two that have one place the later one holds it."""
        for job_id in job_ids:
            found = await self._store.read(partial(_accepted, job_id=job_id))
            if found is None:
                self._is_laid(job_id)
            else:
                await self._lay(*found, job_id)

    def _is_laid(self, job_id: int) -> None:
        self._missing.discard(job_id)
        self._save_watermark()

    def _save_watermark(self) -> None:
        # Killed before this is written, or without room: the next server looks at a few folders in vain.
        with contextlib.suppress(OSError):
            os.pwrite(self._laid, b"%0*d" % (_DIGITS, min(self._missing, default=self._newest + 1)), 0)

    async def _in_thread(self, call: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    async def _tell(self, job_id: int, words: str) -> None:
        def note(conn: Connection) -> None:
            if jobs.get_job_by_id(conn, job_id) is not None:
                jobs.add_event(
                    conn,
                    job_id,
                    type="Normal",
                    reason="SourcesNotKept",
                    message=words,
                    now_ms=int(time.time() * 1000),
                    source="cluster",
                )

        try:
            await self._store.write(note)
        except PaiError as error:
            log.warning("%s (%s)", words, error)

    async def close(self) -> None:
        """The server leaves: what is nearly done is waited for, and the rest is left to the next one."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_SHUTDOWN_TIMEOUT_S)
        self._leaving = True
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        os.close(self._laid)

    async def forget(self, job_ids: Sequence[int]) -> None:
        """These jobs are removed: the copies made for them go, too. Results stay."""

        def look(conn: Connection) -> list[tuple[JobRow, JobSpecRow]]:
            found = ((jobs.get_job_by_id(conn, one), jobs.job_spec(conn, one)) for one in job_ids)
            return [
                (row, spec)
                for row, spec in found
                if row is not None and spec is not None and "sha256" in spec.job
            ]

        for row, spec in await self._store.read(look):
            await self._in_thread(self._remove, row, spec)

    def _remove(self, row: JobRow, spec: JobSpecRow) -> None:
        try:
            job = read_job(spec.job, stored=True)
            if job.additions.sources is not None:
                remove_marked(self._storage, source_folder(job, row.username), _mark(row.framework, row.id))
        except (PaiError, OSError) as error:
            log.warning("the files of %s could not be removed: %s", row.framework, error)


def _mark(framework: str, job_id: int) -> str:
    """For which job it was made. Names come back when a job was deleted, numbers do not."""
    return f"{framework} {job_id}"


def _accepted(conn: Connection, job_id: int) -> tuple[JobSpec, StorageUser] | None:
    """A job that has sources and whose user is still there, and what he may do without being asked for it."""
    row, spec = jobs.get_job_by_id(conn, job_id), jobs.job_spec(conn, job_id)
    if row is None or spec is None or users.get_user(conn, row.username) is None:
        return None
    job = read_job(spec.job, stored=True)
    if job.additions.sources is None:
        return None
    return job, StorageUser(row.username, frozenset(groups.access_of(conn, row.username).groups))


def _lay_out(
    storage: Storage, bundle: Path, path: str, mark: str, who: StorageUser, stop: Callable[[], bool]
) -> None:
    if is_marked(storage, path, mark):
        return  # an earlier server had come so far
    folder = ExtractedFolder(storage, path, who, stop)
    try:
        folder.fill(bundle)
        folder.place(mark)
    finally:
        folder.drop()
