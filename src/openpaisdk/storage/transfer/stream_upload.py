"""A file that comes piece by piece, and nobody knows yet how long it will be: from a stream, or a program."""

from __future__ import annotations

import os
import time

from openpaisdk.errors import Conflict
from openpaisdk.storage.backends.base import damaged, key_of
from openpaisdk.storage.backends.hdfs_checksum import ChecksumComparison

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Backend


class StreamUpload:
    """All pieces but the last are ``PART_BYTES`` long: they are told apart by where they begin."""

    def __init__(self, backend: Backend, path: str, *, replacing: bool = True):
        now = time.time_ns()
        self._shown = backend.shown(path)
        key = key_of(path, now, os.getpid(), id(self))
        self._incoming = backend.create(path, (-1, now, 0o644), key, replacing=replacing)
        self._comparison = ChecksumComparison(None, self._incoming)
        self.size = 0

    def add(self, piece: bytes) -> None:
        at = self.size
        self._incoming.put(at, len(piece), lambda: self._comparison.seen(at, iter((piece,))))
        self._comparison.arrived(at)
        self.size += len(piece)

    def finish(self) -> None:
        """It takes its place, if its storage has what was sent."""
        if self.size == 0:
            self.add(b"")
        if self._comparison.is_same(self.size) is False:
            self.abandon()
            raise damaged(self._shown)
        try:
            self._incoming.finish(self.size)
        except Conflict:
            self.abandon()
            raise

    def abandon(self) -> None:
        self._incoming.abandon()


__all__ = ["StreamUpload"]
