"""Backend of this machine's file system: local paths, and storages that are mounted here."""

from __future__ import annotations

import errno
import os
import stat
import sys

from openpaisdk.storage.backends.base import (
    MAX_PART_BYTES,
    PART_BYTES,
    Backend,
    already_exists_error,
    changed_error,
    content_key,
    error_from_oserror,
    not_found_error,
    part_size,
    split_ranges,
)
from openpaisdk.storage.backends.descriptor_io import DescriptorSource, DescriptorTarget
from openpaisdk.storage.backends.partial_files import (
    JOURNAL,
    list_partials,
    open_partial,
    remove_partial,
    remove_stale_partials,
)
from openpaisdk.storage.file_info import FileInfo
from paiprotocol.errors import NotFound, UsageError
from paiprotocol.transfer import hashing
from paiprotocol.transfer.ranges import hash_range, write_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from openpaisdk.storage.backends.base import Chunks, Range, SourceFile
    from openpaisdk.storage.file_info import DirectoryListing, FileStat

_BINARY = getattr(os, "O_BINARY", 0)
# Without O_NONBLOCK, opening a pipe that replaced a file would block until another process writes to it.
_READ_FLAGS = os.O_RDONLY | _BINARY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)

_TYPE_MASK = 0o170000
_MAX_DELETE_ATTEMPTS = 100
# Characters of a path, of which at most half are folders.
_CREATED_AT_ONCE = 400

_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_TMPFILE_FLAGS = _TMPFILE and _TMPFILE | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)


class LocalBackend(Backend):
    """A folder of this machine as a storage; with an empty root, all paths of the machine."""

    is_local = True

    def __init__(self, root: str = "", url: str = ""):
        self.root = root.rstrip("/")
        self.url = url
        self.umask = os.umask(0o077)
        os.umask(self.umask)
        self._partials: dict[str, list[str]] = {}

    def full_path(self, path: str) -> str:
        return self.root + path if self.root else path

    def status(self, path: str) -> FileInfo | None:
        full_path = self.full_path(path)
        try:
            return _file_info(os.path.basename(path.rstrip("/")), os.stat(full_path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as e:
            raise error_from_oserror(self.display_path(path), e) from None

    def list_folder(self, path: str) -> list[FileInfo]:
        try:
            with os.scandir(self.full_path(path)) as found:
                entries = []
                for item in found:
                    try:
                        entries.append(_file_info(item.name, _stat_of(item)))
                    except FileNotFoundError:
                        pass  # deleted since it was listed
        except OSError as e:
            raise error_from_oserror(self.display_path(path), e) from None
        entries.sort(key=lambda entry: entry.name)
        return entries

    def walk(self, path: str, max_files: int = 0) -> Iterator[DirectoryListing]:
        from openpaisdk.storage.local_walk import walk

        return walk(self.full_path(path), max_files=max_files)

    def open(self, path: str, file_stat: FileStat | None = None) -> LocalSource:
        return LocalSource(self.full_path(path), self.display_path(path), file_stat)

    def create(self, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True) -> LocalTarget:
        return LocalTarget(self, path, source_stat, key, overwrite=overwrite)

    def partials(self, folder: str) -> list[str]:
        """Partial files in a folder, listed once: the folder may hold very many files."""
        partials = self._partials.get(folder)
        if partials is None:
            partials = self._partials[folder] = list_partials(folder)
        return partials

    def is_special(self, path: str) -> bool:
        full_path = self.full_path(path)
        return os.path.exists(full_path) and not os.path.isfile(full_path) and not os.path.isdir(full_path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(self.full_path(path))

    def resolve(self, path: str) -> str:
        """Target of a link, as ``cp`` resolves it; links are not followed out of a mounted storage."""
        return os.path.realpath(path) if not self.root and os.path.islink(path) else path

    def canonical(self, path: str) -> str:
        return os.path.realpath(self.full_path(path))

    def make_folder(self, path: str) -> None:
        try:
            _make_folders(self.full_path(path))
        except OSError as e:
            raise error_from_oserror(self.display_path(path), e) from None

    def delete(self, path: str) -> None:
        full_path = self.full_path(path)
        for retries in reversed(range(_MAX_DELETE_ATTEMPTS)):
            try:
                if os.path.isdir(full_path) and not os.path.islink(full_path):
                    _remove_tree(full_path)
                else:
                    os.unlink(full_path)
            except FileNotFoundError as e:
                if not os.path.lexists(full_path):
                    raise NotFound(not_found_error(self.display_path(path)).message) from None
                if not retries:  # not just another process removing the same tree
                    raise error_from_oserror(self.display_path(path), e) from None
            except OSError as e:
                raise error_from_oserror(self.display_path(path), e) from None
            else:
                return

    def rename(self, path: str, target: str) -> None:
        try:
            os.rename(self.full_path(path), self.full_path(target))
        except OSError as e:
            raise error_from_oserror(self.display_path(path), e) from None

    def free_bytes(self, path: str) -> int | None:
        import shutil

        at = os.path.abspath(self.full_path(path))
        while not os.path.exists(at):
            at = os.path.dirname(at)
        try:
            return shutil.disk_usage(at).free
        except OSError:
            return None

    def display_path(self, path: str) -> str:
        return self.url + path if self.url else path

    def read_small(self, path: str, file_stat: FileStat) -> tuple[bytes, int, int]:
        try:
            fd = os.open(self.full_path(path), _READ_FLAGS)
            try:
                content = os.read(fd, file_stat[0] + 1)
                now = os.fstat(fd)
            finally:
                os.close(fd)
            is_same = (len(content), now.st_size, now.st_mtime_ns) == (file_stat[0], *file_stat[:2])
            if is_same and stat.S_ISREG(now.st_mode):
                return content, now.st_mtime_ns, stat.S_IMODE(now.st_mode)
        except OSError:
            pass
        return super().read_small(path, file_stat)

    def read_listed(self, base: str, files: Sequence[tuple[str, FileStat]]) -> list[bytes | None]:
        # Per file only what it needs: packs of small files spend most of their time here.
        prefix = self.full_path(base).rstrip("/") + "/"
        contents: list[bytes | None] = []
        for path, (size, mtime_ns, _) in files:
            content = None
            try:
                fd = os.open(prefix + path, _READ_FLAGS)
                try:
                    content = os.read(fd, size + 1)
                    now = os.fstat(fd)
                finally:
                    os.close(fd)
                if (
                    len(content) != size
                    or now.st_mtime_ns != mtime_ns
                    or now.st_size != size
                    or now.st_mode & _TYPE_MASK != stat.S_IFREG
                ):
                    content = None
            except OSError:
                content = None
            contents.append(content)
        return contents

    def write_bytes(
        self, path: str, content: bytes | memoryview, mtime_ns: int, mode: int, *, overwrite: bool = True
    ) -> None:
        if not overwrite:
            super().write_bytes(path, content, mtime_ns, mode, overwrite=False)
            return
        full_path = self.full_path(path)
        folder, name = os.path.split(full_path)
        mode = mode & 0o777 & ~self.umask | 0o200
        if not os.path.lexists(full_path) and self._write_unnamed(folder, full_path, content, mtime_ns, mode):
            return
        partial = ""
        try:
            try:
                partial, fd = open_partial(folder, name, "", mode)
            except FileNotFoundError:
                _make_folders(folder)
                partial, fd = open_partial(folder, name, "", mode)
            try:
                leftover = os.fstat(fd)
                if leftover.st_size:
                    os.ftruncate(fd, 0)
                if sys.platform != "win32" and stat.S_IMODE(leftover.st_mode) != mode:
                    os.fchmod(fd, mode)
                write_at(fd, content, 0)
                if sys.platform != "win32":
                    os.utime(fd, ns=(mtime_ns, mtime_ns))
                    os.replace(partial, full_path)  # while we hold the lock
            finally:
                os.close(fd)
            if sys.platform == "win32":
                os.utime(partial, ns=(mtime_ns, mtime_ns))
                os.replace(partial, full_path)
        except OSError as e:
            if partial:
                try:
                    remove_partial(partial)
                except OSError:
                    pass
            raise error_from_oserror(self.display_path(path), e) from None

    def _write_unnamed(
        self, folder: str, full_path: str, content: bytes | memoryview, mtime_ns: int, mode: int
    ) -> bool:
        """Write an unnamed file (O_TMPFILE) and link it to its name when complete; False if that fails.

        No other process can open such a file, so it needs no lock, and an interrupted one leaves nothing.
        """
        if not _TMPFILE_FLAGS:
            return False
        try:
            fd = os.open(folder, _TMPFILE_FLAGS, mode)
            try:
                write_at(fd, content, 0)
                os.utime(fd, ns=(mtime_ns, mtime_ns))
                # With src_dir_fd, although the path is absolute, Python calls linkat, which follows the link.
                os.link(f"/proc/self/fd/{fd}", full_path, src_dir_fd=fd)
            finally:
                os.close(fd)
        except OSError:
            return False  # missing folder, file system without O_TMPFILE, ...: use a partial file
        return True


class LocalSource(DescriptorSource):
    def __init__(self, full_path: str, display_path: str, file_stat: FileStat | None = None):
        self.full_path = full_path
        self.what = display_path
        try:
            self.fd = os.open(full_path, _READ_FLAGS)
        except FileNotFoundError:
            raise changed_error(display_path, "vanished") from None
        except OSError as e:
            raise error_from_oserror(display_path, e) from None
        self.opened = os.fstat(self.fd)
        if not stat.S_ISREG(self.opened.st_mode):
            os.close(self.fd)
            raise UsageError(f"{display_path} is not a file.")
        self.size = self.opened.st_size
        self.mtime_ns = self.opened.st_mtime_ns
        self.mode = stat.S_IMODE(self.opened.st_mode)
        self.key = content_key(full_path, self.size, self.mtime_ns, self.opened.st_ino, self.opened.st_dev)

    def check(self) -> None:
        try:
            now, named = os.fstat(self.fd), os.stat(self.full_path)
        except FileNotFoundError:
            raise changed_error(self.what, "vanished") from None
        for found in (now, named):
            if found.st_size > self.size:
                raise changed_error(self.what, "grew")
            if found.st_size < self.size:
                raise changed_error(self.what, "became shorter")
            if (found.st_mtime_ns, found.st_ino) != (self.opened.st_mtime_ns, self.opened.st_ino):
                raise changed_error(self.what)


class LocalTarget(DescriptorTarget):
    """Local target: a partial file with the bytes so far, and a journal of the completed parts.

    A file of one part, or of unknown size, has no journal and is not resumed.
    """

    def __init__(
        self, backend: LocalBackend, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True
    ):
        super().__init__()
        self.full_path = full_path = backend.full_path(path)
        self.what = display_path = backend.display_path(path)
        self.size, self.mtime_ns, self.mode = source_stat
        self.umask = backend.umask
        self.overwrite = overwrite
        self.is_one_part = 0 <= self.size <= PART_BYTES
        self.needs_digests = self.has_journal = self.size > PART_BYTES
        folder, name = os.path.split(full_path)
        self.partial = ""
        self.algorithm = hashing.preferred_algorithm()
        self.journal = -1
        try:
            if os.path.isdir(full_path):
                raise UsageError(f"{display_path} is a folder; a file cannot replace it.")
            if not overwrite and os.path.lexists(full_path):
                raise already_exists_error(display_path)
            _make_folders(folder or ".")
            self.partial, self.fd = open_partial(folder, name, "" if self.is_one_part else key, 0o600)
            if self.is_one_part:
                remove_stale_partials(folder, name, self.partial, backend.partials(folder))
                if os.fstat(self.fd).st_size:
                    os.ftruncate(self.fd, 0)
                return
            remove_stale_partials(folder, name, self.partial, list_partials(folder))
            if not self.has_journal:
                return
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _BINARY | getattr(os, "O_CLOEXEC", 0)
            self.journal = os.open(self.partial + JOURNAL, flags, 0o600)
        except OSError as e:
            self.close()
            raise error_from_oserror(display_path, e) from None

    def missing_ranges(self, max_bytes: int = MAX_PART_BYTES) -> list[Range]:
        done = self._verified_ranges()
        return [part for part in split_ranges(self.size, part_size(self.size, max_bytes)) if part not in done]

    def _verified_ranges(self) -> set[Range]:
        """Parts of the journal whose bytes match their hash: after a power cut they may not."""
        done: set[Range] = set()
        if not self.has_journal:
            return done
        with open(os.dup(self.journal), "rb") as f:
            lines = f.read().decode("ascii", "replace").splitlines()
        for line in lines:
            fields = line.split(" ")
            if len(fields) != 4 or fields[3] != "." or not (fields[0].isdecimal() and fields[1].isdecimal()):
                continue
            offset, length = int(fields[0]), int(fields[1])
            if fields[2] == self._digest(offset, length):
                done.add((offset, length))
        return done

    def _digest(self, offset: int, length: int) -> str:
        return hash_range(self.fd, offset, length, self.algorithm).hex()

    def put(
        self, offset: int, length: int, chunks: Callable[[], Chunks], source: SourceFile | None = None
    ) -> None:
        if source is None:
            self.write(offset, length, chunks(), None)
            return
        from openpaisdk.storage.backends.connection_pool import with_retries

        with_retries(lambda: self.write(offset, length, chunks(), source))

    def mark_written(self, offset: int, length: int, digest: bytes) -> None:
        if self.has_journal:
            os.write(self.journal, f"{offset} {length} {digest.hex()} .\n".encode())

    def finish(self, size: int) -> None:
        try:
            if size == 0:
                os.ftruncate(self.fd, 0)
            if os.fstat(self.fd).st_size != size:
                raise changed_error(self.what, "was truncated")
            if sys.platform == "win32":
                self.close()
            else:
                os.fchmod(self.fd, self.mode & 0o777 & ~self.umask)
            os.utime(self.partial, ns=(self.mtime_ns, self.mtime_ns))
            self._publish()  # while we hold the lock
            self._remove_journal()
            self.close()
        except FileExistsError:
            raise already_exists_error(self.what) from None
        except OSError as e:
            raise error_from_oserror(self.what, e) from None

    def _publish(self) -> None:
        if self.overwrite:
            os.replace(self.partial, self.full_path)
        elif sys.platform == "win32":
            os.rename(self.partial, self.full_path)  # on Windows it does not overwrite
        else:
            try:
                os.link(self.partial, self.full_path)
                os.unlink(self.partial)
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links: check, then rename
                if os.path.lexists(self.full_path):
                    raise FileExistsError(self.full_path) from None
                os.rename(self.partial, self.full_path)

    def close(self) -> None:
        super().close()
        if self.journal >= 0:
            os.close(self.journal)
            self.journal = -1

    def abandon(self) -> None:
        if sys.platform == "win32":
            self.close()
        try:
            os.unlink(self.partial)  # while we hold the lock
        except OSError:
            pass
        self._remove_journal()
        self.close()

    def _remove_journal(self) -> None:
        if not self.has_journal:
            return
        try:
            os.unlink(self.partial + JOURNAL)
        except OSError:
            pass


if sys.platform == "win32":

    def _remove_tree(full_path: str) -> None:
        import shutil

        shutil.rmtree(full_path)

else:

    def _remove_tree(full_path: str) -> None:
        import shutil

        from pairuntime.local_files.remove_tree import remove_folder

        try:
            shutil.rmtree(full_path)
        except (RecursionError, OSError) as e:
            # shutil.rmtree needs as many nested calls and open files as the tree is deep.
            if isinstance(e, OSError) and e.errno != errno.EMFILE:
                raise
        else:
            return
        folder, name = os.path.split(os.path.abspath(full_path))
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_folder(fd, name)
        finally:
            os.close(fd)


def _make_folders(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except RecursionError:
        # It needs as many nested calls as folders are missing: a few hundred of them at a time.
        at = 0
        while (at := path.find("/", at + _CREATED_AT_ONCE)) > 0:
            os.makedirs(path[:at], exist_ok=True)
        os.makedirs(path, exist_ok=True)


def _stat_of(item: os.DirEntry[str]) -> os.stat_result:
    """Stat of a link's target; of the link itself when it is broken or its target is not accessible."""
    try:
        return item.stat()
    except OSError:
        return item.stat(follow_symlinks=False)


def _file_info(name: str, status: os.stat_result) -> FileInfo:
    is_folder = stat.S_ISDIR(status.st_mode)
    owner, group = _lookup_owner(status.st_uid, status.st_gid)
    size = 0 if is_folder else status.st_size
    return FileInfo(name, is_folder, size, status.st_mtime_ns, stat.S_IMODE(status.st_mode), owner, group)


def _lookup_owner(uid: int, gid: int) -> tuple[str, str]:
    names = _owner_names.get((uid, gid))
    if names is None and sys.platform != "win32":
        import grp
        import pwd

        try:
            owner = pwd.getpwuid(uid).pw_name
        except KeyError:
            owner = str(uid)
        try:
            group = grp.getgrgid(gid).gr_name
        except KeyError:
            group = str(gid)
        names = _owner_names[(uid, gid)] = (owner, group)
    return names or ("", "")


_owner_names: dict[tuple[int, int], tuple[str, str]] = {}


__all__ = ["LocalBackend", "LocalSource", "LocalTarget"]
