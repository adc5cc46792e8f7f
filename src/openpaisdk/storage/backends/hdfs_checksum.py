"""Verification of transfers from and to an HDFS: its file checksum is compared with one computed on this
side.

The checksum's name says over how many bytes the CRCs go and how many of them form a block.
"""

from __future__ import annotations

import re
import threading
import zlib

from openpaisdk.storage.backends.base import PART_BYTES
from paiprotocol.transfer.hdfs_checksum import BlockChecksum
from paiprotocol.transfer.ranges import read_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.storage.backends.base import Chunks, SourceFile, TargetFile
    from openpaisdk.storage.file_info import Checksum

_NAME = re.compile(r"MD5-of-(\d{1,9})MD5-of-(\d{1,9})CRC32(C?)")
_READ_BYTES = 1 << 20
# Threads are never that far ahead of each other: with more ranges than this waiting for an earlier one, that
# one will not come, and the CRCs of the others would fill the memory.
_MAX_EARLY_RANGES = 64


class ChecksumComparison:
    """Comparison of what arrived at one storage with what left another, where single ranges are not verified.

    The HDFS is asked for its checksum. The other end's checksum is computed from its file when this machine
    has it open, otherwise from the bytes as they pass. A storage whose checksum could not be compared is not
    asked.
    """

    def __init__(self, source: SourceFile | None, target: TargetFile | None):
        """``source`` or ``target``: None if it is a stream."""
        self._source = source if source is not None and source.supports_checksum else None
        self._target = target if target is not None and target.supports_checksum else None
        self._fd = -1
        self._reported: Checksum | None = None
        self._incremental: IncrementalChecksum | None = None
        if (self._source is None) == (self._target is None):
            return
        other = target if self._source is not None else source
        self._fd = other.fileno() if other is not None else -1
        if self._fd >= 0:
            return
        if self._source is not None:
            self._reported = self._source.checksum()
            algorithm = self._reported.algorithm if self._reported is not None else ""
        else:
            algorithm = self._target.checksum_type() if self._target is not None else ""
        self._incremental = incremental_checksum(algorithm)

    def observe(self, offset: int, chunks: Chunks) -> Chunks:
        """Pass a range through, from a multiple of `PART_BYTES` on. It counts once `confirm` is called."""
        return chunks if self._incremental is None else self._incremental.observe(offset, chunks)

    def confirm(self, offset: int) -> None:
        """Count the range at this offset, which has arrived."""
        if self._incremental is not None:
            self._incremental.confirm(offset)

    def matches(self, size: int) -> bool | None:
        """Whether the checksums match; None if they cannot be compared, or not every byte passed here."""
        if self._source is not None and self._target is not None:
            first, second = self._source.checksum(), self._target.checksum()
            if first is None or second is None or first.algorithm != second.algorithm:
                return None
            return first.md5 == second.md5
        hdfs = self._source or self._target
        if hdfs is None or (self._fd < 0 and self._incremental is None):
            return None
        reported = self._reported or hdfs.checksum()
        if reported is None:
            return None
        if self._incremental is not None:
            computed = self._incremental.md5(reported.algorithm, size)
        else:
            computed = file_md5(self._fd, size, reported.algorithm)
        return None if computed is None else computed == reported.md5


class IncrementalChecksum:
    """Checksum of ranges that pass in any order."""

    def __init__(self, crcs_per_block: int, bytes_per_crc: int, kind: str, crc: Callable[[memoryview], int]):
        self._crcs_per_block, self._kind = crcs_per_block, kind
        self._checksum = BlockChecksum(crcs_per_block, bytes_per_crc, crc)
        self._lock = threading.Lock()
        # Length and CRCs of ranges that were read, and of confirmed ones that wait for an earlier range.
        self._observed: dict[int, tuple[int, bytes]] = {}
        self._early: dict[int, tuple[int, bytes]] = {}
        self._position = 0

    def observe(self, offset: int, chunks: Chunks) -> Chunks:
        step, length, rest = self._checksum.bytes_per_crc, 0, b""
        crcs = bytearray()
        for chunk in chunks:
            data = memoryview(rest + chunk) if rest else memoryview(chunk)
            whole = len(data) // step * step
            crcs += self._checksum.pack_crcs(data[:whole])
            rest = bytes(data[whole:])
            length += len(chunk)
            yield chunk
        self._observed[offset] = (length, bytes(crcs + self._checksum.pack_crcs(memoryview(rest))))

    def confirm(self, offset: int) -> None:
        with self._lock:
            self._early[offset] = self._observed.pop(offset, (0, b""))
            while following := self._early.pop(self._position, None):
                length, crcs = following
                if not length:
                    return
                self._position += length
                self._checksum.add(crcs)
            if len(self._early) > _MAX_EARLY_RANGES:
                self._early.clear()
                self._position = -1

    def md5(self, algorithm: str, size: int) -> str | None:
        """The checksum, if every byte passed and the algorithm is the same. Call it once."""
        name = _NAME.fullmatch(algorithm)
        if name is None or self._position != size:
            return None
        if (int(name[2]), name[3]) != (self._checksum.bytes_per_crc, self._kind):
            return None
        blocks, digest = self._checksum.finish()
        # The name of a checksum of a single block has 0 for the block length.
        if int(name[1]) != self._crcs_per_block and (int(name[1]) or blocks > 1):
            return None
        return digest.hex()


def incremental_checksum(algorithm: str) -> IncrementalChecksum | None:
    """Checksum of this algorithm; None for an unknown one, or when parts do not begin where its CRCs do."""
    name = _NAME.fullmatch(algorithm)
    crc = _crc(name[3]) if name else None
    if name is None or crc is None or not int(name[2]) or PART_BYTES % int(name[2]):
        return None
    return IncrementalChecksum(int(name[1]), int(name[2]), name[3], crc)


def file_md5(fd: int, size: int, algorithm: str) -> str | None:
    """HDFS checksum of an open file of this machine; None for an unknown algorithm."""
    checksum = incremental_checksum(algorithm)
    if checksum is None:
        return None
    for at in range(0, size, PART_BYTES):
        for _ in checksum.observe(at, _read(fd, at, min(PART_BYTES, size - at))):
            pass
        checksum.confirm(at)
    return checksum.md5(algorithm, size)


def _read(fd: int, at: int, length: int) -> Chunks:
    buffer = memoryview(bytearray(min(length, _READ_BYTES)))
    while length > 0 and (got := read_at(fd, buffer[:length], at)):
        yield buffer[:got]
        at += got
        length -= got


def _crc(kind: str) -> Callable[[memoryview], int] | None:
    if not kind:
        return zlib.crc32
    try:
        from crc32c import crc32c
    except ImportError:
        return None
    return crc32c
