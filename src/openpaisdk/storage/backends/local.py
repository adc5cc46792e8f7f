"""Files of this machine: local paths, and storages that are mounted here."""

from __future__ import annotations

import errno
import os
import stat
import sys

from openpaisdk.errors import NotFound, UsageError
from openpaisdk.fileio import hashing
from openpaisdk.fileio.ranges import digest_of, write_at
from openpaisdk.storage.backends.base import (
    LONGEST_PARTS,
    PART_BYTES,
    Backend,
    changed,
    is_there_already,
    key_of,
    no_such,
    part_bytes_of,
    parts,
    refused,
)
from openpaisdk.storage.backends.descriptor_io import DescriptorSource, DescriptorTarget
from openpaisdk.storage.backends.partial_files import (
    JOURNAL,
    drop,
    list_partials,
    open_partial,
    remove_stale_partials,
)
from openpaisdk.storage.file_info import FileInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.storage.backends.base import Chunks, Range, SourceFile
    from openpaisdk.storage.file_info import DirectoryListing, FileStat

_BINARY = getattr(os, "O_BINARY", 0)
# A pipe that stands where a file was would otherwise keep us waiting for somebody to write to it.
_READING = os.O_RDONLY | _BINARY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)

_TRIES = 100

_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_NAMELESS = _TMPFILE and _TMPFILE | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)


class LocalBackend(Backend):
    """A folder of this machine as a storage; with an empty root, the machine's own paths."""

    is_local = True

    def __init__(self, root: str = "", where: str = ""):
        self.root = root.rstrip("/")
        self.where = where
        self.umask = os.umask(0o077)
        os.umask(self.umask)
        self._unfinished: dict[str, list[str]] = {}

    def full(self, path: str) -> str:
        return self.root + path if self.root else path

    def status(self, path: str) -> FileInfo | None:
        full = self.full(path)
        try:
            return _entry(os.path.basename(path.rstrip("/")), os.stat(full))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as e:
            raise refused(self.shown(path), e) from None

    def listing(self, path: str) -> list[FileInfo]:
        try:
            with os.scandir(self.full(path)) as found:
                entries = []
                for item in found:
                    try:
                        entries.append(_entry(item.name, _stat_of(item)))
                    except FileNotFoundError:
                        pass  # gone since it was listed
        except OSError as e:
            raise refused(self.shown(path), e) from None
        entries.sort(key=lambda entry: entry.name)
        return entries

    def walk(self, path: str) -> Iterator[DirectoryListing]:
        from openpaisdk.storage.local_walk import walk

        return walk(self.full(path))

    def open(self, path: str, facts: FileStat | None = None) -> LocalSource:
        return LocalSource(self.full(path), self.shown(path), facts)

    def create(self, path: str, outgoing: FileStat, key: str, *, replacing: bool = True) -> LocalTarget:
        return LocalTarget(self, path, outgoing, key, replacing=replacing)

    def unfinished(self, folder: str) -> list[str]:
        """What others left in a folder, as it was at the first look: there may be very many files in it."""
        found = self._unfinished.get(folder)
        if found is None:
            found = self._unfinished[folder] = list_partials(folder)
        return found

    def is_special(self, path: str) -> bool:
        full = self.full(path)
        return os.path.exists(full) and not os.path.isfile(full) and not os.path.isdir(full)

    def is_link(self, path: str) -> bool:
        return os.path.islink(self.full(path))

    def resolve(self, path: str) -> str:
        """Where a link leads to, as ``cp`` has it; a mounted storage is not left that way."""
        return os.path.realpath(path) if not self.root and os.path.islink(path) else path

    def canonical(self, path: str) -> str:
        return os.path.realpath(self.full(path))

    def make_folder(self, path: str) -> None:
        try:
            os.makedirs(self.full(path), exist_ok=True)
        except OSError as e:
            raise refused(self.shown(path), e) from None

    def delete(self, path: str) -> None:
        full = self.full(path)
        for left in reversed(range(_TRIES)):
            try:
                if os.path.isdir(full) and not os.path.islink(full):
                    _remove_tree(full)
                else:
                    os.unlink(full)
            except FileNotFoundError as e:
                if not os.path.lexists(full):
                    raise NotFound(no_such(self.shown(path)).message) from None
                if not left:  # not only somebody else who removes the same
                    raise refused(self.shown(path), e) from None
            except OSError as e:
                raise refused(self.shown(path), e) from None
            else:
                return

    def rename(self, path: str, target: str) -> None:
        try:
            os.rename(self.full(path), self.full(target))
        except OSError as e:
            raise refused(self.shown(path), e) from None

    def free_bytes(self, path: str) -> int | None:
        import shutil

        at = os.path.abspath(self.full(path))
        while not os.path.exists(at):
            at = os.path.dirname(at)
        try:
            return shutil.disk_usage(at).free
        except OSError:
            return None

    def shown(self, path: str) -> str:
        return self.where + path if self.where else path

    def read_small(self, path: str, facts: FileStat) -> tuple[bytes, int, int]:
        try:
            fd = os.open(self.full(path), _READING)
            try:
                content = os.read(fd, facts[0] + 1)
                now = os.fstat(fd)
            finally:
                os.close(fd)
            is_same = (len(content), now.st_size, now.st_mtime_ns) == (facts[0], *facts[:2])
            if is_same and stat.S_ISREG(now.st_mode):
                return content, now.st_mtime_ns, stat.S_IMODE(now.st_mode)
        except OSError:
            pass
        return super().read_small(path, facts)

    def write_small(self, path: str, content: bytes | memoryview, mtime_ns: int, mode: int) -> None:
        """A small file, whole or not at all."""
        full = self.full(path)
        folder, name = os.path.split(full)
        mode = mode & 0o777 & ~self.umask | 0o200
        if not os.path.lexists(full) and self._appears(folder, full, content, mtime_ns, mode):
            return
        aside = ""
        try:
            try:
                aside, fd = open_partial(folder, name, "", mode)
            except FileNotFoundError:
                os.makedirs(folder, exist_ok=True)
                aside, fd = open_partial(folder, name, "", mode)
            try:
                left = os.fstat(fd)
                if left.st_size:
                    os.ftruncate(fd, 0)
                if sys.platform != "win32" and stat.S_IMODE(left.st_mode) != mode:
                    os.fchmod(fd, mode)
                write_at(fd, content, 0)
                if sys.platform != "win32":
                    os.utime(fd, ns=(mtime_ns, mtime_ns))
                    os.replace(aside, full)  # while it is ours alone
            finally:
                os.close(fd)
            if sys.platform == "win32":
                os.utime(aside, ns=(mtime_ns, mtime_ns))
                os.replace(aside, full)
        except OSError as e:
            if aside:
                try:
                    drop(aside)
                except OSError:
                    pass
            raise refused(self.shown(path), e) from None

    def _appears(self, folder: str, full: str, content: bytes | memoryview, mtime_ns: int, mode: int) -> bool:
        """Whether it could be made without a name, and get one as it was whole, where there was none.

        Nobody else can be at such a file, so it needs no lock, and nothing is left of an interrupted one.
        """
        if not _NAMELESS:
            return False
        try:
            fd = os.open(folder, _NAMELESS, mode)
            try:
                write_at(fd, content, 0)
                os.utime(fd, ns=(mtime_ns, mtime_ns))
                # With a folder to begin from, which a whole path does not need, the link in it is followed.
                os.link(f"/proc/self/fd/{fd}", full, src_dir_fd=fd)
            finally:
                os.close(fd)
        except OSError:
            return False  # the folder is not there yet, the disk has no such files, ...: by the other way
        return True


class LocalSource(DescriptorSource):
    def __init__(self, full: str, shown: str, facts: FileStat | None = None):
        self.full = full
        self.what = shown
        try:
            self.fd = os.open(full, _READING)
        except FileNotFoundError:
            raise changed(shown, "vanished") from None
        except OSError as e:
            raise refused(shown, e) from None
        self.opened = os.fstat(self.fd)
        if not stat.S_ISREG(self.opened.st_mode):
            os.close(self.fd)
            raise UsageError(f"{shown} is not a file.")
        self.size = self.opened.st_size
        self.mtime_ns = self.opened.st_mtime_ns
        self.mode = stat.S_IMODE(self.opened.st_mode)
        self.key = key_of(full, self.size, self.mtime_ns, self.opened.st_ino, self.opened.st_dev)

    def check(self) -> None:
        try:
            now, named = os.fstat(self.fd), os.stat(self.full)
        except FileNotFoundError:
            raise changed(self.what, "vanished") from None
        for found in (now, named):
            if found.st_size > self.size:
                raise changed(self.what, "grew")
            if found.st_size < self.size:
                raise changed(self.what, "became shorter")
            if (found.st_mtime_ns, found.st_ino) != (self.opened.st_mtime_ns, self.opened.st_ino):
                raise changed(self.what)


class LocalTarget(DescriptorTarget):
    """Beside the target: the bytes so far, and a journal that says which parts are whole.

    What has one part only needs no journal, and nothing of it is taken up.
    """

    def __init__(
        self, backend: LocalBackend, path: str, outgoing: FileStat, key: str, *, replacing: bool = True
    ):
        super().__init__()
        self.full = full = backend.full(path)
        self.what = shown = backend.shown(path)
        self.size, self.mtime_ns, self.mode = outgoing
        self.umask = backend.umask
        self.replacing = replacing
        self.is_one_part = 0 <= self.size <= PART_BYTES
        folder, name = os.path.split(full)
        self.part = ""
        self.algorithm = hashing.preferred()
        self.journal = -1
        try:
            if os.path.isdir(full):
                raise UsageError(f"{shown} is a folder, and a file was to take its place.")
            if not replacing and os.path.lexists(full):
                raise is_there_already(shown)
            os.makedirs(folder or ".", exist_ok=True)
            self.part, self.fd = open_partial(folder, name, "" if self.is_one_part else key, 0o600)
            if self.is_one_part:
                remove_stale_partials(folder, name, self.part, backend.unfinished(folder))
                if os.fstat(self.fd).st_size:
                    os.ftruncate(self.fd, 0)
                return
            remove_stale_partials(folder, name, self.part, list_partials(folder))
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _BINARY | getattr(os, "O_CLOEXEC", 0)
            self.journal = os.open(self.part + JOURNAL, flags, 0o600)
        except OSError as e:
            self.close()
            raise refused(shown, e) from None

    def missing(self, longest: int = LONGEST_PARTS) -> list[Range]:
        done = self._verified()
        return [part for part in parts(self.size, part_bytes_of(self.size, longest)) if part not in done]

    def _verified(self) -> set[Range]:
        """The parts the journal has that are really there: after a power cut they may not be."""
        done: set[Range] = set()
        if self.is_one_part:
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
        return digest_of(self.fd, offset, length, self.algorithm).hex()

    def put(
        self, offset: int, length: int, chunks: Callable[[], Chunks], source: SourceFile | None = None
    ) -> None:
        if source is None:
            self.write(offset, length, chunks(), None)
            return
        from openpaisdk.storage.backends.connection_pool import with_retries

        with_retries(lambda: self.write(offset, length, chunks(), source))

    def mark(self, offset: int, length: int, digest: bytes) -> None:
        if not self.is_one_part:
            os.write(self.journal, f"{offset} {length} {digest.hex()} .\n".encode())

    def finish(self, size: int) -> None:
        try:
            if size == 0:
                os.ftruncate(self.fd, 0)
            if os.fstat(self.fd).st_size != size:
                raise changed(self.what, "was cut")
            if sys.platform == "win32":
                self.close()
            else:
                os.fchmod(self.fd, self.mode & 0o777 & ~self.umask)
            os.utime(self.part, ns=(self.mtime_ns, self.mtime_ns))
            self._take_place()  # while it is ours alone
            self._strike()
            self.close()
        except FileExistsError:
            raise is_there_already(self.what) from None
        except OSError as e:
            raise refused(self.what, e) from None

    def _take_place(self) -> None:
        if self.replacing:
            os.replace(self.part, self.full)
        elif sys.platform == "win32":
            os.rename(self.part, self.full)  # which replaces nothing there
        else:
            try:
                os.link(self.part, self.full)
                os.unlink(self.part)
            except FileExistsError:
                raise
            except OSError:  # a disk without such links: what can be seen now has to do
                if os.path.lexists(self.full):
                    raise FileExistsError(self.full) from None
                os.rename(self.part, self.full)

    def close(self) -> None:
        super().close()
        if self.journal >= 0:
            os.close(self.journal)
            self.journal = -1

    def abandon(self) -> None:
        if sys.platform == "win32":
            self.close()
        try:
            os.unlink(self.part)  # while it is ours alone
        except OSError:
            pass
        self._strike()
        self.close()

    def _strike(self) -> None:
        if self.is_one_part:
            return
        try:
            os.unlink(self.part + JOURNAL)
        except OSError:
            pass


if sys.platform == "win32":

    def _remove_tree(full: str) -> None:
        import shutil

        shutil.rmtree(full)

else:

    def _remove_tree(full: str) -> None:
        import shutil

        from openpaisdk.fileio.remove_tree import remove_folder

        try:
            shutil.rmtree(full)
        except (RecursionError, OSError) as e:
            # It takes as many calls and open files as the tree is deep.
            if isinstance(e, OSError) and e.errno != errno.EMFILE:
                raise
        else:
            return
        folder, name = os.path.split(os.path.abspath(full))
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_folder(fd, name)
        finally:
            os.close(fd)


def _stat_of(item: os.DirEntry[str]) -> os.stat_result:
    """Of a link what it leads to; of one that leads nowhere, or where we may not look, the link itself."""
    try:
        return item.stat()
    except OSError:
        return item.stat(follow_symlinks=False)


def _entry(name: str, found: os.stat_result) -> FileInfo:
    is_folder = stat.S_ISDIR(found.st_mode)
    owner, group = _names(found.st_uid, found.st_gid)
    size = 0 if is_folder else found.st_size
    return FileInfo(name, is_folder, size, found.st_mtime_ns, stat.S_IMODE(found.st_mode), owner, group)


def _names(uid: int, gid: int) -> tuple[str, str]:
    found = _known.get((uid, gid))
    if found is None and sys.platform != "win32":
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
        found = _known[(uid, gid)] = (owner, group)
    return found or ("", "")


_known: dict[tuple[int, int], tuple[str, str]] = {}


__all__ = ["LocalBackend", "LocalSource", "LocalTarget"]
