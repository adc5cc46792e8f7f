"""Packages of PaddleCloud's jobs as they were at the submission: one folder for each job, deleted with it.

Clients upload a package before they submit the job, so a later upload to the same place, be it for a refused
job, would change the code of one that has not started yet.

A server may die between the copy and the admission of the job. A file for each copy without a job, in a
folder of the server's home, tells the next server what to delete. Copies of other clusters, which may have
the same storage, are not in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec
from sqlalchemy import Connection

from paicluster.files import StorageUser
from paicluster.files.ownership import HOMES
from paicluster.services.file_service import FileService
from paicluster.store import Store, jobs
from paicluster.store.rows import JobRow
from paiprotocol.errors import NotFound, PaiError
from paiprotocol.jobs.states import framework_name

log = logging.getLogger("paicluster.packages")

PACKAGES = "job-packages"
"""Folder of the packages in a user's home."""


class _PaddlePackage(msgspec.Struct):
    package_copy: str = ""


class _PackageExtras(msgspec.Struct):
    paddlecloud: _PaddlePackage | None = None


class _PackagedJob(msgspec.Struct):
    extras: _PackageExtras = msgspec.field(default_factory=_PackageExtras)


_decode = msgspec.json.Decoder(_PackagedJob).decode


def new_folder_name(job: str) -> str:
    """Name of the folder of a job that is being submitted; unlike a job's name it is never used again."""
    return f"{job}.{secrets.token_hex(4)}"


class JobPackages:
    """Packages of jobs. ``unclaimed`` is the folder that lists the copies without a job, and their users."""

    def __init__(self, files: FileService, store: Store, unclaimed: Path):
        self.files = files
        self.store = store
        self._unclaimed = unclaimed
        self._sweep: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Delete, in the background, what an earlier server copied for jobs that it did not admit.

        Call it before the first job is submitted. No name of a folder is used twice.
        """
        unclaimed = await asyncio.to_thread(_read_names, self._unclaimed)
        if unclaimed:
            self._sweep = asyncio.create_task(self._discard_all(unclaimed))

    async def close(self) -> None:
        """Shut down. What is left is deleted by the next server."""
        if self._sweep is not None:
            self._sweep.cancel()
            await asyncio.gather(self._sweep, return_exceptions=True)

    async def keep(self, user: StorageUser, package: str, folder: str) -> None:
        """Copy the package of a job, which costs no bytes, to a new folder of the user.

        It has no job until `claim`; the other way round, a `discard` ends it.
        """
        await asyncio.to_thread(self._write_name, user.name, folder)
        await self.files.run(self.files.storage.copy_tree, package, _path(user.name, folder), user)

    async def claim(self, folder: str) -> None:
        """Record that a job with this package was admitted."""
        await asyncio.to_thread(self._forget_name, folder)

    async def discard(self, username: str, folder: str) -> None:
        """Delete the package of a submission that failed, unless a job has it nevertheless."""
        job = folder.rpartition(".")[0]

        def read(conn: Connection) -> JobRow | None:
            return jobs.get_job(conn, framework_name(username, job))

        row = await self.store.read(read)
        is_unused = row is None or await self._folder_of(row.id) != folder
        if not is_unused or await self._delete(username, folder):
            await self.claim(folder)

    async def _discard_all(self, packages: dict[str, str]) -> None:
        for folder, username in packages.items():
            try:
                await self.discard(username, folder)
            except Exception:
                log.exception("Cannot remove the package %s of %s", folder, username)

    def _write_name(self, username: str, folder: str) -> None:
        # Not synced: what a crash of the machine leaves costs no more than the names of the files.
        try:
            self._unclaimed.mkdir(mode=0o700, exist_ok=True)
            (self._unclaimed / folder).write_text(username)
        except OSError as error:
            log.warning("Cannot note that %s has no job yet: %s", folder, error)

    def _forget_name(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            (self._unclaimed / folder).unlink()

    async def remove(self, job_ids: Sequence[int]) -> None:
        """Delete the packages of deleted jobs. Outputs stay: tasks store them in the user's folder, too."""
        for job_id in job_ids:
            if folder := await self._folder_of(job_id):
                row = await self.store.read(lambda conn, job_id=job_id: jobs.get_job_by_id(conn, job_id))  # type: ignore[misc]
                # A copy of a job names the package of the original one.
                if row is not None and folder.startswith(f"{row.name}."):
                    await self._delete(row.username, folder)

    async def _folder_of(self, job_id: int) -> str:
        spec = await self.store.read(lambda conn: jobs.job_spec(conn, job_id))
        if spec is None or PACKAGES not in spec.job:
            return ""
        try:
            paddle = _decode(spec.job).extras.paddlecloud
        except msgspec.DecodeError:
            # A user's own `extras.paddlecloud`.
            return ""
        parent, _, folder = (paddle.package_copy if paddle is not None else "").rpartition("/")
        return folder if parent.endswith(f"/{PACKAGES}") else ""

    async def _delete(self, username: str, folder: str) -> bool:
        """Delete a package; whether it is gone."""
        storage = self.files.storage
        try:
            path = _path(username, folder)
            await self.files.run(storage.delete, path, StorageUser(username), recursive=True)
        except NotFound:
            pass
        except PaiError as error:
            log.warning("Cannot remove the package %s of %s: %s", folder, username, error)
            return False
        return True


def _read_names(folder: Path) -> dict[str, str]:
    """Users by folder name, from the files of a folder; a file that a crash left empty names no user."""
    try:
        files = list(folder.iterdir())
    except FileNotFoundError:
        return {}
    users: dict[str, str] = {}
    for file in files:
        try:
            users[file.name] = file.read_text()
        except (OSError, ValueError) as error:  # what is no note of ours is no reason not to start
            log.warning("Cannot read which user's package %s is: %s", file, error)
    return {name: user for name, user in users.items() if user}


def _path(username: str, folder: str) -> str:
    return f"/{HOMES}/{username}/{PACKAGES}/{folder}"
