"""The checksum an HDFS keeps of a file, made here too: what arrived there, or came from there, was sent so.

It is the MD5 of the MD5s, block by block, of the CRCs of every so many bytes; its name says of how many.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib

from openpaisdk.storage.mounted import read_into

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.storage.backend import Incoming, Outgoing

_NAME = re.compile(r"MD5-of-(\d{1,9})MD5-of-(\d{1,9})CRC32(C?)")
_SMALLEST_BUFFER = 32
_READ = 1 << 20
# Before the MD5 come the two numbers that are in the name too.
_MD5 = slice(24, 56)


class Checksum:
    """As an HDFS tells it."""

    __slots__ = ("algorithm", "md5")

    def __init__(self, algorithm: str, told: str):
        self.algorithm = algorithm
        self.md5 = told[_MD5].lower()


def is_same(outgoing: Outgoing, incoming: Incoming) -> bool | None:
    """Whether both ends have the same content; None when neither can be asked, or they cannot be compared."""
    there, here = incoming.checksum(), outgoing.checksum()
    if there is not None and here is not None:
        return there.md5 == here.md5 if there.algorithm == here.algorithm else None
    told = there or here
    fd = outgoing.fileno() if there is not None else incoming.fileno()
    if told is None or fd < 0:
        return None
    found = md5_of(fd, outgoing.size, told.algorithm)
    return None if found is None else found == told.md5


def md5_of(fd: int, size: int, algorithm: str) -> str | None:
    """What a file of this machine would have as its checksum; None where we do not know how."""
    name = _NAME.fullmatch(algorithm)
    crc = _crc(name[3]) if name else None
    if name is None or crc is None or not int(name[2]):
        return None
    step = int(name[2])
    # Where there is only one block its length is not told.
    block = int(name[1]) * step or size
    digests = [_block(fd, at, min(at + block, size), step, crc) for at in range(0, size, block)]
    # Hadoop takes the MD5 of the whole buffer it gathered these in, which doubles from 32 bytes.
    gathered = b"".join(digests)
    room = _SMALLEST_BUFFER
    while room < len(gathered):
        room *= 2
    return hashlib.md5(gathered.ljust(room, b"\0"), usedforsecurity=False).hexdigest()


def _block(fd: int, at: int, end: int, step: int, crc: Callable[[memoryview], int]) -> bytes:
    made = hashlib.md5(usedforsecurity=False)
    buffer = memoryview(bytearray(max(1, _READ // step) * step))
    while at < end:
        got = _filled(fd, buffer[: end - at], at)
        if not got:
            break
        at += got
        data = buffer[:got]
        sums = [crc(data[i : i + step]) for i in range(0, len(data), step)]
        made.update(struct.pack(f">{len(sums)}I", *sums))
    return made.digest()


def _filled(fd: int, buffer: memoryview, at: int) -> int:
    """Only the last piece of a file is shorter than asked for: the CRCs are of pieces of one length."""
    got = 0
    while got < len(buffer) and (more := read_into(fd, buffer[got:], at + got)):
        got += more
    return got


def _crc(kind: str) -> Callable[[memoryview], int] | None:
    if not kind:
        return zlib.crc32
    try:
        from crc32c import crc32c
    except ImportError:
        return None
    return crc32c
