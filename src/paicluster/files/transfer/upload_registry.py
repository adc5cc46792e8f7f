"""Registry of the uploads of one storage: open ones, and suspended ones in the staging folder.

Only a few are open at a time, however many clients begin; the others are reopened when their next part
arrives. An upload in use is never closed, so that no descriptor number is used after it was reassigned to
another file.
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

from paicluster.files import Storage, StorageUser
from paicluster.files.errors import disk_errors
from paicluster.files.staging import PARTIAL
from paicluster.files.transfer.upload import JournalHeader, Upload, UploadRequest
from paiprotocol.errors import NotFound, Unavailable

IDLE_TIMEOUT_S = 600.0
# Each has two file descriptors.
MAX_OPEN_PER_USER = 32
MAX_OPEN = 128
# How long a request waits for another one on the same upload before the client gets a response to retry.
_LOCK_TIMEOUT_S = 10.0
# Hashing parts from before a reboot takes long; the other file threads stay free for other requests.
_MAX_VERIFYING = 4
_KEY_LENGTH = 40
_JOURNAL_SUFFIX = ".parts"


class UploadRegistry:
    """Uploads by key; safe for use from many threads."""

    def __init__(self, storage: Storage):
        self._storage = storage
        self._open: dict[str, Upload] = {}
        # Keys being opened, finished or closed by one thread; other threads wait.
        self._claimed: set[str] = set()
        self._changed = threading.Condition()
        self._verifying = threading.BoundedSemaphore(_MAX_VERIFYING)

    @contextmanager
    def begin(self, request: UploadRequest, user: StorageUser) -> Iterator[Upload]:
        """Begin an upload, or resume the one with the same user, path and content."""
        request.check()
        upload = self._acquire(upload_id(request, user), user, request)
        try:
            if request.size > 0:
                upload.staged.reserve(request.size)
            yield upload
        finally:
            self._release_use(upload)

    @contextmanager
    def locked(self, upload_id: str, user: StorageUser) -> Iterator[Upload]:
        """An upload in progress, also if an earlier server began it."""
        key = upload_id[:_KEY_LENGTH]
        upload = self._acquire(key, user, None)
        try:
            if upload.id != upload_id:
                raise _no_upload()
            yield upload
        finally:
            self._release_use(upload)

    def finish(self, upload_id: str, user: StorageUser, size: int, mtime: int | None, digest: str) -> None:
        with self._exclusive(upload_id, user) as upload:
            try:
                upload.finish(size, mtime, digest)
            finally:
                if upload.staged.fd < 0:  # published, or rejected and deleted
                    self._remove_journal(upload_id[:_KEY_LENGTH])

    def drop(self, upload_id: str, user: StorageUser) -> None:
        with self._exclusive(upload_id, user) as upload:
            upload.abandon()
            self._remove_journal(upload_id[:_KEY_LENGTH])

    def close(self) -> None:
        with self._changed:
            while self._open:
                self._open.popitem()[1].suspend()

    # -- locking -------------------------------------------------------------------------------

    def _acquire(self, key: str, user: StorageUser, request: UploadRequest | None) -> Upload:
        """Open the upload with the user's current groups, and count this use of it."""
        with self._changed:
            current = self._open.get(key)
            if current is not None and current.user.name != user.name:
                raise _no_upload()
        if request is None and current is None:
            head = self._read_header(key)
            if head is None or upload_id(head.request, user) != key:
                raise _no_upload()
        with self._changed:
            self._wait(lambda: key not in self._claimed and self._is_free_for(key, user))
            current = self._open.get(key)
            if current is not None and current.user == user:
                current.users += 1
                return current
            self._claimed.add(key)
        upload: Upload | None = None
        try:
            if current is not None:
                # The user's groups may have changed since the upload began.
                current.suspend()
            upload = self._open_upload(key, user, request)
            upload.users = 1
        finally:
            self._release(key, upload)
        self._close_idle(user)
        return upload

    def _is_free_for(self, key: str, user: StorageUser) -> bool:
        current = self._open.get(key)
        return current is None or current.user == user or not current.users

    def _release_use(self, upload: Upload) -> None:
        with self._changed:
            upload.users -= 1
            upload.last_used = time.monotonic()
            self._changed.notify_all()

    @contextmanager
    def _exclusive(self, upload_id: str, user: StorageUser) -> Iterator[Upload]:
        """An upload to be finished or dropped: no other request uses it, and it is closed afterwards."""
        key = upload_id[:_KEY_LENGTH]
        while True:
            with self.locked(upload_id, user) as upload:
                pass
            if self._claim(key, upload):
                break
        try:
            yield upload
        finally:
            upload.suspend()
            self._release(key, None)

    def _claim(self, key: str, upload: Upload) -> bool:
        """False when it was closed before this thread had exclusive use."""
        with self._changed:
            self._wait(lambda: key not in self._claimed and not upload.users)
            if self._open.get(key) is not upload:
                return False
            self._claimed.add(key)
            return True

    def _wait(self, until: Callable[[], bool]) -> None:
        if not self._changed.wait_for(until, _LOCK_TIMEOUT_S):
            raise _busy()

    def _release(self, key: str, upload: Upload | None) -> None:
        with self._changed:
            self._claimed.discard(key)
            if upload is None:
                self._open.pop(key, None)
            else:
                self._open[key] = upload
            self._changed.notify_all()

    def _close_idle(self, user: StorageUser) -> None:
        """Close idle uploads, and the least recently used ones while too many are open."""
        now = time.monotonic()
        with self._changed:
            idle = sorted(
                (key for key, upload in self._open.items() if not upload.users and key not in self._claimed),
                key=lambda key: self._open[key].last_used,
            )
            excess = len(self._open) - MAX_OPEN
            user_excess = (
                sum(upload.user.name == user.name for upload in self._open.values()) - MAX_OPEN_PER_USER
            )
            closing = []
            for key in idle:
                upload = self._open[key]
                is_same_user = upload.user.name == user.name
                if (
                    upload.last_used < now - IDLE_TIMEOUT_S
                    or excess > 0
                    or (is_same_user and user_excess > 0)
                ):
                    closing.append((key, upload))
                    self._claimed.add(key)
                    excess -= 1
                    user_excess -= is_same_user
        for key, upload in closing:
            upload.suspend()
            self._release(key, None)

    # -- staging folder ------------------------------------------------------------------------

    @property
    def _folder(self) -> int:
        return self._storage.staging_area.folder(PARTIAL)

    def _remove_journal(self, key: str) -> None:
        try:
            os.unlink(key + _JOURNAL_SUFFIX, dir_fd=self._folder)
        except FileNotFoundError:
            pass

    def _read_header(self, key: str) -> JournalHeader | None:
        if len(key) != _KEY_LENGTH or not key.isascii() or not key.isalnum():
            return None
        try:
            fd = os.open(key + _JOURNAL_SUFFIX, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
            with os.fdopen(fd, "rb") as f:
                return msgspec.json.decode(f.readline(), type=JournalHeader)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _open_upload(self, key: str, user: StorageUser, request: UploadRequest | None) -> Upload:
        """``request`` is None when the upload must already exist."""
        head = self._read_header(key)
        if request is None:
            if head is None:
                raise _no_upload()
            request = head.request
        staged = self._storage.stage(
            request.path, user, overwrite=request.overwrite, mode=request.mode & 0o777, key=key
        )
        journal = -1
        try:
            with disk_errors(request.path):
                flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                journal = os.open(key + _JOURNAL_SUFFIX, flags, 0o600, dir_fd=self._folder)
                if head is not None:
                    upload = Upload(staged, journal, head, user, key)
                    if self._resume(upload, journal):
                        return upload
                if staged.size:
                    # Only then: ext4 treats a truncated file as being replaced, and close() would wait until
                    # all of it is on the disk.
                    os.ftruncate(staged.fd, 0)
                os.ftruncate(journal, 0)
                head = JournalHeader(request, secrets.token_hex(8))
                os.write(journal, msgspec.json.encode(head) + b"\n")
                return Upload(staged, journal, head, user, key)
        except BaseException:
            staged.suspend()
            if journal >= 0:
                os.close(journal)
            raise

    def _resume(self, upload: Upload, journal: int) -> bool:
        """False when cleanup deleted the file: its journal does not describe the new, empty one."""
        with os.fdopen(os.dup(journal), "rb") as f:
            text = f.read()
        if not text.endswith(b"\n"):  # an incomplete line must not run into the next one
            os.write(journal, b"\n")
        unverified = upload.resume(text.decode("ascii", "replace").splitlines()[1:])
        if upload.staged.size == 0 and upload.has_journaled_bytes(unverified):
            return False
        if unverified:
            if not self._verifying.acquire(timeout=_LOCK_TIMEOUT_S):
                raise _busy()
            try:
                upload.verify(unverified)
            finally:
                self._verifying.release()
        return True


def upload_id(request: UploadRequest, user: StorageUser) -> str:
    """Key of an upload: equal for the same user, path and content, different for different users."""
    identity = [
        user.name,
        request.path,
        request.key,
        request.size,
        request.mtime,
        request.part_bytes,
        request.hash,
    ]
    if not request.overwrite:
        identity.append("new")
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:_KEY_LENGTH]


def _no_upload() -> NotFound:
    return NotFound("There is no such upload.", code="NoUploadError", hint="Begin it again.")


def _busy() -> Unavailable:
    return Unavailable("This upload is in use by another request.", hint="Try again in a moment.")
