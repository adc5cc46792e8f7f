"""Packs of small files: write, read, bulk delete. Each file succeeds or fails independently of the others."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paicluster.files import Access, Storage, StorageUser
from paicluster.files.atomic_io import append, rename_noreplace
from paicluster.files.directories import check_may_add, check_removable, inherit_ownership
from paicluster.files.errors import (
    FULL,
    QUOTA_EXCEEDED,
    bad_path,
    disk_errors,
    exists,
    from_os_error,
    is_a_folder,
    no_file,
)
from paicluster.files.namespace import Inode, open_file
from paicluster.files.ownership import write_ownership
from paicluster.files.paths import INTERNAL_FOLDER, MAX_PATH_LENGTH, Names, check_name, split_path
from paicluster.files.staging import STAGED, StagingArea
from paicluster.files.transfer.open_folders import OpenFolderCache
from paicluster.files.transfer.unpublished_folder import UnpublishedFolder, open_unpublished
from paicluster.files.usage import check_disk
from paiprotocol.errors import PaiError
from paiprotocol.transfer.hashing import ALGORITHMS, hash_bytes
from paiprotocol.transfer.pack_format import (
    FILE,
    FOLDER,
    MAX_PACKED_FILE_BYTES,
    PROBLEM,
    PackRecord,
    end_record,
    read_pack,
    record_header,
    truncated_pack,
)
from pairuntime.local_files.syscall_lock import SyscallLock

_CHUNK_BYTES = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_UNNAMED = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC
# Errors of file systems without O_TMPFILE.
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_write_lock = SyscallLock()


def write_pack(
    storage: Storage, user: StorageUser, base: str, pack: bytes, *, overwrite: bool = True
) -> list[dict[str, Any]]:
    """Write every file of a pack below ``base``; returns one problem for each file that failed.

    Without ``overwrite`` a file that exists is a problem, unless its size and time are those of the record:
    a pack that is sent again finds its own files.
    """
    check_disk(storage.namespace.fd, len(pack), base)
    with _write_lock.held():
        records = list(read_pack(pack))  # a truncated pack is rejected as a whole
        with OpenFolderCache(storage, user, Access.WRITE | Access.EXECUTE) as folders:
            writer = PackWriter(storage, folders, PathCache(base), overwrite=overwrite)
            try:
                for record in records:
                    writer.write(record)
                    if writer.is_full:
                        break
                writer.publish()
            finally:
                writer.close()
        return writer.problems


class PackWriter:
    """Writes the files of a pack one after the other."""

    def __init__(self, storage: Storage, folders: OpenFolderCache, paths: PathCache, *, overwrite: bool):
        self._storage = storage
        self._folders = folders
        self._paths = paths
        self._overwrite = overwrite
        self._prefix = secrets.token_hex(12)
        self._count = 0
        # New folder that the last file was written to, not published yet, and the files written to it.
        self._unpublished: UnpublishedFolder | None = None
        self._unpublished_files: list[tuple[Names, PackRecord]] = []
        self.problems: list[dict[str, Any]] = []
        self.is_full = False

    def write(self, record: PackRecord) -> None:
        """Write one file. A failure is recorded in ``problems``."""
        try:
            self._write(record)
        except (PaiError, OSError) as error:
            self._add_problem(record.name, error)

    def _write(self, record: PackRecord) -> None:
        names = self._paths.split(record.name)
        if record.kind == FOLDER:
            self.publish()
            self._folders.get(names, create=True)
            return
        _check_digest(record)
        if not names:
            raise is_a_folder("/")
        folder = self._unpublished_folder(names[:-1])
        if folder is None:
            self._write_single(names, record)
            return
        try:
            folder.create_file(names[-1], lambda fd: self._fill(fd, folder.inode, record))
        except FileExistsError:  # the pack contains it twice
            self.publish()
            self._write_single(names, record)
        else:
            self._unpublished_files.append((names, record))

    def _add_problem(self, name: str, error: PaiError | OSError) -> None:
        pai_error = error if isinstance(error, PaiError) else from_os_error(error, name)
        self.problems.append(problem(name, pai_error))
        self.is_full = self.is_full or pai_error.code in (FULL, QUOTA_EXCEEDED)

    def publish(self) -> None:
        """Publish the new folder, if there is one. Later files are written to it one by one."""
        folder, files = self._unpublished, self._unpublished_files
        if folder is None:
            return
        self._unpublished, self._unpublished_files = None, []
        try:
            folder.publish()
        except OSError:
            # Another client created the folder, or moved its parent: write each file on its own.
            for names, record in files:
                try:
                    self._write_single(names, record)
                except (PaiError, OSError) as error:
                    self._add_problem(record.name, error)
        finally:
            folder.close()

    def close(self) -> None:
        if self._unpublished is not None:
            self._unpublished.close()

    def _unpublished_folder(self, names: Names) -> UnpublishedFolder | None:
        if self._unpublished is None or self._unpublished.names != names:
            self.publish()
            if names not in self._folders:
                self._unpublished = open_unpublished(self._storage, self._folders.user, names)
        return self._unpublished

    def _write_single(self, names: Names, record: PackRecord) -> None:
        folder, name = self._folders.get(names[:-1], create=True), names[-1]
        self._count += 1
        staging_name = f"{self._prefix}{self._count:04x}"
        try:
            # Preferably an unnamed file (O_TMPFILE) in the target folder: the file system allocates it near
            # the other files of the folder, and concurrent writers do not contend for the staging folder's
            # lock.
            fd = os.open(".", _UNNAMED, 0o600, dir_fd=folder.fd)
        except OSError as error:
            if error.errno not in _NO_TMPFILE:
                raise
            self._write_named(staging_name, folder, name, record)
            return
        try:
            self._fill(fd, folder, record)
            proc_path = f"/proc/self/fd/{fd}"
            try:
                os.link(proc_path, name, dst_dir_fd=folder.fd)
            except FileExistsError:
                if not self._replaces(folder, name, record):
                    return
                with _staging_entry(self._storage.staging_area, staging_name) as staging:
                    os.link(proc_path, staging_name, dst_dir_fd=staging)
                    os.rename(staging_name, name, src_dir_fd=staging, dst_dir_fd=folder.fd)
        finally:
            os.close(fd)

    def _fill(self, fd: int, folder: Inode, record: PackRecord) -> None:
        """Write a file's content, ownership and time."""
        self._storage.usage.charge(self._folders.user.name, len(record.content), record.name)
        try:
            append(fd, record.content)
            ownership = inherit_ownership(folder.ownership, self._folders.user, record.mode, is_folder=False)
            write_ownership(fd, ownership, has_xattrs=self._folders.namespace.has_xattrs)
            os.utime(fd, ns=(record.mtime_ns, record.mtime_ns))
        except BaseException:
            self._storage.usage.release(self._folders.user.name, len(record.content))
            raise

    def _replaces(self, folder: Inode, name: str, record: PackRecord) -> bool:
        """Whether to replace the file that is there, whose bytes then count no longer; or an error.

        False: it is the record's file, written before.
        """
        user, charged = self._folders.user.name, len(record.content)
        try:
            replaced = _check_replaceable(self._folders, folder, name)
            if is_written := replaced is not None and not self._overwrite:
                _check_same(replaced, record)
        except BaseException:
            self._storage.usage.release(user, charged)
            raise
        if is_written:
            self._storage.usage.release(user, charged)
        elif replaced is not None:
            self._storage.usage.release(replaced.ownership.owner, replaced.status.st_size)
        return not is_written

    def _write_named(self, staging_name: str, folder: Inode, name: str, record: PackRecord) -> None:
        with _staging_entry(self._storage.staging_area, staging_name) as staging:
            fd = os.open(staging_name, _NEW, 0o600, dir_fd=staging)
            try:
                self._fill(fd, folder, record)
            finally:
                os.close(fd)
            try:
                rename_noreplace(staging, staging_name, folder.fd, name)
            except FileExistsError:
                if not self._replaces(folder, name, record):
                    os.unlink(staging_name, dir_fd=staging)
                    return
                os.rename(staging_name, name, src_dir_fd=staging, dst_dir_fd=folder.fd)


class PathCache:
    """Split paths below a base path.

    The paths of a pack share few folders; each is split and checked once.
    """

    def __init__(self, base: str):
        self._base = split_path(base)
        self._folders: dict[str, Names] = {}

    def split(self, path: str) -> Names:
        """Like `paths.split_path`."""
        parent, _, name = path.rpartition("/")
        if not name or name == INTERNAL_FOLDER or len(path) >= MAX_PATH_LENGTH:
            return (*self._base, *split_path("/" + path)) if path else self._base
        folder = self._folders.get(parent)
        if folder is None:
            folder = self._folders[parent] = (*self._base, *split_path(f"/{parent}/{name}")[:-1])
        check_name(path, name)
        return (*folder, name)


def _check_digest(record: PackRecord) -> None:
    if record.kind != FILE or record.algorithm >= len(ALGORITHMS):
        raise truncated_pack()
    if hash_bytes(record.content, ALGORITHMS[record.algorithm]) != record.digest:
        raise truncated_pack()


@contextmanager
def _staging_entry(area: StagingArea, name: str) -> Iterator[int]:
    """Staging folder for a file of this name.

    The name is marked active: the file has the original's mtime, so cleanup would take it for an expired one.
    """
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


def _check_replaceable(folders: OpenFolderCache, folder: Inode, name: str) -> Inode | None:
    """The file to be replaced, closed; None when there is none any more."""
    inode = folders.namespace.child(folder, name)
    if inode is None:
        check_may_add(folders.namespace, folder, name, folders.user)
        return None
    try:
        if inode.is_folder:
            raise exists(inode.path, " as a directory")
        inode.check_access(folders.user, Access.WRITE)
        check_removable(folders.user, folder, inode)
    finally:
        os.close(inode.fd)
    return inode


def _check_same(inode: Inode, record: PackRecord) -> None:
    """Raise unless the file has the size and time of the record."""
    if (inode.status.st_size, inode.status.st_mtime_ns) != (len(record.content), record.mtime_ns):
        raise exists(inode.path)


def read_files(
    storage: Storage, user: StorageUser, base: str, names: Sequence[str], algorithm: str
) -> Iterator[bytes]:
    """Pack the files with these names below ``base``; a file that cannot be read becomes a PROBLEM record."""
    paths = PathCache(base)
    algorithm_index = ALGORITHMS.index(algorithm)
    chunk: list[bytes] = []
    size = 0
    with OpenFolderCache(storage, user, Access.EXECUTE) as folders:
        for name in names:
            try:
                record, content = _read_file(folders, paths.split(name), name, algorithm_index)
            except PaiError as error:
                content = error.message.encode()
                record = PackRecord(PROBLEM, name, content)
            chunk += (record_header(record), content)
            size += len(content)
            if size >= _CHUNK_BYTES:
                yield b"".join(chunk)
                chunk, size = [], 0
    chunk.append(end_record(len(names)))
    yield b"".join(chunk)


def _read_file(
    folders: OpenFolderCache, names: Names, name: str, algorithm_index: int
) -> tuple[PackRecord, bytes]:
    if not names:
        raise is_a_folder("/")
    with disk_errors(name):
        folder = folders.get(names[:-1])
        inode = folders.namespace.child(folder, names[-1])
        if inode is None:
            raise no_file(name)
        try:
            if inode.is_folder:
                raise is_a_folder(name)
            inode.check_access(folders.user, Access.READ)
            fd = open_file(inode, os.O_RDONLY)
        finally:
            os.close(inode.fd)
        try:
            content = os.read(fd, MAX_PACKED_FILE_BYTES + 1)
            status = os.fstat(fd)
        finally:
            os.close(fd)
    if len(content) != status.st_size or len(content) > MAX_PACKED_FILE_BYTES:
        raise PaiError(f"{name} changed while it was read.", code="ChangedFileError", status=409)
    record = PackRecord(
        FILE,
        name,
        content,
        mode=inode.ownership.mode & 0o777,
        mtime_ns=status.st_mtime_ns,
        digest=hash_bytes(content, ALGORITHMS[algorithm_index]),
        algorithm=algorithm_index,
    )
    return record, content


def problem(name: str, error: PaiError) -> dict[str, Any]:
    """Failure of one file, as clients get it."""
    shown = name.encode("utf-8", "backslashreplace").decode()
    return {"name": shown, "code": error.code, "message": error.message, "hint": error.hint}


def bulk_delete(storage: Storage, user: StorageUser, base: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """Delete these names below ``base`` recursively, in one request instead of one for each.

    A name that does not exist is not an error. Returns one problem for each name that failed.
    """
    problems = []
    for name in names:
        try:
            if not name.strip("/"):
                raise bad_path(name, "it is empty")
            storage.delete(f"{base.rstrip('/')}/{name}", user, recursive=True)
        except PaiError as error:
            if error.status != 404:
                problems.append(problem(name, error))
    return problems
