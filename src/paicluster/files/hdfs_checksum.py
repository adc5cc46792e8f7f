"""Hadoop's file checksum of a stored file, with CRC32C over 512 bytes and blocks of 128 MiB."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

from crc32c import crc32c

from paicluster.files.errors import storage_failure
from paiprotocol.transfer.hdfs_checksum import BlockChecksum

BLOCK_SIZE = 128 << 20
BYTES_PER_CRC = 512
_READ_BYTES = 1 << 20


def file_checksum(
    fd: int, size: int, stop: Callable[[], bool] = lambda: False, *, block_size: int = BLOCK_SIZE
) -> tuple[str, bytes]:
    """The algorithm's name and the checksum, as Hadoop writes them, of ``size`` bytes of an open file.

    ``stop`` is called between reads: True cancels the computation.
    """
    crcs_per_block = block_size // BYTES_PER_CRC
    checksum = BlockChecksum(crcs_per_block, BYTES_PER_CRC, crc32c)
    at = 0
    while at < size:
        if stop():
            raise storage_failure("The checksum was cancelled: the client disconnected.")
        data = os.pread(fd, min(_READ_BYTES, size - at), at)
        if not data:
            break
        at += len(data)
        checksum.add(checksum.pack_crcs(memoryview(data)))
    blocks, digest = checksum.finish()
    if not size:
        return "MD5-of-0MD5-of-0CRC32", struct.pack(">iq", 0, 0) + digest
    # The block length is given only when there is more than one block.
    per_block = crcs_per_block if blocks > 1 else 0
    return f"MD5-of-{per_block}MD5-of-{BYTES_PER_CRC}CRC32C", struct.pack(
        ">iq", BYTES_PER_CRC, per_block
    ) + digest
