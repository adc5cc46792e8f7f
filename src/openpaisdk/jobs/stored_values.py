"""Deletion of calls, results and values of functions whose jobs are deleted.

The folder of a job belongs to it alone. Values are shared: each job that uses some has a file with their
names, and a value is deleted with the last job that names it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from paiprotocol.errors import NotFound

if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient
    from openpaisdk.jobs.function_files import FunctionFiles

VALUES = "values"
_REFERENCES = "values"
"""In the folder of a job: the names of the values that it uses."""


class StoredValues:
    """The folder of all functions of a user on one cluster."""

    def __init__(self, client: ClusterClient, files: FunctionFiles, folder: str):
        self._client = client
        self._files = files
        self._folder = folder

    def refer(self, job: str, paths: Iterable[str]) -> list[str]:
        """Note the values that a job uses, before it is submitted; returns those that are gone."""
        names = sorted({path.rpartition("/")[2] for path in paths})
        if not names:
            return []
        self._files.write(f"{self._folder}/{job}/{_REFERENCES}", "\n".join(names).encode())
        # After the note: a deletion that has not seen it has deleted them by now.
        present = set(self._files.names(f"{self._folder}/{VALUES}"))
        return [f"{self._folder}/{VALUES}/{name}" for name in names if name not in present]

    def share(self, job: str, other: str) -> bool:
        """Note that another job uses the values of a job; returns whether some are gone."""
        return bool(self.refer(other, self._references(job)))

    def delete_of(self, jobs: Iterable[str]) -> int:
        """Delete what deleted jobs left; returns the number of values that went with them."""
        released: set[str] = set()
        for job in jobs:
            released |= self._references(job)
            self._files.delete(f"{self._folder}/{job}")
        if not released:
            return 0
        for job in self._jobs():
            released -= self._references(job)
        for name in released:
            self._files.delete(f"{self._folder}/{VALUES}/{name}")
        return len(released)

    def delete_orphans(self, min_age_s: float) -> list[str]:
        """Delete what jobs left that the cluster no longer has; returns their names."""
        before_ns = time.time_ns() - int(min_age_s * 1e9)
        old = self._files.names(self._folder, older_than_ns=before_ns)
        gone = [job for job in old if job != VALUES and not self._exists(job)]
        self.delete_of(gone)
        return gone

    def _jobs(self) -> list[str]:
        return [name for name in self._files.names(self._folder) if name != VALUES]

    def _exists(self, job: str) -> bool:
        try:
            self._client.job(job)
        except NotFound:
            return False
        return True

    def _references(self, job: str) -> set[str]:
        return set((self._files.read(f"{self._folder}/{job}/{_REFERENCES}") or b"").decode().split())
