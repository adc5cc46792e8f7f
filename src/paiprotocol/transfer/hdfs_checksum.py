"""HDFS file checksum: the MD5 over the MD5s, one per block, of the CRCs of every so many bytes.

The client verifies transfers with it, the server answers GETFILECHECKSUM with it. The CRC function is passed
in: CRC32C needs a package that a client may lack.
"""

from __future__ import annotations

import hashlib
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CRC_BYTES = 4
_MIN_BUFFER_BYTES = 32


class BlockChecksum:
    """Checksum of a file whose bytes, or their CRCs, are added in order.

    With ``crcs_per_block`` 0 the whole file is one block.
    """

    def __init__(self, crcs_per_block: int, bytes_per_crc: int, crc: Callable[[memoryview], int]):
        self.bytes_per_crc = bytes_per_crc
        self._block_bytes = crcs_per_block * CRC_BYTES
        self._crc = crc
        self._digests: list[bytes] = []
        self._block = hashlib.md5(usedforsecurity=False)
        self._in_block = 0

    def pack_crcs(self, data: memoryview) -> bytes:
        """CRCs of consecutive bytes; all but the last one cover ``bytes_per_crc`` of them."""
        step = self.bytes_per_crc
        crcs = [self._crc(data[i : i + step]) for i in range(0, len(data), step)]
        return struct.pack(f">{len(crcs)}I", *crcs)

    def add(self, crcs: bytes) -> None:
        """Add the next CRCs, as ``pack_crcs`` returns them."""
        remaining = memoryview(crcs)
        while remaining:
            some = remaining[: self._block_bytes - self._in_block] if self._block_bytes else remaining
            self._block.update(some)
            self._in_block += len(some)
            if self._in_block == self._block_bytes:
                self._end_block()
            remaining = remaining[len(some) :]

    def _end_block(self) -> None:
        self._digests.append(self._block.digest())
        self._block = hashlib.md5(usedforsecurity=False)
        self._in_block = 0

    def finish(self) -> tuple[int, bytes]:
        """The number of blocks and the checksum. Call it once, after the last ``add``."""
        if self._in_block:
            self._end_block()
        # Hadoop takes the MD5 of the whole buffer that collects the block digests; it doubles from 32 bytes.
        digests = b"".join(self._digests)
        size = _MIN_BUFFER_BYTES
        while size < len(digests):
            size *= 2
        padded = digests.ljust(size, b"\0")
        return len(self._digests), hashlib.md5(padded, usedforsecurity=False).digest()
