"""The checksum an HDFS keeps of a file, made here too: what arrived there, or came from there, was sent so.

It is the MD5 of the MD5s, block by block, of the CRCs of every so many bytes; its name says of how many.
"""

from __future__ import annotations

import hashlib
import re
import struct
import threading
import zlib

from openpaisdk.fileio.ranges import read_at
from openpaisdk.storage.backends.base import PART_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.storage.backends.base import Chunks, SourceFile, TargetFile

_NAME = re.compile(r"MD5-of-(\d{1,9})MD5-of-(\d{1,9})CRC32(C?)")
_SMALLEST_BUFFER = 32
_CRC_BYTES = 4
_READ = 1 << 20
# Threads are not that far ahead of each other: what should come first does not come, and all that is kept of
# the others would fill the memory.
_MOST_EARLY = 64
# Before the MD5 come the two numbers that are in the name too.
_MD5 = slice(24, 56)


class Checksum:
    """As an HDFS tells it."""

    __slots__ = ("algorithm", "md5")

    def __init__(self, algorithm: str, told: str):
        self.algorithm = algorithm
        self.md5 = told[_MD5].lower()


class ChecksumComparison:
    """Whether what arrived at one storage is what left another, where its ranges are not proven one by one.

    An HDFS is asked what it has; the other end's checksum is made from its file, where this machine has it
    open, and otherwise from the bytes as they go by. Nobody is asked whose answer could not be compared.
    """

    def __init__(self, outgoing: SourceFile | None, incoming: TargetFile | None):
        """None is a stream."""
        self._outgoing = outgoing if outgoing is not None and outgoing.sums else None
        self._incoming = incoming if incoming is not None and incoming.sums else None
        self._file = -1
        self._told: Checksum | None = None
        self._running: IncrementalChecksum | None = None
        if (self._outgoing is None) == (self._incoming is None):
            return
        other = incoming if self._outgoing is not None else outgoing
        self._file = other.fileno() if other is not None else -1
        if self._file >= 0:
            return
        if self._outgoing is not None:
            self._told = self._outgoing.checksum()
            algorithm = self._told.algorithm if self._told is not None else ""
        else:
            algorithm = self._incoming.checksum_type() if self._incoming is not None else ""
        self._running = running(algorithm)

    def seen(self, offset: int, chunks: Chunks) -> Chunks:
        """A range on its way, from a multiple of `PART_BYTES` on. That it counts is said by `arrived`."""
        return chunks if self._running is None else self._running.seen(offset, chunks)

    def arrived(self, offset: int) -> None:
        if self._running is not None:
            self._running.arrived(offset)

    def is_same(self, size: int) -> bool | None:
        """None when nobody can be asked, the answers cannot be compared, or not all of it went by here."""
        if self._outgoing is not None and self._incoming is not None:
            here, there = self._outgoing.checksum(), self._incoming.checksum()
            if here is None or there is None or here.algorithm != there.algorithm:
                return None
            return here.md5 == there.md5
        asked = self._outgoing or self._incoming
        if asked is None or (self._file < 0 and self._running is None):
            return None
        told = self._told or asked.checksum()
        if told is None:
            return None
        if self._running is not None:
            found = self._running.md5(told.algorithm, size)
        else:
            found = md5_of(self._file, size, told.algorithm)
        return None if found is None else found == told.md5


class IncrementalChecksum:
    """A checksum made of ranges that go by, in any order."""

    def __init__(self, per_block: int, step: int, kind: str, crc: Callable[[memoryview], int]):
        self._per_block, self._step, self._kind = per_block, step, kind
        self._crc = crc
        self._lock = threading.Lock()
        # Length and CRCs of ranges that were read, and of those that have arrived before their turn.
        self._seen: dict[int, tuple[int, bytes]] = {}
        self._early: dict[int, tuple[int, bytes]] = {}
        self._at = 0
        self._blocks: list[bytes] = []
        self._block = hashlib.md5(usedforsecurity=False)
        self._in_block = 0

    def seen(self, offset: int, chunks: Chunks) -> Chunks:
        step, length, rest = self._step, 0, b""
        sums = bytearray()
        for chunk in chunks:
            data = memoryview(rest + chunk) if rest else memoryview(chunk)
            whole = len(data) // step * step
            sums += self._sums(data[:whole])
            rest = bytes(data[whole:])
            length += len(chunk)
            yield chunk
        self._seen[offset] = (length, bytes(sums + self._sums(memoryview(rest))))

    def _sums(self, data: memoryview) -> bytes:
        sums = [self._crc(data[i : i + self._step]) for i in range(0, len(data), self._step)]
        return struct.pack(f">{len(sums)}I", *sums)

    def arrived(self, offset: int) -> None:
        with self._lock:
            self._early[offset] = self._seen.pop(offset, (0, b""))
            while found := self._early.pop(self._at, None):
                length, sums = found
                if not length:
                    return
                self._at += length
                self._gather(memoryview(sums))
            if len(self._early) > _MOST_EARLY:
                self._early.clear()
                self._at = -1

    def _gather(self, sums: memoryview) -> None:
        room = self._per_block * _CRC_BYTES
        while sums:
            some = sums[: room - self._in_block] if room else sums
            self._block.update(some)
            self._in_block += len(some)
            if self._in_block == room:
                self._end_block()
            sums = sums[len(some) :]

    def _end_block(self) -> None:
        self._blocks.append(self._block.digest())
        self._block = hashlib.md5(usedforsecurity=False)
        self._in_block = 0

    def md5(self, algorithm: str, size: int) -> str | None:
        """The checksum, if all of it went by and that is its name; asked once."""
        name = _NAME.fullmatch(algorithm)
        if name is None or self._at != size or (int(name[2]), name[3]) != (self._step, self._kind):
            return None
        if self._in_block:
            self._end_block()
        # Where there is only one block its length is not told.
        if int(name[1]) != self._per_block and (int(name[1]) or len(self._blocks) > 1):
            return None
        # Hadoop takes the MD5 of the whole buffer it gathered these in, which doubles from 32 bytes.
        gathered = b"".join(self._blocks)
        room = _SMALLEST_BUFFER
        while room < len(gathered):
            room *= 2
        return hashlib.md5(gathered.ljust(room, b"\0"), usedforsecurity=False).hexdigest()


def running(algorithm: str) -> IncrementalChecksum | None:
    """None where we do not know how, or ranges do not begin where its pieces do."""
    name = _NAME.fullmatch(algorithm)
    crc = _crc(name[3]) if name else None
    if name is None or crc is None or not int(name[2]) or PART_BYTES % int(name[2]):
        return None
    return IncrementalChecksum(int(name[1]), int(name[2]), name[3], crc)


def md5_of(fd: int, size: int, algorithm: str) -> str | None:
    """What a file of this machine would have as its checksum; None where we do not know how."""
    made = running(algorithm)
    if made is None:
        return None
    for at in range(0, size, PART_BYTES):
        for _ in made.seen(at, _read(fd, at, min(PART_BYTES, size - at))):
            pass
        made.arrived(at)
    return made.md5(algorithm, size)


def _read(fd: int, at: int, length: int) -> Chunks:
    buffer = memoryview(bytearray(min(length, _READ)))
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
