"""Upload of a file whose size is unknown until it ends: from a stream, or written by a program."""

from __future__ import annotations

import os
import time

from openpaisdk.storage.backends.base import content_key, damaged_error
from openpaisdk.storage.backends.hdfs_checksum import ChecksumComparison
from paiprotocol.errors import Conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Backend


class StreamUpload:
    """Upload in order. All pieces but the last are ``PART_BYTES`` long: they are identified by their
    offset."""

    def __init__(self, backend: Backend, path: str, *, overwrite: bool = True):
        now = time.time_ns()
        self._display_path = backend.display_path(path)
        key = content_key(path, now, os.getpid(), id(self))
        self._target = backend.create(path, (-1, now, 0o644), key, overwrite=overwrite)
        self._comparison = ChecksumComparison(None, self._target)
        self.size = 0

    def add(self, piece: bytes | memoryview) -> None:
        """Upload a piece; when this returns, its memory may be used for the next one."""
        at = self.size
        self._target.put(at, len(piece), lambda: self._comparison.observe(at, iter((piece,))))
        self._comparison.confirm(at)
        self.size += len(piece)

    def finish(self) -> None:
        """Replace the target, if the storage's checksum matches what was sent."""
        if self.size == 0:
            self.add(b"")
        if self._comparison.matches(self.size) is False:
            self.abandon()
            raise damaged_error(self._display_path)
        try:
            self._target.finish(self.size)
        except Conflict:
            self.abandon()
            raise

    def abandon(self) -> None:
        self._target.abandon()


__all__ = ["StreamUpload"]
