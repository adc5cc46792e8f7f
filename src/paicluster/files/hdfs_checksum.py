"""HDFS file checksum: MD5 of the blocks' MD5s of the CRC32C of every 512 bytes."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable

from crc32c import crc32c

from paicluster.files.errors import storage_failure

BLOCK_SIZE = 128 << 20
CHUNK = 512
_READ = 1 << 20
_SMALLEST_BUFFER = 32


def file_checksum(fd: int, size: int, stop: Callable[[], bool] = lambda: False) -> tuple[str, bytes]:
    """Name of the algorithm and checksum in Hadoop's format, of ``size`` bytes of an open file.

    ``stop`` is called repeatedly; true cancels the checksum.
    """
    blocks = [_block(fd, at, min(at + BLOCK_SIZE, size), stop) for at in range(0, size, BLOCK_SIZE)]
    # Hadoop takes the MD5 of the whole buffer it gathered these in, which doubles from 32 bytes.
    gathered = b"".join(blocks)
    room = _SMALLEST_BUFFER
    while room < len(gathered):
        room *= 2
    digest = hashlib.md5(gathered.ljust(room, b"\0"), usedforsecurity=False).digest()
    if not size:
        return "MD5-of-0MD5-of-0CRC32", struct.pack(">iq", 0, 0) + digest
    # Only where there is more than one block does it matter how many CRCs each has.
    per_block = BLOCK_SIZE // CHUNK if len(blocks) > 1 else 0
    return f"MD5-of-{per_block}MD5-of-{CHUNK}CRC32C", struct.pack(">iq", CHUNK, per_block) + digest


def _block(fd: int, at: int, end: int, stop: Callable[[], bool]) -> bytes:
    block = hashlib.md5(usedforsecurity=False)
    while at < end:
        if stop():
            raise storage_failure("The checksum was cancelled: the client disconnected.")
        data = memoryview(os.pread(fd, min(_READ, end - at), at))
        if not data:
            break
        at += len(data)
        sums = [crc32c(data[i : i + CHUNK]) for i in range(0, len(data), CHUNK)]
        block.update(struct.pack(f">{len(sums)}I", *sums))
    return block.digest()
