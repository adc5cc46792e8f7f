"""Stops that the database could not take, kept where also a full disk takes them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from pathlib import Path

log = logging.getLogger("paicluster.controller")

_ENTRY = 16  # a part of a sector: an entry is there or it is not, whatever happens meanwhile
_ENTRIES = 256


class StopJournal:
    """Jobs in a file that has its size from the beginning: to write over it needs no room."""

    def __init__(self, path: Path | None = None):
        self._path = path
        self.jobs: set[int] = set()
        # The last to write has all: stops come from several people at once, and threads overtake each other.
        self._turn = asyncio.Lock()

    def open(self) -> None:
        """Take up what a server before us could not write."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):  # then no stop is taken that could get lost
            known = self._path.read_bytes() if self._path.exists() else b""
            self.jobs = {int(entry) for entry in known.split() if entry.isdigit()}
            if len(known) != _ENTRY * _ENTRIES:
                self._path.write_bytes(self._content())

    async def add(self, job_id: int) -> None:
        """OSError: it could not be kept, and is not noted."""
        if len(self.jobs) >= _ENTRIES:
            raise OSError(errno.ENOSPC, "too many stops that could not be written")
        self.jobs.add(job_id)
        try:
            await self._keep()
        except OSError:
            self.jobs.discard(job_id)
            raise

    async def discard(self, job_id: int) -> None:
        """The database knows it now. A stop that is told twice does no harm."""
        self.jobs.discard(job_id)
        try:
            await self._keep()
        except OSError as error:
            log.warning("The file of stops could not be written: %s", error)

    def _content(self) -> bytes:
        entries = "".join(f"{job_id:<{_ENTRY}}" for job_id in sorted(self.jobs))
        return entries.ljust(_ENTRY * _ENTRIES).encode()

    async def _keep(self) -> None:
        if self._path is None:
            return
        async with self._turn:
            await asyncio.to_thread(_write_over, self._path, self._content())


def _write_over(path: Path, content: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())
