"""Files of PaddleCloud's file system on the cluster's storage: listing, globs, and ranges of bytes."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
from collections.abc import Iterator
from io import FileIO

import msgspec

from paicluster.api.paddlecloud.cloud_paths import CloudPath, resolve
from paicluster.api.wire.paddlecloud import PaddleFile
from paicluster.files import Entry, Storage, StorageUser
from paicluster.files.errors import NOT_A_FOLDER
from paiprotocol.errors import Conflict, InvalidParameters, NotFound

MAX_LISTED = 100_000
"""Files in one list; with their paths they take some 20 MB."""

_MAGIC = frozenset("*?[")
_READ_BYTES = 1 << 20


class NoSuchFile(NotFound):
    """Its message contains the words by which clients know that a file does not exist."""

    def __init__(self, path: str, call: str = "stat"):
        super().__init__(f"{call} {path}: no such file or directory")


class CloudFiles(msgspec.Struct, frozen=True):
    """The files of one user. Every call blocks on the disk."""

    storage: Storage
    user: StorageUser

    def resolve(self, path: str, *, writes: bool = False) -> CloudPath:
        resolved = resolve(path, self.user.name)
        if writes and resolved.is_public:
            raise InvalidParameters("public data supports only ls or stat command")
        return resolved

    def stat(self, path: CloudPath) -> Entry:
        with _errors_of(path, "stat"):
            return self.storage.status(path.stored, self.user)

    def attributes(self, path: CloudPath, entry: Entry) -> PaddleFile:
        return PaddleFile(
            path=path.cloud,
            mod_time=entry.modified_ms * 1_000_000,
            size=0 if entry.is_folder else entry.size,
            is_dir=entry.is_folder,
        )

    def ls(self, path: CloudPath, *, recursive: bool) -> list[PaddleFile]:
        """A file, or what is in a folder; recursively, each folder before what is in it, by name."""
        found: list[PaddleFile] = []
        for match, entry in self.expand(path):
            if not entry.is_folder:
                found.append(self.attributes(match, entry))
                continue
            for child, below in self._children(match, recursive=recursive):
                if len(found) >= MAX_LISTED:
                    raise InvalidParameters(f"There are more than {MAX_LISTED} files: list a folder of them.")
                found.append(self.attributes(child, below))
        return found

    def _children(self, folder: CloudPath, *, recursive: bool) -> Iterator[tuple[CloudPath, Entry]]:
        for entry in self.storage.list(folder.stored, self.user).entries:
            child = folder.child(entry.name)
            yield child, entry
            if recursive and entry.is_folder:
                yield from self._children(child, recursive=True)

    def expand(self, path: CloudPath) -> list[tuple[CloudPath, Entry]]:
        """What a path with wildcards matches. A path without them must exist."""
        if not _MAGIC.intersection(path.stored):
            return [(path, self.stat(path))]
        # The datacenter, "home" and the user are as they are: only what follows may have wildcards.
        names = path.cloud.split("/")
        fixed = 4 if path.is_public else 5
        start = self.resolve("/".join(names[:fixed]))
        matches = [(start, self.stat(start))]
        for pattern in names[fixed:]:
            next_matches = []
            for folder, entry in matches:
                if not entry.is_folder:
                    continue
                if _MAGIC.isdisjoint(pattern):
                    with contextlib.suppress(NotFound):
                        child = folder.child(pattern)
                        next_matches.append((child, self.stat(child)))
                    continue
                below = self.storage.list(folder.stored, self.user).entries
                next_matches += [
                    (folder.child(e.name), e) for e in below if fnmatch.fnmatchcase(e.name, pattern)
                ]
            matches = next_matches[: MAX_LISTED + 1]
        if not matches:
            raise NoSuchFile(path.cloud)
        return matches

    def make_folder(self, path: CloudPath) -> None:
        try:
            self.storage.make_dirs(path.stored, self.user)
        except Conflict:
            raise Conflict(f"already exist: {path.cloud} is a file") from None

    def touch(self, path: CloudPath, size: int) -> None:
        """Create a file of this size, or give it this size; a file that has it is not changed."""
        try:
            status = self.stat(path)
        except NoSuchFile:
            status = None
        if status is not None and status.is_folder:
            raise Conflict(f"directory already exist: {path.cloud}")
        if status is None or status.size != size:
            with _errors_of(path, "open"):
                self.storage.set_size(path.stored, self.user, size)

    def move(self, source: CloudPath, target: CloudPath) -> None:
        """Rename a file, over another one if there is one."""
        if self.stat(source).is_folder:
            raise InvalidParameters(f"can't mv directory:{source.cloud}")
        with _errors_of(source, "rename"):
            self.storage.move(source.stored, target.stored, self.user, overwrite=True)

    def copy(self, source: CloudPath, target: CloudPath) -> None:
        """Copy a file, over another one if there is one; its folder is created if needed."""
        with _errors_of(source, "open"):
            self.storage.copy_file(source.stored, target.stored, self.user)

    def remove(self, path: CloudPath, *, recursive: bool) -> list[str]:
        """Delete what a path matches; the paths that were deleted.

        One that does not exist is no error, as for PaddleCloud's own client; ours looks at the result.
        """
        try:
            matches = self.expand(path)
        except NotFound:
            return []
        for match, entry in matches:
            if entry.is_folder and not recursive:
                raise InvalidParameters(f"can't del directory:{match.cloud}")
            if match.is_root:
                raise InvalidParameters(
                    f"can't del home:{match.cloud} is your whole home folder; delete what is in it."
                )
        for match, _ in matches:
            with contextlib.suppress(NotFound):
                self.storage.delete(match.stored, self.user, recursive=recursive)
        return [match.cloud for match, _ in matches]

    def checksum(self, path: CloudPath, offset: int, size: int) -> tuple[str, int]:
        """MD5 and number of the bytes that a file has in a range."""
        digest = hashlib.md5(usedforsecurity=False)
        count = 0
        with self.open(path) as file:
            while count < size and (
                data := os.pread(file.fileno(), min(_READ_BYTES, size - count), offset + count)
            ):
                digest.update(data)
                count += len(data)
        return digest.hexdigest(), count

    def open(self, path: CloudPath) -> FileIO:
        with _errors_of(path, "open"):
            return FileIO(self.storage.open_read(path.stored, self.user).fd)

    def write(self, path: CloudPath, offset: int, data: bytes | memoryview) -> None:
        with _errors_of(path, "open"):
            self.storage.write_at(path.stored, self.user, offset, data)


@contextlib.contextmanager
def _errors_of(path: CloudPath, call: str) -> Iterator[None]:
    """Errors of the storage in the words of PaddleCloud's file server, with the path that its user knows."""
    try:
        yield
    except NotFound as error:
        raise NoSuchFile(path.cloud, call) from error
    except Conflict as error:
        if error.code != NOT_A_FOLDER:
            raise
        raise Conflict(f"{call} {path.cloud}: not a directory", code=NOT_A_FOLDER) from error
