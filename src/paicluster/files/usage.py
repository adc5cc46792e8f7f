"""Bytes that users hold: files by their owner, unfinished uploads, source archives; and the limits of that.

The sums are counted once by a walk (`count_bytes`) and then changed by every operation of the server. Tasks
that write into the storage directly, and operations during the walk, make them inexact until the next count.
A linked copy (`linked_copies`) holds no bytes of its own: those of a file are released with its last name.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from paicluster.files.errors import quota_exceeded, storage_full
from paicluster.files.namespace import Entry, Inode, Namespace, entries
from paicluster.files.ownership import SUPERUSER
from paicluster.files.paths import join_path
from paicluster.files.permissions import StorageUser
from paicluster.files.walk import walk
from paiprotocol.errors import PaiError

# Part of the disk that no upload may take, so that the database can still be written when users have filled
# the rest: a hundredth, and at most a GiB.
_MARGIN_PART = 100
_MARGIN_MAX_BYTES = 1 << 30
# A folder that is moved while it is counted is counted again.
_COUNT_ATTEMPTS = 3


class StorageLimit(NamedTuple):
    """Limit of the bytes of one ``owner`` (`user alice`, `group vision`)."""

    owner: str
    limit: int


class StorageUsage:
    """Bytes by user, and by every owner of a limit. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_user: dict[str, int] = {}
        self._limits: Mapping[str, tuple[StorageLimit, ...]] = {}
        self._by_owner: dict[str, int] = {}
        # Unpublished files being written, which a count does not see: bytes by user.
        self._unpublished: dict[str, int] = {}
        # Whether the sums are complete. Before that nothing is refused.
        self.is_counted = False
        # Whether a refusal may be due to sums that are too large.
        self.was_refused = False

    def set_limits(self, limits: Mapping[str, tuple[StorageLimit, ...]]) -> None:
        """``limits``: of each user that has any."""
        with self._lock:
            self._limits = dict(limits)
            self._sum_owners()

    @property
    def has_limits(self) -> bool:
        return bool(self._limits)

    def limits_of(self, user: str) -> tuple[StorageLimit, ...]:
        return self._limits.get(user, ())

    def set_counted(self, count: Count) -> None:
        """Replace the sums by those of a new count; an incomplete one lowers none."""
        with self._lock:
            before, self._by_user = self._by_user, dict(count.by_owner)
            for user, size in self._unpublished.items():
                self._by_user[user] = self._by_user.get(user, 0) + size
            for user in count.incomplete:
                self._by_user[user] = max(self._by_user.get(user, 0), before.get(user, 0))
            self._sum_owners()
            self.is_counted = True

    def used_by(self, users: Iterable[str]) -> int:
        with self._lock:
            return sum(self._by_user.get(user, 0) for user in users)

    def check(self, user: str, count: int, path: str) -> None:
        """QuotaExceededError when a limit has no space for that many more bytes."""
        with self._lock:
            self._check(user, count, path)

    def _check(self, user: str, count: int, path: str) -> None:
        if count <= 0 or not self.is_counted:
            return
        for owner, limit in self._limits.get(user, ()):
            used = self._by_owner.get(owner, 0)
            if used + count > limit:
                self.was_refused = True
                raise quota_exceeded(path, owner, limit, used + count)

    def charge(self, user: str, count: int, path: str, *, published: bool = True) -> None:
        """Count bytes that are about to be written; QuotaExceededError when a limit has no space for them."""
        with self._lock:
            self._check(user, count, path)
            self._charge(user, count, published=published)

    def charge_copy(self, user: str, count: int) -> None:
        """Count bytes that will replace the same bytes elsewhere: no limit applies for that moment."""
        with self._lock:
            self._charge(user, count, published=False)

    def _charge(self, user: str, count: int, *, published: bool) -> None:
        self._add(user, count)
        if not published:
            self._unpublished[user] = self._unpublished.get(user, 0) + count

    def release(self, user: str, count: int, *, published: bool = True) -> None:
        """Release bytes that were deleted, or not written after all."""
        with self._lock:
            self._add(user, -count)
            if not published:
                self._unpublished[user] = self._unpublished.get(user, 0) - count

    def publish(self, user: str, count: int) -> None:
        """Bytes charged as unpublished are visible now: the next count sees them."""
        with self._lock:
            self._unpublished[user] = self._unpublished.get(user, 0) - count

    def _add(self, user: str, count: int) -> None:
        # Never negative: what was deleted may have been written past the server.
        self._by_user[user] = max(0, self._by_user.get(user, 0) + count)
        for owner, _ in self._limits.get(user, ()):
            self._by_owner[owner] = max(0, self._by_owner.get(owner, 0) + count)

    def _sum_owners(self) -> None:
        self._by_owner = {}
        for user, limits in self._limits.items():
            for owner, _ in limits:
                self._by_owner[owner] = self._by_owner.get(owner, 0) + self._by_user.get(user, 0)


class Charge:
    """Bytes of one file that is being written, which a count does not see yet; for any thread."""

    def __init__(self, usage: StorageUsage, user: str, path: str, size: int = 0):
        """``path``: for errors. ``size``: of a file that was counted and is written again."""
        self._usage = usage
        self._user = user
        self._path = path
        self._lock = threading.Lock()
        self.size = size
        usage.publish(user, -size)

    def grow(self, fd: int, count: int) -> None:
        """Count bytes that arrived and are about to be written; raises when disk or quota have no space."""
        check_disk(fd, count, self._path)
        self._usage.charge(self._user, count, self._path, published=False)
        with self._lock:
            self.size += count

    def grow_by_copy(self, fd: int, count: int) -> None:
        """Count bytes that are about to be copied from files which this one will replace."""
        check_disk(fd, count, self._path)
        self._usage.charge_copy(self._user, count)
        with self._lock:
            self.size += count

    def check(self, fd: int, size: int, present: int) -> None:
        """Raise when disk or quota have no space for a file of this size, of which some is ``present``."""
        check_disk(fd, size - present, self._path)
        self._usage.check(self._user, size - self.size, self._path)

    def keep(self, size: int | None = None) -> None:
        """The file is complete, or stays for later: a count sees it now. ``size``: if less was needed."""
        with self._lock:
            charged, self.size = self.size, 0
        self._usage.publish(self._user, charged)
        if size is not None:
            self._usage.release(self._user, charged - size)

    def release(self) -> None:
        """The file was deleted. Has no effect after `keep`."""
        with self._lock:
            charged, self.size = self.size, 0
        self._usage.release(self._user, charged, published=False)


class Count(NamedTuple):
    """Bytes by owner. Those of ``incomplete`` owners may be more: folders were moved during the count."""

    by_owner: dict[str, int]
    incomplete: set[str]


def count_bytes(
    namespace: Namespace,
    suspended_uploads: Callable[[], Iterable[tuple[str, int]]],
    is_stopped: Callable[[], bool] = lambda: False,
) -> Count:
    """Bytes of all files and of ``suspended_uploads`` by their owner. Reads every folder.

    ``is_stopped`` ends it with an OSError. Every home is counted on its own, so that a user who moves folders
    all the time disturbs no other count.
    """
    count = Count({}, set())
    root = StorageUser(SUPERUSER, admin=True)
    with namespace.look_up("/", root) as lookup:
        tops = _add_files(lookup.existing(), count.by_owner)
    for top in tops:
        with namespace.look_up(f"/{top}", root) as lookup:
            if lookup.inode is None or not lookup.inode.is_folder:
                continue
            names = _add_files(lookup.inode, count.by_owner)
        for name in names:
            _count_folder(namespace, join_path((top, name)), count, is_stopped)
    for owner, size in suspended_uploads():
        count.by_owner[owner] = count.by_owner.get(owner, 0) + size
    return count


def _count_folder(namespace: Namespace, path: str, count: Count, is_stopped: Callable[[], bool]) -> None:
    counts: dict[str, int] = {}
    for _ in range(_COUNT_ATTEMPTS):
        counts.clear()
        with namespace.look_up(path, StorageUser(SUPERUSER, admin=True)) as lookup:
            if lookup.inode is None or not lookup.inode.is_folder:
                return
            try:
                _add_tree(namespace, lookup.inode, counts, is_stopped)
                break
            except PaiError:
                owner = lookup.inode.ownership.owner
    else:
        count.incomplete.update(counts, [owner])
    for owner, size in counts.items():
        count.by_owner[owner] = count.by_owner.get(owner, 0) + size


def bytes_below(namespace: Namespace, folder: Inode) -> dict[str, int]:
    """Bytes that a deletion of this folder frees, by their owner."""
    counts: dict[str, int] = {}
    walk(namespace, folder, lambda below: _add_files(below, counts, _freed_bytes))
    return counts


def _add_tree(
    namespace: Namespace, top: Inode, counts: dict[str, int], is_stopped: Callable[[], bool]
) -> None:
    def visit(folder: Inode) -> list[str]:
        if is_stopped():
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        return _add_files(folder, counts)

    walk(namespace, top, visit)


def _share(entry: Entry) -> int:
    """Bytes of a file that count at one of its names, so that the sum over all names is its size."""
    return entry.size // max(1, entry.links)


def _freed_bytes(entry: Entry) -> int:
    return entry.size if entry.links <= 1 else 0


def _add_files(folder: Inode, counts: dict[str, int], bytes_of: Callable[[Entry], int] = _share) -> list[str]:
    """Add the files of one folder; the names of the folders in it."""
    below = []
    for entry in entries(folder):
        if entry.is_folder:
            below.append(entry.name)
        else:
            owner = entry.ownership.owner
            counts[owner] = counts.get(owner, 0) + bytes_of(entry)
    return below


def freed_bytes(status: os.stat_result) -> int:
    """Bytes that are free when one name of a file is deleted."""
    return status.st_size if status.st_nlink <= 1 else 0


def free_bytes(fd: int) -> int:
    """Bytes that uploads may still take on the disk of an open file."""
    disk = os.fstatvfs(fd)
    margin = min(_MARGIN_MAX_BYTES, disk.f_blocks * disk.f_frsize // _MARGIN_PART)
    return max(0, disk.f_bavail * disk.f_frsize - margin)


def check_disk(fd: int, count: int, path: str) -> None:
    """StorageFullError when the disk of an open file has no space for more bytes."""
    if count > 0 and count > free_bytes(fd):
        raise storage_full(path)
