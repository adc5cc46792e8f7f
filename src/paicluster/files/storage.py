"""One storage: everything that can be done with it, in one place."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from paicluster.files import directories, namespace_ops, reads
from paicluster.files.errors import disk_errors
from paicluster.files.hdfs_checksum import file_checksum
from paicluster.files.listing_cache import ListingCache
from paicluster.files.namespace import Entry, Namespace
from paicluster.files.ownership import HOMES
from paicluster.files.paths import names_of
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.reads import Listing, OpenFile, Summary
from paicluster.files.staging import Staged, StagingArea
from paicluster.files.writes import FileWriter


class Storage:
    """A folder of the server as a file system of many people.

    Paths are absolute, as clients write them; `who` is the person for whom it is done. Every call may block
    on the disk, may be made from any thread, and says what was wrong with a `PaiError`.
    """

    def __init__(
        self, root: Path, *, sync: bool = False, read_only: bool = False, groups: Collection[str] = ()
    ):
        """``read_only``: only administrators change anything. With ``groups`` only those are let in."""
        self.root = root
        self._tree = Namespace(root, read_only=read_only, groups=groups)
        self._area = StagingArea(self._tree)
        self._arrivals = FileWriter(self._tree, self._area, sync=sync)
        self._batches = ListingCache()
        self._welcomed: set[StorageUser] = set()

    def close(self) -> None:
        self._area.close()
        self._tree.close()

    @property
    def tree(self) -> Namespace:
        """For those who read or write so many files at once that each look-up counts."""
        return self._tree

    @property
    def area(self) -> StagingArea:
        return self._area

    @staticmethod
    def home_of(who: StorageUser) -> str:
        return f"/{HOMES}/{who.name}"

    def knows(self, who: StorageUser) -> bool:
        """Whether he was welcomed already; costs nothing."""
        return who in self._welcomed

    def welcome(self, who: StorageUser) -> None:
        """Make the home of somebody and the folders of his groups. Call it before what he asks for."""
        if who in self._welcomed:
            return
        with disk_errors(self.home_of(who)):
            directories.create_home(self._tree, who)
        self._welcomed.add(who)

    def status(self, path: str, who: StorageUser) -> Entry:
        return reads.status(self._tree, path, who)

    def list(self, path: str, who: StorageUser) -> Listing:
        """What a folder holds, by name; a file is the one entry, with an empty name."""
        return reads.listing(self._tree, path, who)

    def list_batch(self, path: str, who: StorageUser, *, after: str, limit: int) -> Listing:
        """So many of it, from the one after that name on."""
        return reads.batch(self._tree, self._batches, path, who, after, limit)

    def count_children(self, path: str, who: StorageUser) -> int:
        return reads.count_children(self._tree, path, who)

    def summary(self, path: str, who: StorageUser) -> Summary:
        return reads.summary(self._tree, path, who)

    def check(self, path: str, who: StorageUser, need: Access) -> None:
        """Nothing when ``who`` may; refused otherwise."""
        reads.check(self._tree, path, who, need)

    def open_read(self, path: str, who: StorageUser) -> OpenFile:
        """The file, open; it can be given away as it is. The caller closes it."""
        return reads.open_read(self._tree, path, who)

    def checksum(
        self, path: str, who: StorageUser, stop: Callable[[], bool] = lambda: False
    ) -> tuple[str, bytes]:
        """Hadoop's name for the algorithm, and the checksum. It reads all of the file, until told to stop."""
        opened = self.open_read(path, who)
        try:
            with disk_errors(path):
                return file_checksum(opened.fd, opened.entry.size, stop)
        finally:
            os.close(opened.fd)

    def make_dirs(self, path: str, who: StorageUser, mode: int = directories.FOLDER_MODE) -> None:
        namespace_ops.make_dirs(self._tree, path, who, mode)

    def rename(self, source: str, target: str, who: StorageUser) -> bool:
        """As HDFS does it: into a folder that is there, never over a file; False when it cannot be done."""
        renamed = namespace_ops.rename(self._tree, source, target, who)
        self._forget_welcomes(source)
        return renamed

    def move(self, source: str, target: str, who: StorageUser, *, overwrite: bool) -> None:
        """Rename to exactly ``target``; a refusal says why it cannot be done."""
        namespace_ops.move(self._tree, source, target, who, overwrite=overwrite)
        self._forget_welcomes(source)

    def delete(self, path: str, who: StorageUser, *, recursive: bool) -> bool:
        deleted = namespace_ops.delete(self._tree, self._area, path, who, recursive=recursive)
        self._forget_welcomes(path)
        return deleted

    def _forget_welcomes(self, path: str) -> None:
        """A home that was taken away is made again when its owner comes back."""
        if len(names_of(path)) <= 2:
            self._welcomed.clear()

    def stage(
        self,
        path: str,
        who: StorageUser,
        *,
        overwrite: bool,
        mode: int | None = None,
        parents: bool = True,
        key: str = "",
    ) -> Staged:
        """A file to be written aside and then committed to ``path``. Refused at once where it may not be.

        With a ``key`` it can be suspended and taken up again, also by the next server: begin again with the
        same key and look at its ``size``. Keys of different people must differ.
        """
        return self._arrivals.stage(path, who, overwrite=overwrite, mode=mode, parents=parents, key=key)

    def stage_append(self, path: str, who: StorageUser) -> Staged:
        """What is to be put at the end of a file that is there, once it is whole."""
        return self._arrivals.stage_append(path, who)

    def drop_suspended(self, key: str) -> None:
        self._area.drop(key)

    def clean(self) -> None:
        """Remove abandoned uploads that are old enough."""
        self._area.clean(at_once=True)

    def concat(self, path: str, sources: Sequence[str], who: StorageUser) -> None:
        self._arrivals.concat(path, sources, who)

    def truncate(self, path: str, who: StorageUser, length: int) -> None:
        self._arrivals.truncate(path, who, length)

    def set_mode(self, path: str, who: StorageUser, mode: int) -> None:
        namespace_ops.set_mode(self._tree, path, who, mode)

    def set_owner(self, path: str, who: StorageUser, *, owner: str = "", group: str = "") -> None:
        namespace_ops.set_owner(self._tree, path, who, owner, group)

    def set_times(
        self, path: str, who: StorageUser, *, modified_ms: int | None = None, accessed_ms: int | None = None
    ) -> None:
        namespace_ops.set_times(self._tree, path, who, modified_ms, accessed_ms)
