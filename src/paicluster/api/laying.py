"""What travels with a job, laid out on the storage as files: in ``<workspace>/jobs/<job>/source``.

The tasks do not read it: they unpack the bundle itself, which nobody can change. So people may do with these
copies what they like, and a job never waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection

from openpaisdk.errors import PaiError
from openpaisdk.protocol import Job, read_job
from openpaisdk.protocol.layout import source_folder
from openpaisdk.protocol.states import framework_name
from paicluster.api.files import Files
from paicluster.files import Person
from paicluster.files.unpacking import Unpacked, remove_marked
from paicluster.store import Store, jobs
from paicluster.store.rows import JobRow, JobSpecRow

log = logging.getLogger("paicluster.files")

# A few small files are there before the job is answered for; a large folder comes after.
_PATIENCE_S = 0.02


class Laying:
    """The files of one job on their way: unpacked aside while the job is taken in, placed when it is."""

    def __init__(self, files: Files, bundle: Path, path: str, framework: str, who: Person):
        self._files = files
        self._framework = framework
        self._folder = Unpacked(files.storage, path, who)
        self._filling = asyncio.ensure_future(files.run(self._folder.fill, bundle))

    async def place(self) -> None:
        """Once the job is there; a refusal says why it could not be done."""
        try:
            await self._filling
            await self._files.run(self._folder.place, self._framework)
        finally:
            await self._files.run(self._folder.drop)

    async def take_back(self) -> None:
        await self._files.run(remove_marked, self._files.storage, self._folder.path, self._framework)

    async def drop(self) -> None:
        """The job was refused, or is there already."""
        await asyncio.gather(self._filling, return_exceptions=True)
        await self._files.run(self._folder.drop)


class Layings:
    """All that are under way."""

    def __init__(self, files: Files, store: Store, sources: Path):
        self._files = files
        self._store = store
        self._sources = sources
        self._under_way: set[asyncio.Task[None]] = set()

    def begin(self, job: Job, who: Person) -> Laying | None:
        """None for a job that brings no files."""
        bundle = job.additions.sources
        if bundle is None:
            return None
        path = source_folder(job, who.name)
        framework = framework_name(who.name, job.name)
        try:
            return Laying(self._files, self._sources / f"{bundle.sha256}.tar", path, framework, who)
        except PaiError as error:
            # Such a path has no place on the storage; results will say so, too.
            log.info("the files of %s are not laid out: %s", framework, error)
            return None

    async def finish(self, laying: Laying, job_id: int) -> None:
        """Place what was begun; what takes longer goes on by itself."""
        task = asyncio.create_task(self._place(laying, job_id))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.wait([task], timeout=_PATIENCE_S)

    def drop(self, laying: Laying) -> None:
        task = asyncio.create_task(laying.drop())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _place(self, laying: Laying, job_id: int) -> None:
        try:
            await laying.place()
            if await self._store.read(lambda conn: jobs.get_job_by_id(conn, job_id)) is None:
                await laying.take_back()  # it was deleted sooner than this was done
        except PaiError as error:
            words = (
                f"Its source files are not on the storage (the job has them all the same): {error.message}"
            )
            now_ms = int(time.time() * 1000)
            await self._store.write(
                lambda conn: jobs.add_event(
                    conn,
                    job_id,
                    type="Normal",
                    reason="SourcesNotKept",
                    message=words,
                    now_ms=now_ms,
                    source="cluster",
                )
            )

    async def close(self) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way)

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
            await self._files.run(self._remove, row, spec)

    def _remove(self, row: JobRow, spec: JobSpecRow) -> None:
        try:
            job = read_job(spec.job, stored=True)
            if job.additions.sources is not None:
                remove_marked(self._files.storage, source_folder(job, row.username), row.framework)
        except (PaiError, OSError) as error:
            log.warning("the files of %s could not be removed: %s", row.framework, error)
