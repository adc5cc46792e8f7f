"""Many small files at once, in and out. Each arrives whole or not at all, whatever happens to the others."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from openpaisdk.errors import PaiError
from openpaisdk.fileio.hashing import ALGORITHMS, of_bytes
from openpaisdk.fileio.pack_format import (
    FILE,
    FOLDER,
    PROBLEM,
    SMALL,
    PackRecord,
    end,
    head,
    read_pack,
    truncated_pack,
)
from openpaisdk.fileio.syscall_lock import SyscallLock
from paicluster.files import Access, Storage, StorageUser, ownership
from paicluster.files.atomic_io import append
from paicluster.files.directories import check_may_add, check_removable, record_for
from paicluster.files.errors import FULL, disk_errors, exists, is_a_folder, no_file, of_disk
from paicluster.files.namespace import Inode, open_file
from paicluster.files.paths import LONGEST_PATH, OWN, Names, check_name, names_of
from paicluster.files.renaming import rename_noreplace
from paicluster.files.staging import STAGED, StagingArea
from paicluster.files.transfer.open_folders import OpenFolderCache
from paicluster.files.transfer.unpublished_folder import UnpublishedFolder, fresh_folder

_CHUNK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_NAMELESS = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC
# Not every disk has files without a name.
_CANNOT = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_turns = SyscallLock()


def store(storage: Storage, who: StorageUser, base: str, pack: bytes) -> list[dict[str, Any]]:
    """Put every file of a pack in its place below ``base``; what was refused is told, one by one."""
    with _turns.held():
        arrived = list(read_pack(pack))  # nothing of a pack that was cut on its way is taken
        with OpenFolderCache(storage, who, Access.WRITE | Access.EXECUTE) as folders:
            laying = PackWriter(storage, folders, PathCache(base))
            try:
                for record in arrived:
                    laying.write(record)
                    if laying.is_full:
                        break
                laying.publish()
            finally:
                laying.close()
        return laying.problems


class PackWriter:
    """Files of a pack on their way to their places, one after the other."""

    def __init__(self, storage: Storage, folders: OpenFolderCache, ways: PathCache):
        self._storage = storage
        self._folders = folders
        self._ways = ways
        self._prefix = secrets.token_hex(12)
        self._count = 0
        # The folder that the last file went to, where it is new, with all that went there.
        self._fresh: UnpublishedFolder | None = None
        self._laid: list[tuple[Names, PackRecord]] = []
        self.problems: list[dict[str, Any]] = []
        self.is_full = False

    def write(self, record: PackRecord) -> None:
        """What is refused is noted: the others go on."""
        try:
            self._lay(record)
        except (PaiError, OSError) as error:
            self._note(record.name, error)

    def _lay(self, record: PackRecord) -> None:
        names = self._ways.names_of(record.name)
        if record.kind == FOLDER:
            self.publish()
            self._folders.get(names, make=True)
            return
        _refuse_unless_whole(record)
        if not names:
            raise is_a_folder("/")
        fresh = self._fresh_folder(names[:-1])
        if fresh is None:
            self._lay_alone(names, record)
            return
        try:
            fresh.put(names[-1], lambda fd: _fill(fd, self._folders, fresh.node, record))
        except FileExistsError:  # it comes twice
            self.publish()
            self._lay_alone(names, record)
        else:
            self._laid.append((names, record))

    def _note(self, name: str, error: PaiError | OSError) -> None:
        said = error if isinstance(error, PaiError) else of_disk(error, name)
        self.problems.append(problem(name, said))
        self.is_full = self.is_full or said.code == FULL

    def publish(self) -> None:
        """Let a new folder be seen. Nothing more goes into it unseen."""
        fresh, laid = self._fresh, self._laid
        if fresh is None:
            return
        self._fresh, self._laid = None, []
        try:
            fresh.publish()
        except OSError:
            # Somebody else made that folder, or moved the one around it: each file finds its way by itself.
            for names, record in laid:
                try:
                    self._lay_alone(names, record)
                except (PaiError, OSError) as error:
                    self._note(record.name, error)
        finally:
            fresh.close()

    def close(self) -> None:
        if self._fresh is not None:
            self._fresh.close()

    def _fresh_folder(self, names: Names) -> UnpublishedFolder | None:
        if self._fresh is None or self._fresh.names != names:
            self.publish()
            if names not in self._folders:
                self._fresh = fresh_folder(self._storage, self._folders.who, names)
        return self._fresh

    def _lay_alone(self, names: Names, record: PackRecord) -> None:
        folder, name = self._folders.get(names[:-1], make=True), names[-1]
        self._count += 1
        aside = f"{self._prefix}{self._count:04x}"
        try:
            # Best it has no name yet: a disk then puts it beside the others of its folder, and nobody waits
            # for anybody, as all would who make files in one folder of ours.
            fd = os.open(".", _NAMELESS, 0o600, dir_fd=folder.fd)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            self._lay_by_name(aside, folder, name, record)
            return
        try:
            _fill(fd, self._folders, folder, record)
            own = f"/proc/self/fd/{fd}"
            try:
                os.link(own, name, dst_dir_fd=folder.fd)
            except FileExistsError:
                _refuse_unless_replaceable(self._folders, folder, name)
                with _lying_aside(self._storage.area, aside) as staging:
                    os.link(own, aside, dst_dir_fd=staging)
                    os.rename(aside, name, src_dir_fd=staging, dst_dir_fd=folder.fd)
        finally:
            os.close(fd)

    def _lay_by_name(self, aside: str, folder: Inode, name: str, record: PackRecord) -> None:
        with _lying_aside(self._storage.area, aside) as staging:
            fd = os.open(aside, _NEW, 0o600, dir_fd=staging)
            try:
                _fill(fd, self._folders, folder, record)
            finally:
                os.close(fd)
            try:
                rename_noreplace(staging, aside, folder.fd, name)
            except FileExistsError:
                _refuse_unless_replaceable(self._folders, folder, name)
                os.rename(aside, name, src_dir_fd=staging, dst_dir_fd=folder.fd)


class PathCache:
    """Paths below one, taken apart: those of a pack have few folders among them, looked at once each."""

    def __init__(self, base: str):
        self._base = names_of(base)
        self._known: dict[str, Names] = {}

    def names_of(self, path: str) -> Names:
        """As ``paths.names_of``."""
        way, _, name = path.rpartition("/")
        if not name or name == OWN or len(path) >= LONGEST_PATH:
            return (*self._base, *names_of("/" + path)) if path else self._base
        folder = self._known.get(way)
        if folder is None:
            folder = self._known[way] = (*self._base, *names_of(f"/{way}/{name}")[:-1])
        check_name(path, name)
        return (*folder, name)


def _refuse_unless_whole(record: PackRecord) -> None:
    if record.kind != FILE or record.algorithm >= len(ALGORITHMS):
        raise truncated_pack()
    if of_bytes(record.content, ALGORITHMS[record.algorithm]) != record.digest:
        raise truncated_pack()


def _fill(fd: int, folders: OpenFolderCache, folder: Inode, record: PackRecord) -> None:
    append(fd, record.content)
    whose = record_for(folder.record, folders.who, record.mode, is_folder=False)
    ownership.write(fd, whose, keeps=folders.tree.keeps_records)
    os.utime(fd, ns=(record.mtime_ns, record.mtime_ns))


@contextmanager
def _lying_aside(area: StagingArea, name: str) -> Iterator[int]:
    """The folder for it. Its time is the original's: whoever cleans must not take it for an old one."""
    staging = area.folder(STAGED)
    area.active.add(name)
    try:
        yield staging
    except BaseException:
        try:
            os.unlink(name, dir_fd=staging)
        except FileNotFoundError:
            pass
        raise
    finally:
        area.active.discard(name)


def _refuse_unless_replaceable(folders: OpenFolderCache, folder: Inode, name: str) -> None:
    node = folders.tree.child(folder, name)
    if node is None:
        check_may_add(folders.tree, folder, name, folders.who)
        return
    try:
        if node.folder:
            raise exists(node.path, " as a directory")
        node.refuse_unless(folders.who, Access.WRITE)
        check_removable(folders.who, folder, node)
    finally:
        os.close(node.fd)


def fetch(
    storage: Storage, who: StorageUser, base: str, wanted: Sequence[str], algorithm: str
) -> Iterator[bytes]:
    """The files by these names below ``base``, packed; one that cannot be had is a record that says why."""
    ways = PathCache(base)
    place = ALGORITHMS.index(algorithm)
    out: list[bytes] = []
    size = 0
    with OpenFolderCache(storage, who, Access.EXECUTE) as folders:
        for each in wanted:
            try:
                record, content = _read_one(folders, ways.names_of(each), each, place)
            except PaiError as error:
                content = error.message.encode()
                record = PackRecord(PROBLEM, each, content)
            out += (head(record), content)
            size += len(content)
            if size >= _CHUNK:
                yield b"".join(out)
                out, size = [], 0
    out.append(end(len(wanted)))
    yield b"".join(out)


def _read_one(folders: OpenFolderCache, names: Names, name: str, place: int) -> tuple[PackRecord, bytes]:
    if not names:
        raise is_a_folder("/")
    with disk_errors(name):
        folder = folders.get(names[:-1])
        node = folders.tree.child(folder, names[-1])
        if node is None:
            raise no_file(name)
        try:
            if node.folder:
                raise is_a_folder(name)
            node.refuse_unless(folders.who, Access.READ)
            fd = open_file(node, os.O_RDONLY)
        finally:
            os.close(node.fd)
        try:
            content = os.read(fd, SMALL + 1)
            status = os.fstat(fd)
        finally:
            os.close(fd)
    if len(content) != status.st_size or len(content) > SMALL:
        raise PaiError(f"{name} changed while it was read.", code="ChangedFileError", status=409)
    record = PackRecord(
        FILE,
        name,
        content,
        mode=node.record.mode & 0o777,
        mtime_ns=status.st_mtime_ns,
        digest=of_bytes(content, ALGORITHMS[place]),
        algorithm=place,
    )
    return record, content


def problem(name: str, error: PaiError) -> dict[str, Any]:
    shown = name.encode("utf-8", "backslashreplace").decode()
    return {"name": shown, "code": error.code, "message": error.message, "hint": error.hint}
