"""Files on their way through a descriptor: open on this machine, be they its own or handed over."""

from __future__ import annotations

import os
import threading

from openpaisdk.fileio import hashing
from openpaisdk.fileio.ranges import read_at, reserve, write_at
from openpaisdk.storage.backends.base import CHUNK, SourceFile, TargetFile, changed, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Chunks


class _OpenFile:
    fd = -1

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class DescriptorSource(_OpenFile, SourceFile):
    what: str

    def chunks(self, offset: int, length: int) -> Chunks:
        buffer = memoryview(bytearray(min(CHUNK, length) or 1))
        while length > 0:
            got = read_at(self.fd, buffer[: min(len(buffer), length)], offset)
            if not got:
                raise changed(self.what, "became shorter")
            yield buffer[:got]
            offset += got
            length -= got


class DescriptorTarget(_OpenFile, TargetFile):
    what: str

    def __init__(self) -> None:
        # The kernel lets one write to a file at a time: the others would wait for him on a processor.
        self._writing = threading.Lock()

    def write(self, offset: int, length: int, chunks: Chunks, source: SourceFile | None) -> None:
        """Put a range where it belongs, and ``mark`` it. What its source proves is not hashed again."""
        prover = source if source is not None and source.proves(self.algorithm) else None
        made = hashing.hasher(self.algorithm)()
        at = offset
        try:
            reserve(self.fd, offset, length)
            for chunk in chunks:
                if prover is None:
                    made.update(chunk)
                with self._writing:
                    write_at(self.fd, chunk, at)
                at += len(chunk)
            if length >= 0 and at != offset + length:
                raise changed(self.what, "was cut")
            self.mark(offset, at - offset, made.digest() if prover is None else prover.proof(offset, length))
        except OSError as e:
            raise refused(self.what, e) from None


def copy_hashed(
    source: int, target: int, offset: int, length: int, algorithm: str, turn: threading.Lock
) -> tuple[int, bytes]:
    """A range from one open file to another: how much there was, and the hash of the very bytes written.

    Block by block, while the block is in the processor's cache: so it takes hardly longer than letting the
    kernel copy it, and hashing afterwards would be one more way through memory. ``turn`` is for those who
    write to the same file: the kernel lets one at a time, and the others would wait for him on a processor.
    """
    made = hashing.hasher(algorithm)()
    buffer = memoryview(bytearray(min(CHUNK, length)))
    reserve(target, offset, length)
    done = 0
    while done < length:
        got = read_at(source, buffer[: length - done], offset + done)
        if not got:
            break
        made.update(buffer[:got])
        with turn:
            write_at(target, buffer[:got], offset + done)
        done += got
    return done, made.digest()
