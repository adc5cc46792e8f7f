"""Writing aside: what arrives lies in a folder of the storage's own until it is whole, then takes its place.

Taking its place is one rename. Whoever reads the old file goes on reading it; whoever opens the path gets the
old one or the new one. What was abandoned goes away at the next start, or when it has lain about for long.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence

from openpaisdk.fileio.remove_tree import remove_tree
from paicluster.files import atomic_io
from paicluster.files.errors import bad_path, disk_errors, full
from paicluster.files.namespace import Namespace
from paicluster.files.paths import OWN

log = logging.getLogger("paicluster.files")

# Uploads of this moment; nothing in it outlives the server.
STAGED = "staged"
# Uploads that may be taken up again, by a key that their client knows.
PARTIAL = "partial"
# What was deleted and is on its way out.
GONE = "gone"
# Appends under way; see `journal`.
JOURNAL = "journal"

STAGED_FOR_S = 3600.0
PARTIAL_FOR_S = 7 * 24 * 3600.0

_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Staged:
    """A file on its way in. Write to it, then `commit` or `abandon` it; from one thread at a time.

    ``fd`` may also be written directly, in any order.
    """

    def __init__(
        self, area: StagingArea, folder: str, name: str, path: str, finish: Callable[[Staged], None]
    ):
        self._area = area
        self._folder = folder
        self.name = name
        self.path = path
        self._finish = finish
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with disk_errors(path):
            self.fd = os.open(name, flags, 0o600, dir_fd=area.folder(folder))
        area.active.add(name)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    @property
    def folder_fd(self) -> int:
        return self._area.folder(self._folder)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Put more at the end of what was written so far."""
        self.write_all((data,))

    def write_all(self, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        """Several in one go."""
        with disk_errors(self.path):
            atomic_io.append_all(self.fd, parts)

    def reserve(self, size: int) -> None:
        """Refuse at once what cannot have room in the end."""
        disk = os.fstatvfs(self.fd)
        if size - self.size > disk.f_bavail * disk.f_frsize:
            raise full(self.path)

    def commit(self) -> None:
        """Take the place that was meant. On any failure the staged file is gone and nothing has changed."""
        try:
            self._finish(self)
        finally:
            self.abandon()

    def suspend(self) -> None:
        """Leave it for whoever comes back with the same key."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self._area.active.discard(self.name)

    def abandon(self) -> None:
        """Forget it. After a commit there is nothing left to forget."""
        if self.fd < 0:
            return
        if not self._area.closed:
            try:
                os.unlink(self.name, dir_fd=self.folder_fd)
            except FileNotFoundError:
                pass
        self.suspend()


class StagingArea:
    """The storage's own folder `.pai`."""

    def __init__(self, tree: Namespace):
        self._tree = tree
        self.active: set[str] = set()
        self._folders: dict[str, int] = {}
        self._cleaned = time.monotonic()
        with disk_errors("/"):
            own = self._open(tree.fd, OWN)
            try:
                for name in (STAGED, PARTIAL, GONE, JOURNAL):
                    self._folders[name] = self._open(own, name)
            finally:
                os.close(own)
            self._clear(STAGED, 0)
            self._clear(GONE, 0)
            self._clear(PARTIAL, PARTIAL_FOR_S)

    @property
    def closed(self) -> bool:
        return not self._folders

    def close(self) -> None:
        for fd in self._folders.values():
            os.close(fd)
        self._folders.clear()

    def folder(self, name: str) -> int:
        return self._folders[name]

    def begin(self, path: str, finish: Callable[[Staged], None], key: str = "") -> Staged:
        """A file written aside; with a key, the one that was begun with it and suspended, if there is one."""
        self.clean()
        if not key:
            return Staged(self, STAGED, secrets.token_hex(16), path, finish)
        if not _KEY.fullmatch(key):
            raise bad_path(key, "the key of an upload has letters and digits only")
        return Staged(self, PARTIAL, key, path, finish)

    def drop(self, key: str) -> None:
        """Forget a suspended upload."""
        try:
            os.unlink(key, dir_fd=self.folder(PARTIAL))
        except FileNotFoundError:
            pass

    def clean(self, *, at_once: bool = False) -> None:
        """Remove what nobody came back for. Cheap: it looks at most every ten minutes."""
        now = time.monotonic()
        if not at_once and now - self._cleaned < 600:
            return
        self._cleaned = now
        self._clear(STAGED, STAGED_FOR_S)
        self._clear(PARTIAL, PARTIAL_FOR_S)

    def _clear(self, folder: str, older_than_s: float) -> None:
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
                # What stays costs room and nothing else: neither a start nor an upload fails for it.
                log.warning("%s/%s/%s could not be removed: %s.", OWN, folder, name, error.strerror)

    def discard(self, source_fd: int, source: str) -> None:
        """Delete a folder with all that is in it: out of sight in one step, then bit by bit."""
        gone = self._folders[GONE]
        name = secrets.token_hex(16)
        try:
            os.rename(source, name, src_dir_fd=source_fd, dst_dir_fd=gone)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            # Another disk is mounted there: what cannot be moved is removed where it is.
            remove_tree(source_fd, source)
            return
        remove_tree(gone, name)

    @staticmethod
    def _open(parent: int, name: str) -> int:
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            pass
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
