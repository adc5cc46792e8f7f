"""Source and target files with a file descriptor on this machine: local files, and files passed by the
cluster."""

from __future__ import annotations

import os
import threading

from openpaisdk.storage.backends.base import (
    CHUNK_BYTES,
    SourceFile,
    TargetFile,
    changed_error,
    error_from_oserror,
)
from paiprotocol.transfer import hashing
from paiprotocol.transfer.ranges import read_at, reserve, write_at

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
        buffer = memoryview(bytearray(min(CHUNK_BYTES, length) or 1))
        while length > 0:
            try:
                got = read_at(self.fd, buffer[: min(len(buffer), length)], offset)
            except OSError as e:  # here, where the file's name is known: the reader may write another one
                raise error_from_oserror(self.what, e) from None
            if not got:
                raise changed_error(self.what, "became shorter")
            yield buffer[:got]
            offset += got
            length -= got


class DescriptorTarget(_OpenFile, TargetFile):
    what: str
    needs_digests = True
    """Whether ``mark_written`` uses the hash of a range."""

    def __init__(self) -> None:
        # The kernel serialises writes to one file, and waiting threads would spin on a processor.
        self._write_lock = threading.Lock()

    def write(self, offset: int, length: int, chunks: Chunks, source: SourceFile | None) -> None:
        """Write a range and call ``mark_written``. A range verified by its source is not hashed again."""
        verified_source = source if source is not None and source.provides_digests(self.algorithm) else None
        digest = hashing.hasher(self.algorithm)()
        at = offset
        try:
            reserve(self.fd, offset, length)
            for chunk in chunks:
                if verified_source is None and self.needs_digests:
                    digest.update(chunk)
                with self._write_lock:
                    write_at(self.fd, chunk, at)
                at += len(chunk)
            if length >= 0 and at != offset + length:
                raise changed_error(self.what, "was truncated")
            self.mark_written(
                offset,
                at - offset,
                digest.digest() if verified_source is None else verified_source.range_digest(offset, length),
            )
        except OSError as e:
            raise error_from_oserror(self.what, e) from None


def copy_hashed(
    source: int,
    target: int,
    offset: int,
    length: int,
    algorithm: str,
    write_lock: threading.Lock,
    source_name: str,
) -> tuple[int, bytes]:
    """Copy a range between open files: the number of bytes copied, and the hash of the bytes written.

    An OSError is one of the target; one of the source is a PaiError with ``source_name``.

    Block by block, while the block is in the processor's cache: that takes hardly longer than a copy by the
    kernel, and hashing afterwards would be another pass through memory. Threads writing to the same file
    share ``write_lock``: the kernel serialises their writes, and waiting threads would spin on a processor.
    """
    digest = hashing.hasher(algorithm)()
    buffer = memoryview(bytearray(min(CHUNK_BYTES, length)))
    reserve(target, offset, length)
    done = 0
    while done < length:
        try:
            got = read_at(source, buffer[: length - done], offset + done)
        except OSError as e:
            raise error_from_oserror(source_name, e) from None
        if not got:
            break
        digest.update(buffer[:got])
        with write_lock:
            write_at(target, buffer[:got], offset + done)
        done += got
    return done, digest.digest()
