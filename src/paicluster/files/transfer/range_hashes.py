"""The hash that comes after a range of a file, remembered: what many fetch is read and hashed once.

Sending takes less than half of the processor time then: the kernel sends what nobody has to look at.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from openpaisdk.fileio import hashing

# With our client's parts these are 64 GiB, in a few MB of memory.
_MOST = 4096
# A clock may stand still for some milliseconds: a file written just now could be written again unnoticed.
_SETTLED_NS = 1_000_000_000


class _Range(NamedTuple):
    """Another content of the same file has another time: ctime is the kernel's own, nobody sets it."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    offset: int
    length: int
    algorithm: str


class RangeHashCache:
    """Those of the ranges that were sent last. For the event loop alone."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._digests: dict[_Range, bytes] = {}

    def get(self, of: _Range) -> bytes | None:
        found = self._digests.pop(of, None)
        if found is not None:
            self._digests[of] = found  # as the newest
        return found

    def keep(self, of: _Range, digest: bytes) -> None:
        self._digests.pop(of, None)
        self._digests[of] = digest
        if len(self._digests) > self._most:
            del self._digests[next(iter(self._digests))]


class RangeHash:
    """The hash of one range of an open file: remembered, or made (``made``) while the range is sent."""

    def __init__(
        self,
        proofs: RangeHashCache,
        fd: int,
        offset: int,
        length: int,
        algorithm: str,
        *,
        fresh: bool = False,
    ):
        """``fresh``: somebody found that bytes and hash do not belong together, so it is made anew."""
        self._proofs = proofs
        self._range = _range(fd, offset, length, algorithm)
        self._is_settled = self._range.ctime_ns < time.time_ns() - _SETTLED_NS
        self._known = None if fresh else proofs.get(self._range)
        self.made = hashing.hasher(algorithm)() if self._known is None else None

    def digest(self, fd: int) -> bytes:
        """Once all of the range was sent."""
        if self._known is not None or self.made is None:
            return self._known or b""
        digest = self.made.digest()
        now = _range(fd, self._range.offset, self._range.length, self._range.algorithm)
        if self._is_settled and now == self._range:
            self._proofs.keep(self._range, digest)
        return digest


def _range(fd: int, offset: int, length: int, algorithm: str) -> _Range:
    found = os.fstat(fd)
    return _Range(
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        offset,
        length,
        algorithm,
    )
