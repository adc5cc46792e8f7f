"""One large file on its way in: parts in any order, and what has arrived outlives both sides.

Beside the bytes lies a journal: first what is being sent, then a line for each part that is whole. What was
written since the machine was started is there; older parts count only if their hash is still right.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import msgspec

from openpaisdk.errors import JOB_CONFLICT, Conflict, InvalidParameters, PaiError
from openpaisdk.fileio import hashing
from openpaisdk.fileio.ranges import digest_of, reserve, write_at
from paicluster.files import Staged, StorageUser
from paicluster.files.errors import disk_errors

# More would fill the memory with what is known of them; with our client's parts it is 8 TiB.
_MOST_PARTS = 1 << 20
# A part may be sent again, but not so often that the journal fills the disk.
_MORE_LINES = 1000
# A process that is just being started has all our files for a moment.
_STARTING_S = 0.5
_HANDED = "handed over"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class UploadRequest(msgspec.Struct, frozen=True):
    """What a client says it will send. ``key`` names the very content; ``size`` -1 is not known yet.

    Without ``overwrite`` it is refused its place where another file was there first.
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
            raise InvalidParameters("An upload needs a key, a size and parts of 64 KiB to 1 GiB.")
        if self.size > self.part_bytes * _MOST_PARTS:
            raise InvalidParameters(f"An upload has {_MOST_PARTS} parts at most.")

    def check_part(self, offset: int, length: int) -> None:
        """Refuse what is no part of this file."""
        if not self.has_part(offset, length):
            raise InvalidParameters(
                f"Parts begin at a multiple of {self.part_bytes}, have so many bytes at most, "
                "and none goes beyond the file."
            )

    def has_part(self, offset: int, length: int) -> bool:
        if not 0 <= offset < self.part_bytes * _MOST_PARTS or offset % self.part_bytes:
            return False
        return 0 <= length <= self.part_bytes and (self.size < 0 or offset + length <= self.size)


class JournalHeader(msgspec.Struct, frozen=True):
    """How a journal begins. ``life`` tells an upload from one that is begun later for the same file."""

    about: UploadRequest
    life: str


class Upload:
    """Open. `Uploads` sees to it that nobody closes it while somebody is at it."""

    def __init__(self, staged: Staged, journal: int, head: JournalHeader, who: StorageUser, ident: str):
        self.staged = staged
        self.about = head.about
        self.who = who
        self.id = ident + head.life
        self.users = 0
        self.used = time.monotonic()
        self._have: dict[int, tuple[int, str]] = {}
        self._is_handed = False
        self._lines = 0
        # For what is known of it.
        self._lock = threading.Lock()
        # The kernel lets one write to a file at a time: the others would wait for him on a processor.
        self._writing = threading.Lock()
        self._journal = journal

    def described(self) -> dict[str, object]:
        """What a client is told when it begins: what has arrived."""
        with self._lock:
            return {"id": self.id, "have": {str(at): said for at, (_, said) in self._have.items()}}

    def expect(self, offset: int, length: int) -> None:
        """A part is on its way: make room for it."""
        with disk_errors(self.about.path):
            reserve(self.staged.fd, offset, length)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put bytes where they belong."""
        with disk_errors(self.about.path), self._writing:
            write_at(self.staged.fd, data, offset)

    def arrived(self, offset: int, length: int, digest: bytes) -> None:
        """One part is whole, and its hash is right."""
        if len(digest) != hashing.SIZE:
            raise InvalidParameters(f"A hash has {hashing.SIZE} bytes, not {len(digest)}.")
        self.about.check_part(offset, length)
        self._note(offset, length, digest.hex())

    def _note(self, offset: int, length: int, said: str) -> None:
        with disk_errors(self.about.path), self._lock:
            if self._have.get(offset) == (length, said):
                return
            if self._lines > 4 * len(self._have) + _MORE_LINES:
                raise Conflict(
                    f"The parts of {self.about.path} came in too many versions.", code=JOB_CONFLICT
                )
            os.write(self._journal, f"{offset} {length} {said} {BOOT_ID} .\n".encode())
            self._lines += 1
            self._have[offset] = (length, said)

    def handed_over(self) -> int:
        """The file, open for writing, to be given away and closed here. Its number is nobody else's."""
        with disk_errors(self.about.path), self._lock:
            if not self._is_handed:
                # Before anybody has it: whoever finishes, perhaps another server, must know.
                os.write(self._journal, _HANDED.encode() + b"\n")
                self._is_handed = True
            return os.dup(self.staged.fd)

    def resume(self, lines: list[str]) -> dict[int, tuple[int, str]]:
        """Believe the journal as far as it can be; what is returned is there only if `verify` finds it."""
        doubtful: dict[int, tuple[int, str]] = {}
        self._lines = len(lines)
        for line in lines:
            fields = line.split(" ")
            if line == _HANDED:
                self._is_handed = True
            elif len(fields) == 5 and fields[4] == "." and fields[0].isdecimal() and fields[1].isdecimal():
                offset, length, said = int(fields[0]), int(fields[1]), fields[2]
                if not self.about.has_part(offset, length):
                    continue
                # The last line about a part is the one that counts.
                doubtful.pop(offset, None)
                self._have.pop(offset, None)
                if fields[3] == BOOT_ID:
                    self._have[offset] = (length, said)
                else:
                    doubtful[offset] = (length, said)
        return doubtful

    def claims_bytes(self, doubtful: dict[int, tuple[int, str]]) -> bool:
        """Whether its journal says that anything has arrived."""
        return any(length for part in (self._have, doubtful) for length, _ in part.values())

    def verify(self, doubtful: dict[int, tuple[int, str]]) -> None:
        """Read what was written before the machine was started anew; noted, so that it is done once."""
        for offset, (length, said) in doubtful.items():
            if said == digest_of(self.staged.fd, offset, length, self.about.hash).hex():
                self._note(offset, length, said)

    def finish(self, size: int, mtime: int | None, digest: str) -> None:
        """Take the target's place, if everything is there and is what was sent. Nobody else is at it."""
        with disk_errors(self.about.path):
            at = 0
            digests = []
            for offset in sorted(self._have):
                length, said = self._have[offset]
                if offset != at:
                    break
                at += length
                digests.append(said)
            if at != size or self.about.size not in (-1, size):
                raise Conflict(
                    f"Only {at} of {size} bytes of {self.about.path} have arrived.",
                    code="IncompleteFileError",
                )
            if digest:
                whole = hashing.combine([bytes.fromhex(each) for each in digests], self.about.hash)
                if whole.hex() != digest:
                    raise InvalidParameters(
                        f"What arrived of {self.about.path} is not what was sent.", code="IncompleteFileError"
                    )
            os.ftruncate(self.staged.fd, size)
            self._take_back()
            if mtime is not None:
                os.utime(self.staged.fd, ns=(mtime, mtime))
        self.staged.commit()

    def _take_back(self) -> None:
        """Nobody may write to a file that has its place: the kernel tells whether anybody still could.

        A read lease is given only on a file that no process has open for writing.
        """
        fd = self.staged.fd
        reading = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(reading, fd, inheritable=False)
        os.close(reading)
        ends = time.monotonic() + _STARTING_S
        while not self._is_ours_alone():
            if time.monotonic() > ends:
                raise Conflict(
                    f"{self.about.path} is still open for writing: close what was handed over first.",
                    code="StillOpenError",
                )
            time.sleep(0.005)

    def _is_ours_alone(self) -> bool:
        fd = self.staged.fd
        try:
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            return False
        except OSError:
            # A disk without leases, or one that is not on this machine.
            if self._is_handed:
                raise PaiError(f"The disk of {self.about.path} cannot tell who writes to it.") from None
        return True

    def suspend(self) -> None:
        """Close it; what has arrived stays for whoever comes back."""
        self.staged.suspend()
        self._close_journal()

    def abandon(self) -> None:
        self.staged.abandon()
        self._close_journal()

    def _close_journal(self) -> None:
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1
