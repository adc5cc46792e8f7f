"""What travels with a job, laid out on the storage as files: in ``<workspace>/jobs/<job>/source``.

The tasks do not read it: they unpack the bundle itself, which nobody can change. So people may do with these
copies what they like, and a job never waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import Connection

from openpaisdk.errors import PaiError
from openpaisdk.protocol import Job, read_job
from openpaisdk.protocol.layout import source_folder
from openpaisdk.protocol.states import framework_name
from paicluster.files import Person, Storage
from paicluster.files.unpacking import Unpacked, remove_marked
from paicluster.store import Store, jobs
from paicluster.store.rows import JobRow, JobSpecRow

log = logging.getLogger("paicluster.files")

# A few small files are there before the job is answered for; a large folder comes after.
_PATIENCE_S = 0.02
_LAST_PATIENCE_S = 2.0
# So few that a thousand jobs at once hold up nobody who reads or writes files.
_THREADS = 2


class Layings:
    """All that are under way."""

    def __init__(self, storage: Storage, store: Store, sources: Path):
        self._storage = storage
        self._store = store
        self._sources = sources
        self._threads = ThreadPoolExecutor(_THREADS, "sources")
        self._under_way: set[asyncio.Task[None]] = set()

    async def lay(self, job: Job, who: Person, job_id: int) -> None:
        """Begin with a job that was just taken in. What takes longer than a moment goes on by itself."""
        if job.additions.sources is None:
            return
        task = asyncio.create_task(self._lay(job, job.additions.sources.sha256, who, job_id))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.wait([task], timeout=_PATIENCE_S)

    async def _lay(self, job: Job, sha256: str, who: Person, job_id: int) -> None:
        loop = asyncio.get_running_loop()
        path = source_folder(job, who.name)
        framework = framework_name(who.name, job.name)
        mark = _mark(framework, job_id)
        bundle = self._sources / f"{sha256}.tar"
        try:
            await loop.run_in_executor(self._threads, _lay_out, self._storage, bundle, path, mark, who)
            if await self._store.read(lambda conn: jobs.get_job_by_id(conn, job_id)) is None:
                # It was deleted sooner than this was done.
                await loop.run_in_executor(self._threads, remove_marked, self._storage, path, mark)
        except PaiError as error:
            words = (
                f"Its source files are not on the storage (the job has them all the same): {error.message}"
            )
            await self._tell(job_id, words)
        except Exception:
            log.exception("the files of %s could not be laid out", framework)

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
        """The server leaves: what is nearly done is waited for, and the rest is left."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_LAST_PATIENCE_S)
        # What is being unpacked this moment is unpacked to its end, but others need not wait for it.
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def forget(self, job_ids: Sequence[int]) -> None:
        """These jobs are removed: the copies made for them go, too. Results stay."""

        def look(conn: Connection) -> list[tuple[JobRow, JobSpecRow]]:
            found = ((jobs.get_job_by_id(conn, one), jobs.job_spec(conn, one)) for one in job_ids)
            return [
                (row, spec)
                for row, spec in found
                if row is not None and spec is not None and "sha256" in spec.job
            ]

        loop = asyncio.get_running_loop()
        for row, spec in await self._store.read(look):
            await loop.run_in_executor(self._threads, self._remove, row, spec)

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


def _lay_out(storage: Storage, bundle: Path, path: str, mark: str, who: Person) -> None:
    folder = Unpacked(storage, path, who)
    try:
        folder.fill(bundle)
        folder.place(mark)
    finally:
        folder.drop()
