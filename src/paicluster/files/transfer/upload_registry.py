"""All uploads of one storage: those somebody works on, and those that wait in its folder.

Only a few are open at a time, whoever begins however many: the others are opened again when the next part
comes. One that somebody is at is never closed, so that no number of a descriptor is used after it was given
to another file.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from openpaisdk.errors import NotFound, Unavailable
from paicluster.files import Storage, StorageUser
from paicluster.files.errors import disk_errors
from paicluster.files.staging import PARTIAL
from paicluster.files.transfer.upload import JournalHeader, Upload, UploadRequest

IDLE_S = 600.0
# Each has two descriptors.
MOST_OF_ONE = 32
MOST = 128
# How long one request waits for another about the same upload, before its client is asked to come again.
_LOCK_TIMEOUT_S = 10.0
# Hashing what lies there since before a reboot takes long; the other threads are for the others.
_MOST_VERIFYING = 4
_IDENT = 40
_JOURNAL = ".parts"


class UploadRegistry:
    def __init__(self, storage: Storage):
        self._storage = storage
        self._open: dict[str, Upload] = {}
        # Being opened, finished or closed by one thread; everybody else waits.
        self._claimed: set[str] = set()
        self._turn = threading.Condition()
        self._verifying = threading.BoundedSemaphore(_MOST_VERIFYING)

    @contextmanager
    def begun(self, about: UploadRequest, who: StorageUser) -> Iterator[Upload]:
        """Start one, or take up the one that was begun for the same content and the same place."""
        about.check()
        upload = self._taken(upload_id(about, who), who, about)
        try:
            if about.size > 0:
                upload.staged.reserve(about.size)
            yield upload
        finally:
            self._let_go(upload)

    @contextmanager
    def locked(self, upload_id: str, who: StorageUser) -> Iterator[Upload]:
        """An upload that was begun, also when another server was there then."""
        ident = upload_id[:_IDENT]
        upload = self._taken(ident, who, None)
        try:
            if upload.id != upload_id:
                raise _no_upload()
            yield upload
        finally:
            self._let_go(upload)

    def finish(self, upload_id: str, who: StorageUser, size: int, mtime: int | None, digest: str) -> None:
        with self._alone(upload_id, who) as upload:
            try:
                upload.finish(size, mtime, digest)
            finally:
                if upload.staged.fd < 0:  # it has its place, or was refused it and is gone
                    self._strike(upload_id[:_IDENT])

    def drop(self, upload_id: str, who: StorageUser) -> None:
        with self._alone(upload_id, who) as upload:
            upload.abandon()
            self._strike(upload_id[:_IDENT])

    def close(self) -> None:
        with self._turn:
            while self._open:
                self._open.popitem()[1].suspend()

    # -- taking turns --------------------------------------------------------------------------

    def _taken(self, ident: str, who: StorageUser, about: UploadRequest | None) -> Upload:
        """Open, for ``who`` as he is now, and counted as in use."""
        with self._turn:
            found = self._open.get(ident)
            if found is not None and found.who.name != who.name:
                raise _no_upload()
        if about is None and found is None:
            head = self._head(ident)
            if head is None or upload_id(head.about, who) != ident:
                raise _no_upload()
        with self._turn:
            self._wait(lambda: ident not in self._claimed and self._is_free_for(ident, who))
            found = self._open.get(ident)
            if found is not None and found.who == who:
                found.users += 1
                return found
            self._claimed.add(ident)
        upload: Upload | None = None
        try:
            if found is not None:
                # He may have other rights now than when he began.
                found.suspend()
            upload = self._opened(ident, who, about)
            upload.users = 1
        finally:
            self._release(ident, upload)
        self._make_room(who)
        return upload

    def _is_free_for(self, ident: str, who: StorageUser) -> bool:
        found = self._open.get(ident)
        return found is None or found.who == who or not found.users

    def _let_go(self, upload: Upload) -> None:
        with self._turn:
            upload.users -= 1
            upload.used = time.monotonic()
            self._turn.notify_all()

    @contextmanager
    def _alone(self, upload_id: str, who: StorageUser) -> Iterator[Upload]:
        """An upload to be ended: nobody else is at it, and it is closed afterwards."""
        ident = upload_id[:_IDENT]
        while True:
            with self.locked(upload_id, who) as upload:
                pass
            if self._claim(ident, upload):
                break
        try:
            yield upload
        finally:
            upload.suspend()
            self._release(ident, None)

    def _claim(self, ident: str, upload: Upload) -> bool:
        """False when it was closed before we could have it alone."""
        with self._turn:
            self._wait(lambda: ident not in self._claimed and not upload.users)
            if self._open.get(ident) is not upload:
                return False
            self._claimed.add(ident)
            return True

    def _wait(self, until: Callable[[], bool]) -> None:
        if not self._turn.wait_for(until, _LOCK_TIMEOUT_S):
            raise _busy()

    def _release(self, ident: str, upload: Upload | None) -> None:
        with self._turn:
            self._claimed.discard(ident)
            if upload is None:
                self._open.pop(ident, None)
            else:
                self._open[ident] = upload
            self._turn.notify_all()

    def _make_room(self, who: StorageUser) -> None:
        """Close what has been left alone for long, and more if too many are open."""
        now = time.monotonic()
        with self._turn:
            idle = sorted(
                (ident for ident, one in self._open.items() if not one.users and ident not in self._claimed),
                key=lambda ident: self._open[ident].used,
            )
            too_many = len(self._open) - MOST
            his = sum(one.who.name == who.name for one in self._open.values()) - MOST_OF_ONE
            closing = []
            for ident in idle:
                one = self._open[ident]
                is_his = one.who.name == who.name
                if one.used < now - IDLE_S or too_many > 0 or (is_his and his > 0):
                    closing.append((ident, one))
                    self._claimed.add(ident)
                    too_many -= 1
                    his -= is_his
        for ident, one in closing:
            one.suspend()
            self._release(ident, None)

    # -- in the folder -------------------------------------------------------------------------

    @property
    def _folder(self) -> int:
        return self._storage.area.folder(PARTIAL)

    def _strike(self, ident: str) -> None:
        try:
            os.unlink(ident + _JOURNAL, dir_fd=self._folder)
        except FileNotFoundError:
            pass

    def _head(self, ident: str) -> JournalHeader | None:
        if len(ident) != _IDENT or not ident.isascii() or not ident.isalnum():
            return None
        try:
            fd = os.open(ident + _JOURNAL, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
            with os.fdopen(fd, "rb") as f:
                return msgspec.json.decode(f.readline(), type=JournalHeader)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _opened(self, ident: str, who: StorageUser, about: UploadRequest | None) -> Upload:
        """``about`` is None where it must have been begun."""
        head = self._head(ident)
        if about is None:
            if head is None:
                raise _no_upload()
            about = head.about
        staged = self._storage.stage(
            about.path, who, overwrite=about.overwrite, mode=about.mode & 0o777, key=ident
        )
        journal = -1
        try:
            with disk_errors(about.path):
                flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                journal = os.open(ident + _JOURNAL, flags, 0o600, dir_fd=self._folder)
                if head is not None:
                    upload = Upload(staged, journal, head, who, ident)
                    if self._took_up(upload, journal):
                        return upload
                if staged.size:
                    # Not otherwise: ext4 takes it for a file that is replaced, and whoever closes it would
                    # wait until all of it is on the disk.
                    os.ftruncate(staged.fd, 0)
                os.ftruncate(journal, 0)
                head = JournalHeader(about, secrets.token_hex(8))
                os.write(journal, msgspec.json.encode(head) + b"\n")
                return Upload(staged, journal, head, who, ident)
        except BaseException:
            staged.suspend()
            if journal >= 0:
                os.close(journal)
            raise

    def _took_up(self, upload: Upload, journal: int) -> bool:
        """False where the file was cleaned away, and the journal says nothing about the new one."""
        with os.fdopen(os.dup(journal), "rb") as f:
            said = f.read()
        if not said.endswith(b"\n"):  # a line that was cut must not run into the next one
            os.write(journal, b"\n")
        doubtful = upload.resume(said.decode("ascii", "replace").splitlines()[1:])
        if upload.staged.size == 0 and upload.claims_bytes(doubtful):
            return False
        if doubtful:
            if not self._verifying.acquire(timeout=_LOCK_TIMEOUT_S):
                raise _busy()
            try:
                upload.verify(doubtful)
            finally:
                self._verifying.release()
        return True


def upload_id(about: UploadRequest, who: StorageUser) -> str:
    """The same for the same person, place and content; nobody comes upon somebody else's."""
    said = [who.name, about.path, about.key, about.size, about.mtime, about.part_bytes, about.hash]
    if not about.overwrite:
        said.append("new")
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:_IDENT]


def _no_upload() -> NotFound:
    return NotFound("There is no such upload.", code="NoUploadError", hint="Begin it again.")


def _busy() -> Unavailable:
    return Unavailable("This upload is busy.", hint="Try it again in a moment.")
