"""Staging area: new files are written to an internal folder until they are complete, then published.

Publishing is one rename. A reader of the old file keeps reading it; opening the path gives the old file or
the new one. Abandoned staging files are deleted at the next start, or when they are old.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence

from paicluster.files import atomic_io, usage
from paicluster.files.errors import bad_path, disk_errors
from paicluster.files.namespace import Namespace
from paicluster.files.ownership import Ownership, read_ownership, write_ownership
from paicluster.files.paths import INTERNAL_FOLDER
from pairuntime.local_files.remove_tree import remove_tree

log = logging.getLogger("paicluster.files")

# Uploads in progress; cleared when the server starts.
STAGED = "staged"
# Uploads that can be resumed with a key that their client knows.
PARTIAL = "partial"
# Deleted folders that are being removed from the disk.
DELETED = "gone"
# Appends in progress; see `append_journal`.
JOURNAL = "journal"

STAGED_MAX_AGE_S = 3600.0
PARTIAL_MAX_AGE_S = 7 * 24 * 3600.0

_CLEAN_INTERVAL_S = 600.0

_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")


class StagedFile:
    """File being written. Write to it, then `commit` or `abandon` it; from one thread at a time.

    ``fd`` may also be written directly, in any order.
    """

    def __init__(
        self,
        area: StagingArea,
        folder: str,
        name: str,
        path: str,
        finish: Callable[[StagedFile], None],
        owner: str,
    ):
        """``owner``: whose quota its bytes count against."""
        self._area = area
        self._folder = folder
        self.name = name
        self.path = path
        self._finish = finish
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with disk_errors(path):
            self.fd = os.open(name, flags, 0o600, dir_fd=area.folder(folder))
            resumed = area.resume(self.fd, owner) if folder == PARTIAL else 0
        self._charge = usage.Charge(area.usage, owner, path, resumed)
        area.active.add(name)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    @property
    def folder_fd(self) -> int:
        return self._area.folder(self._folder)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append to what was written so far."""
        self.write_all((data,))

    def write_all(self, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        """Append several buffers in one call."""
        self.grow(sum(map(len, parts)))
        with disk_errors(self.path):
            atomic_io.append_all(self.fd, parts)

    def grow(self, count: int) -> None:
        """Count bytes that arrived and are about to be written; raises when disk or quota have no space."""
        with disk_errors(self.path):
            self._charge.grow(self.fd, count)

    def grow_by_copy(self, count: int) -> None:
        """Count bytes that are about to be copied from files which this one will replace."""
        with disk_errors(self.path):
            self._charge.grow_by_copy(self.fd, count)

    def reserve(self, size: int) -> None:
        """Raise when disk or quota have no space for a file of this size. Takes nothing of either."""
        with disk_errors(self.path):
            self._charge.check(self.fd, size, self.size)

    def commit(self) -> None:
        """Publish the file at its path. On failure the staging file is deleted and nothing has changed."""
        try:
            # A client that writes through a passed descriptor is counted only now.
            size = self.size
            self.grow(max(0, size - self._charge.size))
            self._finish(self)
            self._charge.keep(size)
        finally:
            self.abandon()

    def suspend(self) -> None:
        """Close it but keep the bytes, to be resumed with the same key."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self._area.active.discard(self.name)
            self._charge.keep()

    def abandon(self) -> None:
        """Delete the staging file. Has no effect after a commit."""
        if self.fd < 0:
            return
        if not self._area.closed:
            try:
                os.unlink(self.name, dir_fd=self.folder_fd)
            except FileNotFoundError:
                pass
        self._charge.release()
        self.suspend()


class StagingArea:
    """The storage's internal folder `.pai`."""

    def __init__(self, namespace: Namespace, bytes_of_users: usage.StorageUsage):
        self._namespace = namespace
        self.usage = bytes_of_users
        self.active: set[str] = set()
        self._folders: dict[str, int] = {}
        self._cleaned = time.monotonic()
        with disk_errors("/"):
            internal = self._open(namespace.fd, INTERNAL_FOLDER)
            try:
                for name in (STAGED, PARTIAL, DELETED, JOURNAL):
                    self._folders[name] = self._open(internal, name)
            finally:
                os.close(internal)
            self._remove_older(STAGED, 0)
            self._remove_older(DELETED, 0)
            self._remove_older(PARTIAL, PARTIAL_MAX_AGE_S)

    @property
    def closed(self) -> bool:
        return not self._folders

    def close(self) -> None:
        for fd in self._folders.values():
            os.close(fd)
        self._folders.clear()

    def folder(self, name: str) -> int:
        return self._folders[name]

    def begin(self, path: str, finish: Callable[[StagedFile], None], owner: str, key: str = "") -> StagedFile:
        """New staging file; with a key, the suspended one of that key if it exists.

        ``owner``: whose quota its bytes count against.
        """
        self.clean()
        if not key:
            return StagedFile(self, STAGED, secrets.token_hex(16), path, finish, owner)
        if not _KEY.fullmatch(key):
            raise bad_path(key, "an upload key may contain only letters, digits, '-' and '_'")
        return StagedFile(self, PARTIAL, key, path, finish, owner)

    def resume(self, fd: int, owner: str) -> int:
        """Bytes of an upload that is opened again; a new one is marked as its owner's, for `suspended`."""
        size = _stored_bytes(os.fstat(fd))
        if not size and self._namespace.has_xattrs:
            write_ownership(fd, Ownership(owner, owner, 0o600), has_xattrs=True)
        return size

    def suspended(self) -> Iterator[tuple[str, int]]:
        """Owner and bytes of each upload that is not in progress."""
        fd = self._folders[PARTIAL]
        for name in os.listdir(fd):
            if name in self.active:
                continue
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                at = f"/proc/self/fd/{fd}/{name}"
                owner = read_ownership(at, (), status, is_descriptor=False).owner
            except FileNotFoundError:
                continue
            yield owner, _stored_bytes(status)

    def drop(self, key: str) -> None:
        """Delete a suspended upload."""
        try:
            os.unlink(key, dir_fd=self.folder(PARTIAL))
        except FileNotFoundError:
            pass

    def clean(self, *, at_once: bool = False) -> None:
        """Delete expired staging files. Cheap: unless ``at_once`` it runs at most every ten minutes."""
        now = time.monotonic()
        if not at_once and now - self._cleaned < _CLEAN_INTERVAL_S:
            return
        self._cleaned = now
        self._remove_older(STAGED, STAGED_MAX_AGE_S)
        self._remove_older(PARTIAL, PARTIAL_MAX_AGE_S)

    def _remove_older(self, folder: str, older_than_s: float) -> None:
        fd = self._folders[folder]
        oldest = time.time() - older_than_s
        for name in os.listdir(fd):
            if name in self.active:
                continue
            try:
                if older_than_s and os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime > oldest:
                    continue
                remove_tree(fd, name)
            except FileNotFoundError:
                continue
            except OSError as error:
                # A leftover only costs disk space: neither a server start nor an upload fails because of it.
                log.warning("Cannot remove %s/%s/%s: %s.", INTERNAL_FOLDER, folder, name, error.strerror)

    def discard(self, source_fd: int, source: str) -> None:
        """Delete a folder recursively: hidden from clients by one rename, then removed file by file."""
        deleted = self._folders[DELETED]
        name = secrets.token_hex(16)
        try:
            os.rename(source, name, src_dir_fd=source_fd, dst_dir_fd=deleted)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            # Another file system is mounted there: a folder that cannot be moved is removed in place.
            remove_tree(source_fd, source)
            return
        remove_tree(deleted, name)

    @staticmethod
    def _open(parent: int, name: str) -> int:
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            pass
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


def _stored_bytes(status: os.stat_result) -> int:
    """Bytes on the disk: parts arrive in any order, and the file has holes until the last one."""
    return min(status.st_size, status.st_blocks * 512)
