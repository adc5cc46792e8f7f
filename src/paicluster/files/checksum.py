"""The checksum Hadoop gives a file: the MD5 of the MD5s, block by block, of the CRC32C of every 512 bytes."""

from __future__ import annotations

import hashlib
import os
import struct

from crc32c import crc32c

BLOCK_SIZE = 128 << 20
CHUNK = 512
_READ = 1 << 20


def file_checksum(fd: int, size: int) -> tuple[str, bytes]:
    """The algorithm's name and the checksum, as Hadoop writes them, of ``size`` bytes of an open file."""
    whole = hashlib.md5(usedforsecurity=False)
    at = 0
    while at < size:
        end = min(at + BLOCK_SIZE, size)
        whole.update(_block(fd, at, end))
        at = end
    # Only where there is more than one block does it matter how many CRCs each has.
    per_block = BLOCK_SIZE // CHUNK if size > BLOCK_SIZE else 0
    name = f"MD5-of-{per_block}MD5-of-{CHUNK}CRC32C"
    return name, struct.pack(">iq", CHUNK, per_block) + whole.digest()


def _block(fd: int, at: int, end: int) -> bytes:
    block = hashlib.md5(usedforsecurity=False)
    while at < end:
        data = memoryview(os.pread(fd, min(_READ, end - at), at))
        if not data:
            break
        at += len(data)
        sums = [crc32c(data[i : i + CHUNK]) for i in range(0, len(data), CHUNK)]
        block.update(struct.pack(f">{len(sums)}I", *sums))
    return block.digest()
