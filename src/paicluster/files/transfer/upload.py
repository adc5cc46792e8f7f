"""Resumable multipart upload of one large file: parts in any order; received parts survive client and server.

Beside the bytes there is a journal: the upload request, then a line for each complete part. Parts written
since the machine booted are trusted; older ones count only if their hash still matches, because a crash of
the machine may have lost bytes.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from paicluster.files import StagedFile, StorageUser
from paicluster.files.errors import disk_errors
from paiprotocol.errors import JOB_CONFLICT, Conflict, InvalidParameters, PaiError
from paiprotocol.transfer import hashing
from paiprotocol.transfer.pack_format import FIRST_NS, LAST_NS
from paiprotocol.transfer.ranges import hash_range, reserve, write_at

# Bounds the memory for the state of the parts, about 30 MB. Our client's parts of 32 MiB make 4 TiB.
_MAX_PARTS = 1 << 17
# A part may be sent again, but not so often that the journal fills the disk.
_MAX_EXTRA_LINES = 1000
# Large enough that writing to allocated blocks pays, small enough that a client which sends a byte and waits
# holds little.
_ALLOCATION_BYTES = 8 << 20
# A process that the server is just starting has all of the server's descriptors for a moment.
_CLOSE_TIMEOUT_S = 0.5
_CLOSE_POLL_INTERVAL_S = 0.005
_FD_PASSED = "fd-passed"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class UploadRequest(msgspec.Struct, frozen=True):
    """Announcement of an upload. ``key`` identifies the content; ``size`` -1 means not known yet.

    Without ``overwrite`` it fails when the path already exists.
    """

    path: str
    key: str
    size: int = -1
    mtime: int = 0
    mode: int = 0o644
    hash: str = hashing.XXH3
    part_bytes: int = msgspec.field(default=16 << 20, name="partBytes")
    storage: str = ""
    overwrite: bool = True

    def check(self) -> None:
        hashing.hasher(self.hash)
        if not 1 << 16 <= self.part_bytes <= 1 << 30 or not self.key or self.size < -1:
            raise InvalidParameters("An upload needs a key, a size and a part size of 64 KiB to 1 GiB.")
        if self.size > self.part_bytes * _MAX_PARTS:
            raise InvalidParameters(f"An upload has at most {_MAX_PARTS} parts.")

    def check_part(self, offset: int, length: int) -> None:
        """InvalidParameters unless this is a part of the file."""
        if not self.has_part(offset, length):
            raise InvalidParameters(
                f"A part begins at a multiple of {self.part_bytes} bytes, has at most that many bytes, "
                "and ends within the file."
            )

    def has_part(self, offset: int, length: int) -> bool:
        if not 0 <= offset < self.part_bytes * _MAX_PARTS or offset % self.part_bytes:
            return False
        return 0 <= length <= self.part_bytes and (self.size < 0 or offset + length <= self.size)


class JournalHeader(msgspec.Struct, frozen=True):
    """First line of a journal. ``generation`` distinguishes successive uploads of the same file."""

    request: UploadRequest
    generation: str


class Upload:
    """An open upload. `UploadRegistry` ensures that it is not closed while a request uses it."""

    def __init__(self, staged: StagedFile, journal: int, head: JournalHeader, user: StorageUser, key: str):
        self.staged = staged
        self.request = head.request
        self.user = user
        self.id = key + head.generation
        self.users = 0
        self.last_used = time.monotonic()
        self._parts: dict[int, tuple[int, str]] = {}
        self._is_fd_passed = False
        self._is_rejected = False
        self._lines = 0
        # Protects the state of the parts.
        self._lock = threading.Lock()
        # The kernel allows one writer per file at a time: others would spin on a CPU.
        self._write_lock = threading.Lock()
        self._journal = journal
        # Where the allocated steps of parts begin.
        self._allocated: set[int] = set()

    def describe(self) -> dict[str, object]:
        """Response to the begin request: the id and the hashes of the parts received so far."""
        with self._lock:
            return {
                "id": self.id,
                "have": {str(offset): digest for offset, (_, digest) in self._parts.items()},
            }

    def write(self, at: int, data: bytes | memoryview, part: range) -> None:
        """Write bytes of a part at a position of the file.

        Disk space is allocated in steps as bytes arrive: an announced part alone takes nothing.
        """
        for step in range(at - (at - part.start) % _ALLOCATION_BYTES, at + len(data), _ALLOCATION_BYTES):
            self._allocate(step, min(part.stop, step + _ALLOCATION_BYTES) - step)
        with disk_errors(self.request.path), self._write_lock:
            write_at(self.staged.fd, data, at)

    def _allocate(self, start: int, length: int) -> None:
        """Allocate a step of a part and count its bytes, unless that was done."""
        with self._lock:
            if start in self._allocated:
                return
            self._allocated.add(start)
        try:
            self.staged.grow(length)
            with disk_errors(self.request.path):
                reserve(self.staged.fd, start, length)
        except BaseException:
            with self._lock:
                self._allocated.discard(start)
            raise

    def record_part(self, offset: int, length: int, digest: bytes) -> None:
        """Journal a complete part whose hash was verified."""
        if len(digest) != hashing.DIGEST_BYTES:
            raise InvalidParameters(f"A hash has {hashing.DIGEST_BYTES} bytes, not {len(digest)}.")
        self.request.check_part(offset, length)
        self._add_part(offset, length, digest.hex())

    def _add_part(self, offset: int, length: int, digest: str) -> None:
        with disk_errors(self.request.path), self._lock:
            if self._parts.get(offset) == (length, digest):
                return
            if self._lines > 4 * len(self._parts) + _MAX_EXTRA_LINES:
                raise Conflict(
                    f"The parts of {self.request.path} were sent too often with different content.",
                    code=JOB_CONFLICT,
                )
            os.write(self._journal, f"{offset} {length} {digest} {BOOT_ID} .\n".encode())
            self._lines += 1
            self._parts[offset] = (length, digest)

    def dup_fd(self) -> int:
        """Descriptor for writing, to be passed to a client and closed here.

        Not shared with other requests.
        """
        with disk_errors(self.request.path), self._lock:
            if not self._is_fd_passed:
                # Journaled before the client has it: the server that finishes the upload, perhaps after a
                # restart, must know.
                os.write(self._journal, _FD_PASSED.encode() + b"\n")
                self._is_fd_passed = True
            return os.dup(self.staged.fd)

    def reject(self) -> None:
        """More was written than was announced: the file was emptied, and is not published."""
        self._is_rejected = True

    def resume(self, lines: list[str]) -> dict[int, tuple[int, str]]:
        """Load the journal. Returns the parts that must be verified by their hash first."""
        unverified: dict[int, tuple[int, str]] = {}
        self._lines = len(lines)
        for line in lines:
            fields = line.split(" ")
            if line == _FD_PASSED:
                self._is_fd_passed = True
            elif len(fields) == 5 and fields[4] == "." and fields[0].isdecimal() and fields[1].isdecimal():
                offset, length, digest = int(fields[0]), int(fields[1]), fields[2]
                if not self.request.has_part(offset, length):
                    continue
                # The last line about a part counts.
                unverified.pop(offset, None)
                self._parts.pop(offset, None)
                if fields[3] == BOOT_ID:
                    self._parts[offset] = (length, digest)
                else:
                    unverified[offset] = (length, digest)
        return unverified

    def has_journaled_bytes(self, unverified: dict[int, tuple[int, str]]) -> bool:
        """Whether the journal records any received bytes."""
        return any(length for part in (self._parts, unverified) for length, _ in part.values())

    def verify(self, unverified: dict[int, tuple[int, str]]) -> None:
        """Hash parts written before the last boot; matching ones are journaled, so that it is done once."""
        for offset, (length, digest) in unverified.items():
            if digest == hash_range(self.staged.fd, offset, length, self.request.hash).hex():
                self._add_part(offset, length, digest)

    def finish(
        self, size: int, mtime: int | None, digest: str, close_timeout_s: float = _CLOSE_TIMEOUT_S
    ) -> None:
        """Publish the file if it is complete and matches ``digest``. No other request uses the upload."""
        if mtime is not None and not FIRST_NS <= mtime <= LAST_NS:
            raise InvalidParameters(
                f"The modification time of {self.request.path} is beyond the years 1677 to 2262."
            )
        with disk_errors(self.request.path):
            received = 0
            digests = []
            for offset in sorted(self._parts):
                length, part_digest = self._parts[offset]
                if offset != received:
                    break
                received += length
                digests.append(part_digest)
            if received != size or self.request.size not in (-1, size):
                raise Conflict(
                    f"Only {received} of {size} bytes of {self.request.path} have arrived.",
                    code="IncompleteFileError",
                )
            if digest:
                whole = hashing.combine([bytes.fromhex(part) for part in digests], self.request.hash)
                if whole.hex() != digest:
                    raise InvalidParameters(
                        f"The received content of {self.request.path} does not match its hash.",
                        code="IncompleteFileError",
                    )
            if self._is_oversized():
                self._reject_oversized(size)
            os.ftruncate(self.staged.fd, size)
            self._ensure_no_writer(close_timeout_s)
            if self.staged.size != size:  # written until its descriptor was closed
                self._reject_oversized(size)
            if mtime is not None:
                os.utime(self.staged.fd, ns=(mtime, mtime))
        self.staged.commit()

    def _is_oversized(self) -> bool:
        """Whether more was written through a passed descriptor than was announced, and admitted."""
        return self._is_rejected or 0 <= self.request.size < self.staged.size

    def _reject_oversized(self, size: int) -> NoReturn:
        self.staged.abandon()
        raise InvalidParameters(
            f"More than the announced {size} bytes of {self.request.path} were written: they were deleted."
        )

    def _ensure_no_writer(self, timeout_s: float) -> None:
        """Conflict while another process has the file open for writing: a published file must not change.

        The kernel grants a read lease only on a file that no process has open for writing.
        """
        fd = self.staged.fd
        read_fd = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(read_fd, fd, inheritable=False)
        os.close(read_fd)
        deadline = time.monotonic() + timeout_s
        while not self._has_no_other_writer():
            if time.monotonic() > deadline:
                raise Conflict(
                    f"{self.request.path} is still open for writing: close the passed file descriptor first.",
                    code="StillOpenError",
                )
            time.sleep(_CLOSE_POLL_INTERVAL_S)

    def _has_no_other_writer(self) -> bool:
        fd = self.staged.fd
        try:
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            return False
        except OSError:
            # A file system without leases, or a network file system.
            if self._is_fd_passed:
                raise PaiError(
                    f"The file system of {self.request.path} cannot report open writers."
                ) from None
        return True

    def suspend(self) -> None:
        """Close it; the received parts stay, to be resumed later. An oversized file is deleted."""
        if self.staged.fd >= 0 and self._is_oversized():
            self.staged.abandon()
        self.staged.suspend()
        self._close_journal()

    def abandon(self) -> None:
        self.staged.abandon()
        self._close_journal()

    def _close_journal(self) -> None:
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1
