"""``hdfs-mount ADDRESS FOLDER`` for tasks: the files of a storage as a folder, over WebHDFS and FUSE.

Without an option it stays in the foreground, like the program of that name: scripts start it with ``&``.
"""

import errno
import os
import posixpath
import re
import sys
import threading
import uuid

from pairuntime.fuse.file_system import Entry, FileSystem, OpenFile
from pairuntime.fuse.mount_point import (
    CONTAINER_HINT,
    Mount,
    MountError,
    check_available,
    check_folder,
    run_in_background,
)
from pairuntime.task.hdfs_paths import HdfsCommandError, resolve
from pairuntime.task.webhdfs import WebHdfsError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from types import TracebackType
    from typing import Any, BinaryIO, Callable

    from pairuntime.task.webhdfs import Storage

_USAGE = """\
usage: hdfs-mount [--background] [--read-only] ADDRESS FOLDER
ADDRESS is hdfs://HOST[:PORT]/path, HOST[:PORT], pai://here/0/path, or a path on the cluster's own storage.
Mounts it on an empty folder until the folder is unmounted (umount) or the task ends; with --background
it returns as soon as it is mounted. A file is on the storage when the program that writes it has closed it.
Reports of files that could not be written go to the standard error, with --background too.
"""
# The cluster starts the containers of its tasks.
_JOB_HINT = (
    "In a container, name the storage in extras.storages of the job, and the cluster mounts it; or copy the "
    "files: hdfs dfs -get."
)
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(:\d+)?")
_READ_ONLY = ("--read-only", "-readOnly", "--readOnly")
_ERRNO_BY_EXCEPTION = {
    "FileNotFoundException": errno.ENOENT,
    "AccessControlException": errno.EACCES,
    "SecurityException": errno.EACCES,
    "FileAlreadyExistsException": errno.EEXIST,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "DSQuotaExceededException": errno.EDQUOT,
    "NSQuotaExceededException": errno.EDQUOT,
}
_ERRNO_BY_STATUS = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 507: errno.ENOSPC}


def main(argv: "list[str]") -> "int":
    flags = [word for word in argv if word.startswith("-")]
    paths = [word for word in argv if not word.startswith("-")]
    if "-h" in flags or "--help" in flags:
        sys.stdout.write(_USAGE)
        return 0
    unknown = [flag for flag in flags if flag not in _READ_ONLY and flag != "--background"]
    if unknown:
        sys.stderr.write("hdfs-mount: there is no option %s.\n%s" % (unknown[0], _USAGE))
        return 2
    if len(paths) != 2:
        sys.stderr.write(_USAGE)
        return 2
    is_read_only = any(flag in _READ_ONLY for flag in flags)

    def run(on_mounted: "Callable[[], None]") -> "int":
        return _report_errors(lambda: _mount(paths[0], paths[1], is_read_only, on_mounted))

    if "--background" not in flags:
        return run(lambda: None)
    return run_in_background(run)


def _report_errors(work: "Callable[[], int]") -> "int":
    try:
        return work()
    except MountError as e:
        hint = _JOB_HINT if e.hint == CONTAINER_HINT else e.hint
        sys.stderr.write("hdfs-mount: %s\n" % " ".join(filter(None, (e.message, hint))))
    except (HdfsCommandError, WebHdfsError) as e:
        sys.stderr.write("hdfs-mount: %s\n" % e)
    except OSError as e:
        sys.stderr.write("hdfs-mount: %s\n" % (e.strerror or e))
    return 1


def _mount(address: "str", folder: "str", is_read_only: "bool", on_mounted: "Callable[[], None]") -> "int":
    check_available()
    path = check_folder(folder)
    named = "hdfs://%s/" % address if "://" not in address and _HOST.fullmatch(address) else address
    storage, where = resolve(named)
    status = storage.status(where)
    if status is None:
        raise HdfsCommandError("%s: there is no such folder." % address)
    if status["type"] != "DIRECTORY":
        raise HdfsCommandError("%s is a file; only a folder can be mounted." % address)
    mounted = Mount(WebHdfsFileSystem(storage, where, is_read_only), path, address, "hdfs")
    stopped_by = mounted.serve(on_mounted, _report)
    return 128 + stopped_by if stopped_by else 0


def _report(sentence: "str") -> "None":
    try:
        sys.stderr.write("hdfs-mount: %s\n" % sentence)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # stderr is closed; the mount stays


class WebHdfsFileSystem(FileSystem):
    """The files below one folder of a WebHDFS storage. Each thread has connections of its own."""

    def __init__(self, storage: "Storage", folder: "str", is_read_only: "bool" = False) -> "None":
        self._first = storage
        self._local = threading.local()
        self._folder = folder.rstrip("/")
        self.is_read_only = is_read_only

    @property
    def _storage(self) -> "Storage":
        if not hasattr(self._local, "storage"):
            self._local.storage = self._first.with_own_connections()
        return self._local.storage  # type: ignore[no-any-return]

    def _at(self, path: "str") -> "str":
        return (self._folder + path).rstrip("/") or "/"

    def status(self, path: "str") -> "Entry | None":
        with _AsErrno(path):
            status = self._storage.status(self._at(path))
        return None if status is None else _entry(posixpath.basename(path), status)

    def entries(self, path: "str") -> "list[Entry]":
        with _AsErrno(path):
            statuses = self._storage.entries(self._at(path))
        return [_entry(status["pathSuffix"], status) for status in statuses]

    def open(self, path: "str") -> "OpenFile":
        entry = self.status(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "not found", path)
        return _WebHdfsFile(self, self._at(path), entry)

    def read(self, at: "str", offset: "int", length: "int") -> "bytes":
        with _AsErrno(at):
            return self._storage.read_range(at, offset, length)

    def write(self, path: "str", source: "BinaryIO", mtime_ns: "int", mode: "int") -> "None":
        at = self._at(path)
        # A name of its own for each upload: several clients may write the same file.
        partial = posixpath.join(posixpath.dirname(at), ".%s._COPYING_" % uuid.uuid4().hex)
        with _AsErrno(path):
            try:
                self._storage.put_file(source, partial)
                self._storage.set_time(partial, mtime_ns)
                self._storage.replace(partial, at)
            except Exception:
                self._delete_if_reachable(partial)
                raise

    def _delete_if_reachable(self, at: "str") -> "None":
        try:
            self._storage.delete(at)
        except (WebHdfsError, OSError):
            pass  # the error that came before says why

    def make_folder(self, path: "str") -> "None":
        with _AsErrno(path):
            self._storage.make_folder(self._at(path))

    def delete_file(self, path: "str") -> "None":
        entry = self.status(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "not found", path)
        if entry.is_folder:
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        with _AsErrno(path):
            self._storage.delete(self._at(path))

    def delete_folder(self, path: "str") -> "None":
        if self.entries(path):
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        with _AsErrno(path):
            self._storage.delete(self._at(path))

    def rename(self, path: "str", target: "str") -> "None":
        with _AsErrno(path):
            self._storage.replace(self._at(path), self._at(target))


class _WebHdfsFile(OpenFile):
    def __init__(self, files: "WebHdfsFileSystem", at: "str", entry: "Entry") -> "None":
        self._files = files
        self._at = at
        self.size = entry.size
        self.mtime_ns = entry.mtime_ns

    def read(self, offset: "int", length: "int") -> "bytes":
        return self._files.read(self._at, offset, length)


def _entry(name: "str", status: "dict[str, Any]") -> "Entry":
    mode = int(str(status.get("permission") or "0"), 8)
    is_folder = status["type"] == "DIRECTORY"
    return Entry(name, is_folder, int(status["length"]), int(status["modificationTime"]) * 10**6, mode)


class _AsErrno:
    """Converts the storage's errors to OSErrors with the number that a program expects."""

    def __init__(self, path: "str") -> "None":
        self._path = path

    def __enter__(self) -> "None":
        pass

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        tb: "TracebackType | None",
    ) -> "None":
        if isinstance(error, WebHdfsError):
            number = _ERRNO_BY_EXCEPTION.get(error.kind) or _ERRNO_BY_STATUS.get(error.status, errno.EIO)
            raise OSError(number, os.strerror(number), self._path)
