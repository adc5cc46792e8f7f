"""Stops that the database could not take, kept where also a full disk takes them."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

_ENTRY = 16  # a part of a sector: an entry is there or it is not, whatever happens meanwhile
_ENTRIES = 256


class UnwrittenStops:
    """Jobs in a file that has its size from the beginning: to write over it needs no room."""

    def __init__(self, path: Path | None = None):
        self._path = path
        self.jobs: set[int] = set()

    def open(self) -> None:
        """Take up what a server before us could not write."""
        if self._path is None:
            return
        known = self._path.read_bytes() if self._path.exists() else b""
        self.jobs = {int(entry) for entry in known.split() if entry.isdigit()}
        if len(known) != _ENTRY * _ENTRIES:
            with contextlib.suppress(OSError):  # then no stop is taken that could get lost
                self._path.write_bytes(self._content())

    def add(self, job_id: int) -> None:
        if len(self.jobs) >= _ENTRIES:
            raise OSError(errno.ENOSPC, "too many stops that could not be written")
        self.jobs.add(job_id)
        try:
            self._keep()
        except OSError:
            self.jobs.discard(job_id)
            raise

    def discard(self, job_id: int) -> None:
        self.jobs.discard(job_id)
        self._keep()

    def _content(self) -> bytes:
        entries = "".join(f"{job_id:<{_ENTRY}}" for job_id in sorted(self.jobs))
        return entries.ljust(_ENTRY * _ENTRIES).encode()

    def _keep(self) -> None:
        if self._path is not None:
            with self._path.open("r+b", buffering=0) as file:
                file.write(self._content())
                os.fsync(file.fileno())
