"""Tar archive of folders that other processes change meanwhile, and whose owners may be hostile.

Every file is opened by its name in its open folder, without following links, and looked at through its
descriptor: what is exchanged for a link in between is never followed. What is not saved is listed.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import IO

# Prefix of extended attributes in tar programs; they hold the owners of files in the storage.
ATTRIBUTE = "SCHILY.xattr."

# A folder of each level is open during the walk; a process may open 1024 files.
_MAX_DEPTH = 200
# Bytes of a path in the archive: with the folder it is restored to, it must stay below PATH_MAX (4096).
_MAX_NAME_BYTES = 3000
# Bytes of one file's attributes: they are part of a header, which readers hold in memory.
_MAX_ATTRIBUTE_BYTES = 32 << 10
# Parts with data of one sparse file: their list is read into memory.
_MAX_PARTS = 10_000
# Files that were not saved are counted; so many of them are named.
_MAX_NAMED = 1000
# Modification times are kept in this range (until the year 2242): later ones cannot be set on all systems.
_MAX_TIME_S = 1 << 33

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: opening a pipe would otherwise wait for its writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_CHANGED = "it changed while it was saved"


@dataclass(slots=True)
class NotSaved:
    """Files that could not be saved, with the reasons."""

    count: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, reason: str) -> None:
        self.count += 1
        if len(self.named) < _MAX_NAMED:
            self.named.append((name, reason))


class TreeArchive:
    """Adds files and folders to a tar file; ``not_saved`` lists what could not be added.

    ``is_excluded(name)`` selects what is left out on purpose, by its name in the archive.
    """

    def __init__(self, archive: tarfile.TarFile, is_excluded: Callable[[str], bool] = lambda name: False):
        self.not_saved = NotSaved()
        self._archive = archive
        self._is_excluded = is_excluded

    def add(self, parent: int, name: str, *, hard_links: bool = False) -> None:
        """Add a file or a folder with its content, by its name in an open folder.

        ``hard_links``: also save files with several links. Only for folders that users cannot write to:
        there, a user could link to a file of another user.
        """
        walk = [self._open(parent, name, name, hard_links)]
        try:
            while walk:
                folder = walk[-1]
                entry = None if folder is None else next(folder.entries, None)
                if folder is None or entry is None:
                    walk.pop()
                    if folder is not None:
                        folder.close()
                    continue
                inner = f"{folder.name}/{entry.name}"
                if not self._is_excluded(inner):
                    if len(walk) > _MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                        self.not_saved.add(inner, f"it is nested more than {_MAX_DEPTH} folders deep")
                        continue
                    walk.append(self._open(folder.fd, entry.name, inner, hard_links))
        finally:
            for folder in walk:
                if folder is not None:
                    folder.close()

    def _open(self, parent: int, name: str, saved_name: str, hard_links: bool) -> _Folder | None:
        """Save one entry; a folder is returned open, to save its content."""
        if len(os.fsencode(saved_name)) > _MAX_NAME_BYTES:
            self.not_saved.add(saved_name[:200] + "…", f"its path is longer than {_MAX_NAME_BYTES} bytes")
            return None
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                return self._open_folder(parent, name, saved_name)
            if stat.S_ISLNK(status.st_mode):
                self._add_link(os.readlink(name, dir_fd=parent), saved_name, status)
            elif not stat.S_ISREG(status.st_mode):
                self.not_saved.add(saved_name, "it is a pipe, a socket or a device")
            else:
                self._add_file(parent, name, saved_name, hard_links)
        except FileNotFoundError:
            pass  # deleted meanwhile, as files of running jobs are
        except OSError as error:
            self.not_saved.add(saved_name, error.strerror or str(error))
        return None

    def _open_folder(self, parent: int, name: str, saved_name: str) -> _Folder:
        fd = os.open(name, _FOLDER, dir_fd=parent)
        try:
            member = _member(saved_name, os.fstat(fd), tarfile.DIRTYPE)
            self._add_member(member, self._attributes(fd, saved_name))
            return _Folder(fd, saved_name)
        except BaseException:
            os.close(fd)
            raise

    def _add_link(self, target: str, saved_name: str, status: os.stat_result) -> None:
        member = _member(saved_name, status, tarfile.SYMTYPE)
        member.linkname = target
        self._add_member(member, {})

    def _add_file(self, parent: int, name: str, saved_name: str, hard_links: bool) -> None:
        with open(os.open(name, _FILE, dir_fd=parent), "rb", buffering=0) as file:
            # Of the open file: the name may mean another one by now.
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                self.not_saved.add(saved_name, _CHANGED)
            elif status.st_nlink != 1 and not hard_links:
                if status.st_nlink:  # else deleted meanwhile
                    self.not_saved.add(saved_name, "it has several names (hard links)")
            else:
                self._add_content(file, saved_name, status)

    def _add_content(self, file: IO[bytes], saved_name: str, status: os.stat_result) -> None:
        member = _member(saved_name, status, tarfile.REGTYPE)
        headers = self._attributes(file.fileno(), saved_name)
        parts = [(0, status.st_size)]
        if status.st_blocks * 512 < status.st_size:
            parts = _parts_with_data(file.fileno(), status.st_size)
        if len(parts) > _MAX_PARTS:
            self.not_saved.add(saved_name, f"it is a sparse file of more than {_MAX_PARTS} parts")
            return
        # What the file grows by from here on is left out.
        content = _Content(file, parts)
        if parts == [(0, status.st_size)]:
            member.size = status.st_size
            self._add_member(member, headers, content)
            return
        content.put_first(_sparse_map(parts))
        headers |= {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": saved_name,
            "GNU.sparse.realsize": str(status.st_size),
        }
        member.size = content.size
        self._add_member(member, headers, content)

    def _attributes(self, fd: int, saved_name: str) -> dict[str, str]:
        """The file's extended attributes as headers."""
        headers: dict[str, str] = {}
        size = 0
        try:
            names = [name for name in os.listxattr(fd) if name.startswith("user.")]
        except OSError:
            return headers  # a file system without attributes
        for name in names:
            try:
                value = os.getxattr(fd, name).decode()
            except (OSError, UnicodeDecodeError):
                continue  # removed meanwhile; or binary, which the server's own are not
            size += len(name) + len(value)
            if size > _MAX_ATTRIBUTE_BYTES:
                self.not_saved.add(saved_name, f"its attributes have more than {_MAX_ATTRIBUTE_BYTES} bytes")
                break
            headers[f"{ATTRIBUTE}{name}"] = value
        return headers

    def _add_member(
        self, member: tarfile.TarInfo, headers: dict[str, str], content: _Content | None = None
    ) -> None:
        member.pax_headers = headers
        self._archive.addfile(member, content)  # type: ignore[arg-type]
        # The library remembers all members, which only readers need.
        self._archive.members.clear()  # type: ignore[attr-defined]


class _Folder:
    """A folder whose entries are being saved."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self.name = name
        self.entries = os.scandir(fd)

    def close(self) -> None:
        self.entries.close()
        os.close(self.fd)


class _Content:
    """Reader of some parts of a file, padded with zeros if the file was truncated meanwhile."""

    def __init__(self, file: IO[bytes], parts: list[tuple[int, int]]) -> None:
        self._fd = file.fileno()
        self._first = BytesIO()
        self._parts = list(reversed(parts))
        self.size = sum(size for _, size in parts)

    def put_first(self, data: bytes) -> None:
        self._first = BytesIO(data)
        self.size += len(data)

    def read(self, size: int) -> bytes:
        data = self._first.read(size)
        while len(data) < size and self._parts:
            offset, remaining = self._parts.pop()
            wanted = min(size - len(data), remaining)
            data += os.pread(self._fd, wanted, offset).ljust(wanted, b"\0")
            if wanted < remaining:
                self._parts.append((offset + wanted, remaining - wanted))
        return data


def _member(name: str, status: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.mode = stat.S_IMODE(status.st_mode)
    member.uid, member.gid = status.st_uid, status.st_gid
    member.mtime = min(max(status.st_mtime, 0), _MAX_TIME_S)
    return member


def _parts_with_data(fd: int, size: int) -> list[tuple[int, int]]:
    """Offsets and sizes of a file's parts that are not holes; stops after one more than the limit."""
    parts: list[tuple[int, int]] = []
    end = 0
    while end < size and len(parts) <= _MAX_PARTS:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:
            break  # a hole up to the end
        end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        if start >= size:
            break
        parts.append((start, end - start))
    return parts


def _sparse_map(parts: list[tuple[int, int]]) -> bytes:
    """The list that precedes the data of a sparse file in the tar format, in whole blocks."""
    numbers = [len(parts), *(number for part in parts for number in part)]
    text = b"".join(b"%d\n" % number for number in numbers)
    return text + b"\0" * (-len(text) % tarfile.BLOCKSIZE)
