"""Large files on their way in: parts in any order, and what has arrived outlives both sides.

Beside the bytes lies a journal: first what is being sent, then a line for each part that is whole. A part
copied by the kernel has no hash; it counts as there as long as the machine has not been started anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import threading
import time
from pathlib import Path

import msgspec

from openpaisdk.errors import Conflict, InvalidParameters, NotFound, PaiError
from openpaisdk.parcels import hashing
from paicluster.files import Person, Staged, Storage
from paicluster.files.refusals import disk_errors
from paicluster.files.staging import PARTIAL

IDLE_S = 600.0
_JOURNAL = ".parts"
_CHUNK = 1 << 20
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
_BY_KERNEL = f"boot-{BOOT_ID}"


class About(msgspec.Struct, frozen=True):
    """What a client says it will send. ``key`` names the very content; ``size`` -1 is not known yet."""

    path: str
    key: str
    size: int = -1
    mtime: int = 0
    mode: int = 0o644
    hash: str = hashing.XXH3
    part_bytes: int = msgspec.field(default=16 << 20, name="partBytes")
    storage: str = ""


class Upload:
    def __init__(self, staged: Staged, journal: int, about: About, who: Person, ident: str):
        self.staged = staged
        self.about = about
        self.who = who
        self.id = ident
        self.have: dict[int, tuple[int, str]] = {}
        self.used = time.monotonic()
        self.is_handed = False
        self.lock = threading.Lock()
        self._journal = journal

    def write(self, offset: int, pieces: list[bytes]) -> int:
        """Put bytes where they belong; how many."""
        with disk_errors(self.about.path):
            size = sum(map(len, pieces))
            wrote = os.pwritev(self.staged.fd, pieces, offset)
            if wrote < size:
                left = memoryview(b"".join(pieces))[wrote:]
                while left:
                    more = os.pwrite(self.staged.fd, left, offset + wrote)
                    left, wrote = left[more:], wrote + more
            return size

    def arrived(self, offset: int, length: int, digest: bytes | None) -> None:
        """One part is whole."""
        said = digest.hex() if digest is not None else _BY_KERNEL
        with disk_errors(self.about.path), self.lock:
            os.write(self._journal, f"{offset} {length} {said} .\n".encode())
            self.have[offset] = (length, said)
        self.used = time.monotonic()

    def take_up(self, lines: list[str]) -> None:
        """What the journal says is there, as far as it is."""
        for line in lines:
            fields = line.split(" ")
            if len(fields) == 4 and fields[3] == "." and fields[0].isdecimal() and fields[1].isdecimal():
                offset, length = int(fields[0]), int(fields[1])
                if fields[2] == _BY_KERNEL or fields[2] == self._digest(offset, length):
                    self.have[offset] = (length, fields[2])

    def _digest(self, offset: int, length: int) -> str:
        made = hashing.maker(self.about.hash)()
        while length > 0:
            data = os.pread(self.staged.fd, min(_CHUNK, length), offset)
            if not data:
                return ""
            made.update(data)
            offset += len(data)
            length -= len(data)
        return made.digest().hex()

    def finish(self, size: int, mtime: int, digest: str) -> None:
        """Take the target's place, if everything is there and is what was sent."""
        with self.lock, disk_errors(self.about.path):
            at = 0
            digests = []
            for offset in sorted(self.have):
                length, said = self.have[offset]
                if offset != at:
                    break
                at += length
                digests.append(said)
            if at != size or self.about.size not in (-1, size):
                raise Conflict(
                    f"Only {at} of {size} bytes of {self.about.path} have arrived.",
                    code="IncompleteFileError",
                )
            if digest and _BY_KERNEL not in digests:
                whole = hashing.of_parts([bytes.fromhex(each) for each in digests], self.about.hash)
                if whole.hex() != digest:
                    raise InvalidParameters(
                        f"What arrived of {self.about.path} is not what was sent.", code="IncompleteFileError"
                    )
            os.ftruncate(self.staged.fd, size)
            if self.is_handed:
                self._take_back()
            if mtime:
                os.utime(self.staged.fd, ns=(mtime, mtime))
        self.staged.commit()
        self.close()

    def _take_back(self) -> None:
        """Nobody may write to a file that has its place: the kernel tells whether anybody still could.

        A read lease is given only on a file that no process has open for writing.
        """
        fd = self.staged.fd
        self._reopen(os.O_RDONLY)
        try:
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            self._reopen(os.O_RDWR)
            raise Conflict(
                f"{self.about.path} is still open for writing: close what was handed over first.",
                code="StillOpenError",
            ) from None
        except OSError:
            # A disk without leases, or one that is not on this machine: there nothing is handed over.
            raise PaiError(f"The disk of {self.about.path} cannot tell who writes to it.") from None

    def _reopen(self, how: int) -> None:
        """The same file under the same number, open in another way."""
        fd = os.open(f"/proc/self/fd/{self.staged.fd}", how | os.O_CLOEXEC)
        os.dup2(fd, self.staged.fd, inheritable=False)
        os.close(fd)

    def close(self) -> None:
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1

    def suspend(self) -> None:
        self.staged.suspend()
        self.close()


class Uploads:
    """All uploads of one storage: those somebody works on, and those that wait in its folder."""

    def __init__(self, storage: Storage):
        self._storage = storage
        self._active: dict[str, Upload] = {}
        self._lock = threading.Lock()

    def begin(self, about: About, who: Person) -> Upload:
        """Start one, or take up the one that was begun for the same content and the same place."""
        hashing.maker(about.hash)
        if not -1 <= about.size < 1 << 60 or not 1 << 16 <= about.part_bytes <= 1 << 30 or not about.key:
            raise InvalidParameters("An upload needs a key, a size and parts of 64 KiB to 1 GiB.")
        ident = ident_of(about, who)
        with self._lock:
            self._suspend_idle()
            upload = self._active.get(ident)
            if upload is None:
                upload = self._active[ident] = self._opened(about, who, ident)
                if about.size > 0:
                    upload.staged.reserve(about.size)
        upload.used = time.monotonic()
        return upload

    def get(self, ident: str, who: Person) -> Upload:
        """An upload that was begun, also when another server was there then."""
        with self._lock:
            upload = self._active.get(ident)
            if upload is None:
                about = self._about(ident)
                if about is not None and ident_of(about, who) == ident:
                    upload = self._active[ident] = self._opened(about, who, ident)
        if upload is None or upload.who.name != who.name:
            raise NotFound("There is no such upload.", code="NoUploadError", hint="Begin it again.")
        upload.used = time.monotonic()
        return upload

    def finish(self, ident: str, who: Person, size: int, mtime: int, digest: str) -> None:
        upload = self.get(ident, who)
        try:
            upload.finish(size, mtime, digest)
        except PaiError:
            if upload.staged.fd < 0:  # it was refused its place and is gone
                self._forget(ident)
            raise
        self._forget(ident)

    def drop(self, ident: str, who: Person) -> None:
        upload = self.get(ident, who)
        upload.staged.abandon()
        upload.close()
        self._forget(ident)

    def close(self) -> None:
        with self._lock:
            while self._active:
                self._active.popitem()[1].suspend()

    def _forget(self, ident: str) -> None:
        with self._lock:
            self._active.pop(ident, None)
        try:
            os.unlink(ident + _JOURNAL, dir_fd=self._folder)
        except FileNotFoundError:
            pass

    def _suspend_idle(self) -> None:
        oldest = time.monotonic() - IDLE_S
        for ident in [ident for ident, upload in self._active.items() if upload.used < oldest]:
            self._active.pop(ident).suspend()

    @property
    def _folder(self) -> int:
        return self._storage.area.folder(PARTIAL)

    def _about(self, ident: str) -> About | None:
        if not ident.isascii() or not ident.isalnum():
            return None
        try:
            fd = os.open(ident + _JOURNAL, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
            with os.fdopen(fd, "rb") as f:
                return msgspec.json.decode(f.readline(), type=About)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _opened(self, about: About, who: Person, ident: str) -> Upload:
        known = self._about(ident)
        staged = self._storage.stage(about.path, who, overwrite=True, mode=about.mode & 0o777, key=ident)
        journal = -1
        try:
            with disk_errors(about.path):
                if known is None:
                    os.ftruncate(staged.fd, 0)
                flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if known else os.O_TRUNC)
                journal = os.open(ident + _JOURNAL, flags, 0o600, dir_fd=self._folder)
                upload = Upload(staged, journal, about, who, ident)
                if known is None:
                    os.write(journal, msgspec.json.encode(about) + b"\n")
                else:
                    with os.fdopen(os.dup(journal), "rb") as f:
                        upload.take_up(f.read().decode("ascii", "replace").splitlines()[1:])
                return upload
        except BaseException:
            staged.suspend()
            if journal >= 0:
                os.close(journal)
            raise


def ident_of(about: About, who: Person) -> str:
    """The same for the same person, place and content; nobody comes upon somebody else's."""
    said = [who.name, about.path, about.key, about.size, about.mtime, about.part_bytes, about.hash]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:40]
