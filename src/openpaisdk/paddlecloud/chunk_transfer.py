"""Transfer of one file in chunks: only those whose MD5 sums differ are sent, so a repeated command resumes.

Several threads, each with a connection, work on different chunks: while one waits for the server's sum,
another computes its own. MD5 and sockets release the interpreter lock.

A download is written beside its target and renamed at the end. So is the upload of a new file, where the
datacenter can rename. A file that exists is changed in place: a copy of it, to change that, would cost more
than what is saved by sending only the changes. PaddleCloud's own servers cannot rename: there new files, too,
have their whole size from the beginning.
"""

from __future__ import annotations

import hashlib
import os
import threading

from openpaisdk.paddlecloud.multipart import SourceChanged, changed_during_copy
from openpaisdk.paddlecloud.worker_threads import share_work
from paiprotocol.errors import ConnectionFailed, NotFound, PaiError
from paiprotocol.transfer.ranges import read_at, write_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.paddlecloud.pfs_client import ChunkSum, PfsClient, PfsFile

    Advance = Callable[[int], None]

DEFAULT_CHUNK_BYTES = 4 << 20
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 4 << 10, 32 << 20
"""What servers accept."""
MAX_THREADS = 4
MAX_BUFFERED_BYTES = 32 << 20
"""Chunks of all threads together: servers limit what the requests of one user may take of their memory."""
MAX_SEND_ATTEMPTS = 3
"""Attempts to send a chunk that arrives with another sum: further ones would not help."""
PARTIAL = ".paddle-part"
"""Suffix of an unfinished file."""


class TransferCount:
    """What a transfer did: chunks compared and chunks sent."""

    __slots__ = ("chunks", "sent")

    def __init__(self) -> None:
        self.chunks = 0
        self.sent = 0


def upload(
    pfs: PfsClient,
    source: str,
    target: str,
    existing: PfsFile | None,
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    advance: Advance | None = None,
) -> TransferCount:
    """Upload a file to a path whose folder exists. ``existing`` is the file that is there now."""
    if existing is not None or not pfs.can_rename(target):
        return _upload_to(pfs, source, target, existing, chunk_bytes, advance)
    partial = target + PARTIAL
    try:
        count = _upload_to(pfs, source, partial, pfs.stat(partial), chunk_bytes, advance)
        pfs.rename(partial, target)
    except NotFound:
        # Another command uploads the same file, and was faster.
        existing = pfs.stat(target)
        if existing is None:
            raise
        return _upload_to(pfs, source, target, existing, chunk_bytes, None)
    return count


def _upload_to(
    pfs: PfsClient,
    source: str,
    target: str,
    existing: PfsFile | None,
    chunk_bytes: int,
    advance: Advance | None,
) -> TransferCount:
    fd = os.open(source, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        before = os.fstat(fd)
        size = before.st_size
        if existing is None or existing.size != size:
            pfs.allocate(target, size)
        work = _Upload(fd, source, target, size, is_new=existing is None)
        try:
            count = _run(pfs, size, chunk_bytes, work.transfer_chunk, advance)
            after = os.fstat(fd)
            if (after.st_size, after.st_mtime_ns) != (size, before.st_mtime_ns):
                raise changed_during_copy(source)
        except SourceChanged:
            if existing is None or target.endswith(PARTIAL):  # half of a file must not stay behind
                pfs.remove(target, recursive=False)
            raise
        return count
    finally:
        os.close(fd)


def download(
    pfs: PfsClient,
    source: PfsFile,
    target: str,
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    advance: Advance | None = None,
) -> TransferCount:
    """Download a file. The target is replaced when everything has arrived; until then it stays as it is."""
    partial = target + PARTIAL
    old = _open_existing(target)
    is_resumed = os.path.exists(partial)
    fd = os.open(partial, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    try:
        os.ftruncate(fd, source.size)
        work = _Download(fd, old, source.path, is_resumed=is_resumed)
        count = _run(pfs, source.size, chunk_bytes, work.transfer_chunk, advance)
        # A single chunk is consistent in itself.
        if count.chunks > 1 and not _is_unchanged(pfs.stat(source.path), source):
            raise changed_during_copy(source.path)
        is_same = old is not None and not count.sent and not is_resumed
        if is_same and old is not None and os.fstat(old).st_size == source.size:
            _remove(partial)
            return count
        work.copy_unchanged()
        if old is not None and hasattr(os, "fchmod"):
            os.fchmod(fd, os.fstat(old).st_mode & 0o7777)
        written = os.fstat(fd)
        os.close(fd)
        fd = -1
        if old is not None:
            os.close(old)  # Windows replaces no open file
            old = None
        _complete(partial, target, written)
        return count
    finally:
        for opened in (fd, old):
            if opened is not None and opened >= 0:
                os.close(opened)


def _complete(partial: str, target: str, written: os.stat_result) -> None:
    """Give a downloaded file its name."""
    try:
        os.replace(partial, target)
    except FileNotFoundError:
        # Another command has written the same file, and was faster.
        try:
            is_complete = os.path.samestat(written, os.stat(target))
        except FileNotFoundError:
            is_complete = False
        if not is_complete:
            raise PaiError(
                f"Another command copies to {target} at the same time.", hint="Run this one again."
            ) from None


def _remove(partial: str) -> None:
    try:
        os.unlink(partial)
    except FileNotFoundError:
        pass  # by another command


class _Upload:
    def __init__(self, fd: int, source: str, target: str, size: int, *, is_new: bool):
        self._fd = fd
        self._source = source
        self._target = target
        self._size = size
        self._is_new = is_new

    def transfer_chunk(self, pfs: PfsClient, offset: int, buffer: memoryview) -> bool:
        """Send one chunk unless the cloud has it; returns whether it was sent."""
        if _read_all(self._fd, buffer, offset) != len(buffer):
            raise changed_during_copy(self._source)
        # All bytes of a new file are zero: asking for its sums would only make the server compute them.
        if self._is_new and _is_zero(buffer):
            return False
        md5 = _md5(buffer)
        if not self._is_new and _is_equal(pfs.chunk_sum(self._target, offset, _asked(buffer)), buffer, md5):
            return False
        for _ in range(MAX_SEND_ATTEMPTS):
            pfs.write_chunk(self._target, offset, buffer)
            # Requests carry no checksum: only the server's sum tells whether the chunk arrived as it is.
            if _is_equal(pfs.chunk_sum(self._target, offset, _asked(buffer)), buffer, md5):
                return True
        raise ConnectionFailed(
            f"{self._source} does not arrive in {self._target} as it was sent: the checksums differ.",
            hint="Another command may write to the same file. Run the command again.",
        )


class _Download:
    def __init__(self, fd: int, old: int | None, source: str, *, is_resumed: bool):
        self._fd = fd
        self._old = old
        self._source = source
        self._is_resumed = is_resumed
        self._unchanged: list[tuple[int, int]] = []

    def transfer_chunk(self, pfs: PfsClient, offset: int, buffer: memoryview) -> bool:
        """Fetch one chunk unless it is on this machine; returns whether it was fetched."""
        expected = pfs.chunk_sum(self._source, offset, _asked(buffer))
        if expected.length < len(buffer):
            raise changed_during_copy(self._source)
        if self._is_resumed and self._matches(self._fd, expected, offset, buffer):
            return False
        if self._old is not None and self._matches(self._old, expected, offset, buffer):
            self._unchanged.append((offset, len(buffer)))
            return False
        for _ in range(MAX_SEND_ATTEMPTS):
            got = pfs.read_chunk(self._source, offset, buffer)
            if got == len(buffer) and _is_equal(expected, buffer, _md5(buffer)):
                write_at(self._fd, buffer, offset)
                return True
            expected = pfs.chunk_sum(self._source, offset, _asked(buffer))
        raise ConnectionFailed(
            f"{self._source} does not arrive as the datacenter has it: the checksums differ.",
            hint="It may be written at this moment. Run the command again.",
        )

    def copy_unchanged(self) -> None:
        """Complete the new file with what the old one has."""
        assert self._old is not None or not self._unchanged
        for offset, length in self._unchanged:
            buffer = memoryview(bytearray(length))
            if self._old is not None and _read_all(self._old, buffer, offset) == length:
                write_at(self._fd, buffer, offset)

    @staticmethod
    def _matches(fd: int, expected: ChunkSum, offset: int, buffer: memoryview) -> bool:
        return _read_all(fd, buffer, offset) == len(buffer) and _is_equal(expected, buffer, _md5(buffer))


def _run(
    pfs: PfsClient,
    size: int,
    chunk_bytes: int,
    transfer_chunk: Callable[[PfsClient, int, memoryview], bool],
    advance: Advance | None,
) -> TransferCount:
    threads = min(MAX_THREADS, MAX_BUFFERED_BYTES // chunk_bytes, -(-size // chunk_bytes)) or 1
    clients = [pfs, *(pfs.with_own_connection() for _ in range(threads - 1))]
    owned = [(own, memoryview(bytearray(min(chunk_bytes, size)))) for own in clients]
    count = TransferCount()
    lock = threading.Lock()

    def work(own: tuple[PfsClient, memoryview], offset: int) -> None:
        client, buffer = own
        length = min(chunk_bytes, size - offset)
        was_sent = transfer_chunk(client, offset, buffer[:length])
        with lock:
            count.chunks += 1
            count.sent += was_sent
            if advance is not None:
                advance(length)

    try:
        share_work(range(0, size, chunk_bytes), owned, work)
    finally:
        for client in clients[1:]:
            client.close()
    return count


def _is_unchanged(now: PfsFile | None, before: PfsFile) -> bool:
    return now is not None and (now.size, now.mtime_ns) == (before.size, before.mtime_ns)


def _open_existing(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        return None


def _read_all(fd: int, buffer: memoryview, offset: int) -> int:
    """Fill the buffer unless the file ends before."""
    filled = 0
    while filled < len(buffer) and (got := read_at(fd, buffer[filled:], offset + filled)):
        filled += got
    return filled


def _is_zero(buffer: memoryview) -> bool:
    # The first bytes almost always decide; comparing copies is much faster than comparing views.
    return not any(buffer[:64]) and bytes(buffer) == bytes(len(buffer))


def _md5(data: bytes | memoryview) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _asked(buffer: memoryview) -> int:
    """Size of the range whose sum is requested: a chunk at the end may be shorter than servers accept."""
    return max(len(buffer), MIN_CHUNK_BYTES)


def _is_equal(stored: ChunkSum, buffer: memoryview, md5: str) -> bool:
    return stored.length == len(buffer) and stored.md5 == md5
