"""Facade of one storage: all operations."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from paicluster.files import directories, namespace_ops, reads
from paicluster.files.errors import disk_errors
from paicluster.files.hdfs_checksum import file_checksum
from paicluster.files.linked_copies import LinkedCopies
from paicluster.files.listing_cache import ListingCache
from paicluster.files.namespace import Entry, Namespace
from paicluster.files.ownership import HOMES
from paicluster.files.paths import split_path
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.reads import Listing, OpenFile, Summary
from paicluster.files.staging import StagedFile, StagingArea
from paicluster.files.usage import StorageUsage
from paicluster.files.writes import FileWriter


class Storage:
    """A directory of the server as a multi-user file system.

    Paths are absolute client paths; ``user`` is the user on whose behalf a call is made. Every call may block
    on the disk, may be made from any thread, and raises `PaiError` on failure.
    """

    def __init__(
        self,
        root: Path,
        *,
        sync: bool = False,
        read_only: bool = False,
        groups: Collection[str] = (),
        open_root: bool = False,
    ):
        """``read_only``: only administrators may write. With ``groups`` only their members have access.
        ``open_root``: every user may create files and folders in the root.
        """
        self.root = root
        self._namespace = Namespace(root, read_only=read_only, groups=groups, open_root=open_root)
        # Bytes that users hold.
        self.usage = StorageUsage()
        self._staging_area = StagingArea(self._namespace, self.usage)
        self._writer = FileWriter(self._namespace, self._staging_area, sync=sync)
        self._linked_copies = LinkedCopies(self._namespace, self._staging_area, self._writer)
        self._listing_cache = ListingCache()
        self._provisioned: set[StorageUser] = set()

    def close(self) -> None:
        self._staging_area.close()
        self._namespace.close()

    @property
    def namespace(self) -> Namespace:
        """The namespace, for callers with so many files at once that the cost of each lookup counts."""
        return self._namespace

    @property
    def staging_area(self) -> StagingArea:
        return self._staging_area

    @staticmethod
    def home_of(user: StorageUser) -> str:
        return f"/{HOMES}/{user.name}"

    def has_provisioned(self, user: StorageUser) -> bool:
        """Whether `provision` was already called for this user; does not block."""
        return user in self._provisioned

    def provision(self, user: StorageUser) -> None:
        """Create the user's home folder and group folders. Call it before the user's first operation."""
        if user in self._provisioned:
            return
        with disk_errors(self.home_of(user)):
            directories.create_home(self._namespace, user)
        self._provisioned.add(user)

    def status(self, path: str, user: StorageUser) -> Entry:
        return reads.status(self._namespace, path, user)

    def list(self, path: str, user: StorageUser) -> Listing:
        """Entries of a folder, sorted by name; of a file a single entry with an empty name."""
        return reads.listing(self._namespace, path, user)

    def list_batch(self, path: str, user: StorageUser, *, after: str, limit: int) -> Listing:
        """At most ``limit`` entries, starting after the name ``after``."""
        return reads.list_batch(self._namespace, self._listing_cache, path, user, after, limit)

    def count_children(self, path: str, user: StorageUser) -> int:
        return reads.count_children(self._namespace, path, user)

    def summary(self, path: str, user: StorageUser) -> Summary:
        return reads.summary(self._namespace, path, user)

    def check_access(self, path: str, user: StorageUser, access: Access) -> None:
        """Forbidden unless ``user`` has this access."""
        reads.check_access(self._namespace, path, user, access)

    def check_may_fill(self, path: str, user: StorageUser) -> None:
        """Forbidden unless ``user`` may write files into this folder, which need not exist yet."""
        reads.check_may_fill(self._namespace, path, user)

    def open_read(self, path: str, user: StorageUser) -> OpenFile:
        """Open a file; the descriptor may be passed to another process. The caller closes it."""
        return reads.open_read(self._namespace, path, user)

    def checksum(
        self, path: str, user: StorageUser, stop: Callable[[], bool] = lambda: False
    ) -> tuple[str, bytes]:
        """Name of Hadoop's algorithm, and the checksum. Reads the whole file, until ``stop()`` is true."""
        opened = self.open_read(path, user)
        try:
            with disk_errors(path):
                return file_checksum(opened.fd, opened.entry.size, stop)
        finally:
            os.close(opened.fd)

    def make_dirs(self, path: str, user: StorageUser, mode: int = directories.FOLDER_MODE) -> None:
        namespace_ops.make_dirs(self._namespace, path, user, mode)

    def rename(self, source: str, target: str, user: StorageUser) -> bool:
        """HDFS rename: into an existing folder, never over a file; False when it is not possible."""
        renamed = namespace_ops.rename(self._namespace, source, target, user)
        self._forget_provisioned(source)
        return renamed

    def move(self, source: str, target: str, user: StorageUser, *, overwrite: bool) -> None:
        """Rename to exactly ``target``; the error says why it is not possible."""
        namespace_ops.move(self._namespace, source, target, user, overwrite=overwrite)
        self._forget_provisioned(source)

    def delete(self, path: str, user: StorageUser, *, recursive: bool) -> bool:
        deleted = namespace_ops.delete(self._namespace, self._staging_area, path, user, recursive=recursive)
        self._forget_provisioned(path)
        return deleted

    def _forget_provisioned(self, path: str) -> None:
        """A deleted home folder is created again at its owner's next request."""
        if len(split_path(path)) <= 2:
            self._provisioned.clear()

    def stage(
        self,
        path: str,
        user: StorageUser,
        *,
        overwrite: bool,
        mode: int | None = None,
        parents: bool = True,
        key: str = "",
    ) -> StagedFile:
        """New staging file, to be committed to ``path``. Missing permissions are reported at once.

        With a ``key`` it can be suspended and resumed, also after a server restart: stage again with the same
        key and read its ``size``. Keys of different users must differ.
        """
        return self._writer.stage(path, user, overwrite=overwrite, mode=mode, parents=parents, key=key)

    def stage_append(self, path: str, user: StorageUser) -> StagedFile:
        """Staging file that is appended to an existing file on commit."""
        return self._writer.stage_append(path, user)

    def drop_suspended(self, key: str) -> None:
        self._staging_area.drop(key)

    def clean(self) -> None:
        """Delete expired uploads."""
        self._staging_area.clean(at_once=True)

    def concat(self, path: str, sources: Sequence[str], user: StorageUser) -> None:
        self._writer.concat(path, sources, user)

    def truncate(self, path: str, user: StorageUser, length: int) -> None:
        self._writer.truncate(path, user, length)

    def set_size(self, path: str, user: StorageUser, size: int) -> None:
        """Create a file of this size without content, or give a file this size and keep what fits of it."""
        self._writer.set_size(path, user, size)

    def write_at(self, path: str, user: StorageUser, offset: int, data: bytes | memoryview) -> None:
        """Write into an existing file; its other bytes stay."""
        self._writer.write_at(path, user, offset, data)

    def copy_file(self, source: str, target: str, user: StorageUser) -> None:
        """Copy a file, without its bytes where the disk can; an old one at ``target`` is replaced."""
        self._linked_copies.copy_file(source, target, user)

    def copy_tree(self, source: str, target: str, user: StorageUser) -> None:
        """Copy a folder to a path that does not exist, without the bytes of its files where the disk can."""
        self._linked_copies.copy_tree(source, target, user)

    def set_mode(self, path: str, user: StorageUser, mode: int) -> None:
        namespace_ops.set_mode(self._namespace, path, user, mode)

    def set_owner(self, path: str, user: StorageUser, *, owner: str = "", group: str = "") -> None:
        namespace_ops.set_owner(self._namespace, path, user, owner, group)

    def set_times(
        self, path: str, user: StorageUser, *, modified_ms: int | None = None, accessed_ms: int | None = None
    ) -> None:
        namespace_ops.set_times(self._namespace, path, user, modified_ms, accessed_ms)
