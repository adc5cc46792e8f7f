"""Journal of stop requests that could not be written to the database; works on a full disk, too."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
from pathlib import Path

log = logging.getLogger("paicluster.controller")

_ENTRY_BYTES = 16  # divides a sector: an entry is written whole or not at all, whatever happens
_MAX_ENTRIES = 256
_JOB_ID = re.compile(rb"[0-9]{1,15}")


class StopJournal:
    """Job ids in a preallocated file: overwriting it needs no free disk space."""

    def __init__(self, path: Path | None = None):
        self._path = path
        self.jobs: set[int] = set()
        # Requests are concurrent and threads overtake each other; under a lock the last one writes all.
        self._write_lock = asyncio.Lock()

    def open(self) -> None:
        """Load the stops that the previous server could not write."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):  # `add` then fails: no stop is accepted that could get lost
            content = self._path.read_bytes() if self._path.exists() else b""
            self.jobs = {int(entry) for entry in content.split() if _JOB_ID.fullmatch(entry)}
            if len(content) != _ENTRY_BYTES * _MAX_ENTRIES:
                self._path.write_bytes(self._content())

    async def add(self, job_id: int) -> None:
        """Add a stop. OSError: it could not be written and is not recorded."""
        if len(self.jobs) >= _MAX_ENTRIES:
            raise OSError(errno.ENOSPC, "too many journaled stops")
        self.jobs.add(job_id)
        try:
            await self._write()
        except OSError:
            self.jobs.discard(job_id)
            raise

    async def discard(self, job_id: int) -> None:
        """Remove a stop that is in the database now. Stops are idempotent: writing one twice does no harm."""
        self.jobs.discard(job_id)
        try:
            await self._write()
        except OSError as error:
            log.warning("Cannot write the stop journal: %s", error)

    def _content(self) -> bytes:
        entries = "".join(f"{job_id:<{_ENTRY_BYTES}}" for job_id in sorted(self.jobs))
        return entries.ljust(_ENTRY_BYTES * _MAX_ENTRIES).encode()

    async def _write(self) -> None:
        if self._path is None:
            return
        async with self._write_lock:
            await asyncio.to_thread(_overwrite, self._path, self._content())


def _overwrite(path: Path, content: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())
