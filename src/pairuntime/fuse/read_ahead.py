"""Read-ahead: blocks of a remote file, several at the same time, for a program that reads in order."""

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from pairuntime.fuse.file_system import OpenFile

BLOCK_BYTES = 2 << 20
BLOCKS_AHEAD = 4
"""Blocks that are fetched at once: one connection each."""
_KEPT_BLOCKS = BLOCKS_AHEAD + 2
# Reads of the kernel arrive in any order; a smaller step than this still is a program that reads in order.
_IN_ORDER_BYTES = 1 << 20


class ReadAhead:
    """A file's blocks: those that were read last, and those that will be needed next.

    Random reads fetch exactly what they ask for.
    """

    def __init__(self, source: "OpenFile", pool: "ThreadPoolExecutor") -> "None":
        self._source = source
        self._pool = pool
        self._lock = threading.Lock()
        self._blocks = OrderedDict()  # type: OrderedDict[int, Future[bytes]]
        self._expected = 0

    def read(self, offset: "int", length: "int") -> "bytes":
        length = min(length, self._source.size - offset)
        if length <= 0:
            return b""
        first, last = offset // BLOCK_BYTES, (offset + length - 1) // BLOCK_BYTES
        with self._lock:
            is_in_order = abs(offset - self._expected) <= _IN_ORDER_BYTES
            self._expected = offset + length
            if not is_in_order and not all(n in self._blocks for n in range(first, last + 1)):
                blocks = None
            else:
                blocks = [self._block(n) for n in range(first, last + 1)]
                if is_in_order:
                    for n in range(last + 1, last + 1 + BLOCKS_AHEAD):
                        if n * BLOCK_BYTES < self._source.size:
                            self._block(n)
                while len(self._blocks) > _KEPT_BLOCKS + len(blocks):
                    self._blocks.popitem(last=False)
        if blocks is None:
            return self._source.read(offset, length)
        start = offset - first * BLOCK_BYTES
        if len(blocks) == 1:
            return self._content(first, blocks[0])[start : start + length]
        content = b"".join(self._content(first + i, block) for i, block in enumerate(blocks))
        return content[start : start + length]

    def _block(self, number: "int") -> "Future[bytes]":
        block = self._blocks.pop(number, None)
        if block is None:
            block = self._pool.submit(self._fetch, number)
        self._blocks[number] = block
        return block

    def _fetch(self, number: "int") -> "bytes":
        at = number * BLOCK_BYTES
        return self._source.read(at, min(BLOCK_BYTES, self._source.size - at))

    def _content(self, number: "int", block: "Future[bytes]") -> "bytes":
        try:
            return block.result()
        except Exception:
            with self._lock:  # the next read tries again
                if self._blocks.get(number) is block:
                    del self._blocks[number]
            raise

    def close(self) -> "None":
        with self._lock:
            blocks, self._blocks = self._blocks, OrderedDict()
        for block in blocks.values():
            block.cancel()
