"""Object stores: what the backends of S3 and Azure Blob have in common.

Folders are common prefixes of keys, as in every tool for such stores: they exist as long as an object lies
below them. An empty folder is an object of zero bytes whose key ends in a slash. Objects appear whole, when
their upload is complete, and have the time of that moment.
"""

from __future__ import annotations

from openpaisdk.storage.backends.base import (
    PART_BYTES,
    Backend,
    SourceFile,
    TargetFile,
    already_exists_error,
    changed_error,
    content_key,
    part_size,
)
from openpaisdk.storage.backends.connection_pool import with_retries
from openpaisdk.storage.backends.request_body import RequestBody
from openpaisdk.storage.file_info import FileInfo, is_valid_name
from paiprotocol.errors import Conflict, Forbidden, NotFound, PaiError, UsageError
from paiprotocol.transfer.pack_format import MAX_PACKED_FILE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.storage.backends.base import Chunks, Range
    from openpaisdk.storage.file_info import FileStat

MAX_OBJECT_PART_BYTES = 16 << 20
"""Parts lie in memory, one for each transfer thread."""
SMALL_CHUNK_BYTES = 4 << 20
"""For a program that reads several files at once: a library copies each response several times."""
MAX_OBJECT_PARTS = 10_000
"""S3 accepts no more parts of one object (Azure: 50 000); beyond this their size doubles."""
MAX_KEY_BYTES = 1024
"""Of S3 and of Azure."""
MAX_DELETED_AT_ONCE = 1000
"""Of S3, for one request."""
FILE_MODE, FOLDER_MODE = 0o644, 0o755


class ObjectInfo:
    """An object: its key, size, time in whole seconds, and the ``etag`` that changes with its content."""

    __slots__ = ("etag", "is_folder", "key", "mtime_ns", "size")

    def __init__(self, key: str, size: int, modified_s: float, etag: str, *, is_folder: bool = False):
        self.key = key
        self.size = size
        # Servers report fractions of a second in listings only.
        self.mtime_ns = int(modified_s) * 1_000_000_000
        self.etag = etag
        self.is_folder = is_folder

    @property
    def stat(self) -> FileStat:
        return self.size, self.mtime_ns, FILE_MODE


class ObjectPage:
    """One page of a listing; ``next`` continues it, and is empty at the end."""

    __slots__ = ("next", "objects", "prefixes")

    def __init__(self, objects: list[ObjectInfo], prefixes: list[str], next_page: str):
        self.objects = objects
        self.prefixes = prefixes
        self.next = next_page


class PartUpload:
    """An object being uploaded in numbered parts, from 1 on. It is visible when it is complete."""

    def stored_parts(self) -> dict[int, int]:
        """Sizes of the parts that the store has, by number: of an interrupted upload of the same content."""
        raise NotImplementedError

    def put(self, number: int, data: bytearray) -> None:
        raise NotImplementedError

    def complete(self, count: int, size: int, *, overwrite: bool) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        """Delete the parts: the upload will not be resumed."""

    def close(self) -> None:
        """Release it; the parts stay for the next attempt."""


class ObjectStore(Backend):
    """Backend over one bucket or container. Subclasses implement the requests."""

    keeps_times = False
    has_implicit_folders = True
    default_streams = 2
    upload_records = ""
    """Folder of the records of unfinished uploads; empty: that of this machine's user."""

    def __init__(self, url: str, root: str = "", *, read_only: bool = False):
        """``root`` is the prefix of all keys: the path of a storage within its bucket."""
        self.url = url
        self.root = root.strip("/")
        self._read_only = read_only

    # -- requests, implemented by each store ---------------------------------------------------

    def head(self, key: str) -> ObjectInfo | None:
        raise NotImplementedError

    def list_page(self, prefix: str, page: str, *, flat: bool, limit: int = 1000) -> ObjectPage:
        """Objects whose key begins with a prefix; unless ``flat``, deeper ones as ``prefixes``."""
        raise NotImplementedError

    def read_range(self, key: str, offset: int, length: int, etag: str) -> bytes:
        """A range of the object with this etag; an error with FILE_CHANGED if it has another one."""
        raise NotImplementedError

    def read_object(self, key: str) -> tuple[bytes, ObjectInfo]:
        raise NotImplementedError

    def put_object(self, key: str, data: bytes | bytearray, *, overwrite: bool = True) -> None:
        raise NotImplementedError

    def begin_upload(self, key: str, content: str, *, resumes: bool) -> PartUpload:
        """An upload in parts. ``resumes``: parts of an interrupted upload of this content are kept."""
        raise NotImplementedError

    def delete_objects(self, keys: list[str]) -> None:
        """Delete up to a page of objects; missing ones are ignored."""
        raise NotImplementedError

    def copy_object(self, key: str, new_key: str) -> None:
        raise NotImplementedError

    # -- backend -------------------------------------------------------------------------------

    def key_of(self, path: str) -> str:
        return f"{self.root}/{path.strip('/')}".strip("/")

    def canonical(self, path: str) -> str:
        return self.display_path(path)

    def invalid_name_reason(self, path: str) -> str:
        try:
            size = len(path.encode())
        except UnicodeEncodeError:
            return "it is not UTF-8"
        if len(self.root) + size > MAX_KEY_BYTES:
            return f"it is longer than {MAX_KEY_BYTES} bytes"
        return ""

    def status(self, path: str) -> FileInfo | None:
        key = self.key_of(path)
        name = path.rstrip("/").rpartition("/")[2]
        info = self.head(key) if key else None
        if info is not None and not info.is_folder:
            return FileInfo(name, False, *info.stat)
        prefix = f"{key}/" if key else ""
        if info is None:
            page = self.list_page(prefix, "", flat=True, limit=1)
            if path.strip("/") and not page.objects:
                return None
        return FileInfo(name, True, 0, 0, FOLDER_MODE)

    def list_folder(self, path: str) -> list[FileInfo]:
        entries: dict[str, FileInfo] = {}
        for page in self.list_pages(path):
            for entry in page:
                # A store may have the objects "a" and "a/b": "a" is a folder then.
                if entry.is_folder or entry.name not in entries:
                    entries[entry.name] = entry
        return [entries[name] for name in sorted(entries)]

    def list_pages(self, path: str) -> Iterator[list[FileInfo]]:
        prefix = f"{key}/" if (key := self.key_of(path)) else ""
        exists = not path.strip("/")
        for page in self._pages(prefix, flat=False):
            exists = exists or bool(page.objects or page.prefixes)
            entries: list[FileInfo] = []
            for info in page.objects:
                name = info.key[len(prefix) :]
                if name and not info.is_folder:  # the prefix itself is the object of the folder
                    entries.append(FileInfo(self._valid(name), False, *info.stat))
                elif name:
                    entries.append(FileInfo(self._valid(name), True, 0, 0, FOLDER_MODE))
            for each in page.prefixes:
                entries.append(FileInfo(self._valid(each[len(prefix) : -1]), True, 0, 0, FOLDER_MODE))
            yield entries
        if not exists:
            found_here = self.head(key)
            if found_here is None:
                raise NotFound(f"{self.display_path(path)}: there is no such file or folder.")
            if not found_here.is_folder:
                raise UsageError(f"{self.display_path(path)} is a file and not a folder.")

    def is_empty(self, path: str) -> bool:
        prefix = f"{key}/" if (key := self.key_of(path)) else ""
        page = self.list_page(prefix, "", flat=True, limit=2)
        return all(info.key == prefix for info in page.objects)

    def open(self, path: str, file_stat: FileStat | None = None) -> SourceFile:
        info = self.head(self.key_of(path)) if path.strip("/") else None
        if info is None and self.status(path) is None:
            raise NotFound(f"{self.display_path(path)}: there is no such file or folder.")
        if info is None or info.is_folder:
            raise UsageError(f"{self.display_path(path)} is a folder and not a file.")
        return ObjectSource(self, path, info)

    def create(self, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True) -> TargetFile:
        self._check_writable(path)
        return ObjectTarget(self, path, source_stat, key, overwrite=overwrite)

    def read_small(self, path: str, file_stat: FileStat) -> tuple[bytes, int, int]:
        if file_stat[0] > MAX_PACKED_FILE_BYTES:
            return super().read_small(path, file_stat)
        content, info = self.read_object(self.key_of(path))
        return content, info.mtime_ns, FILE_MODE

    def make_folder(self, path: str) -> None:
        """Make a folder, unless it exists because objects lie below it."""
        self._check_writable(path)
        key = self.key_of(path)
        if key and self.is_empty(path):
            self.put_object(f"{key}/", b"")

    def delete(self, path: str) -> None:
        self._check_writable(path)
        key = self.key_of(path)
        info = self.head(key) if path.strip("/") else None
        if info is not None and not info.is_folder:
            self.delete_objects([key])
            return
        prefix = f"{key}/" if key else ""
        exists = info is not None
        for page in self._pages(prefix, flat=True):
            if page.objects:
                exists = True
                # The deepest first: a store with real folders deletes only empty ones.
                self.delete_objects([each.key for each in reversed(page.objects)])
        if info is not None:
            self.delete_objects([key])
        if not exists:
            raise NotFound(f"{self.display_path(path)}: there is no such file or folder.")

    def rename(self, path: str, target: str) -> None:
        """Copy within the store, then delete: objects cannot be renamed."""
        self._check_writable(path)
        key, new_key = self.key_of(path), self.key_of(target)
        if f"{new_key}/".startswith(f"{key}/"):
            raise UsageError(f"{self.display_path(path)} cannot be moved to itself or into itself.")
        info = self.head(key)
        if info is not None and not info.is_folder:
            self.copy_object(key, new_key)
            self.delete_objects([key])
            return
        moved: list[str] = []
        for page in self._pages(f"{key}/", flat=True):
            for each in page.objects:
                self.copy_object(each.key, new_key + each.key[len(key) :])
                moved.append(each.key)
        if not moved:
            raise NotFound(f"{self.display_path(path)}: there is no such file or folder.")
        # Only what was copied: another program may have written more. The deepest first, as in `delete`.
        moved.reverse()
        for at in range(0, len(moved), MAX_DELETED_AT_ONCE):
            self.delete_objects(moved[at : at + MAX_DELETED_AT_ONCE])
        if info is not None:
            self.delete_objects([key])

    def _pages(self, prefix: str, *, flat: bool) -> Iterator[ObjectPage]:
        page = self.list_page(prefix, "", flat=flat)
        yield page
        while page.next:
            page = self.list_page(prefix, page.next, flat=flat)
            yield page

    def _valid(self, name: str) -> str:
        if not is_valid_name(name):
            raise PaiError(
                f"The storage {self.url} lists {name!r}, which is not a valid name.",
                hint="Keys with two slashes in a row, or with the parts . or .., have no path.",
            )
        return name

    def _check_writable(self, path: str) -> None:
        if self._read_only:
            raise Forbidden(f"{self.display_path(path)}: the storage is read-only.")


class ObjectSource(SourceFile):
    """An object being read in ranges, all of the same version."""

    max_part_bytes = MAX_OBJECT_PART_BYTES

    def __init__(self, store: ObjectStore, path: str, info: ObjectInfo):
        self._store = store
        self._path = path
        self._found = info
        self.size, self.mtime_ns, self.mode = info.stat
        self.key = content_key(store.url, path, info.etag, info.size)

    def chunks(self, offset: int, length: int) -> Chunks:
        return self._pieces(offset, length, MAX_OBJECT_PART_BYTES)

    def small_chunks(self) -> Chunks:
        return self._pieces(0, self.size, SMALL_CHUNK_BYTES)

    def _pieces(self, offset: int, length: int, max_bytes: int) -> Chunks:
        end = offset + length
        while offset < end:
            step = min(max_bytes, end - offset)
            data = self._store.read_range(self._found.key, offset, step, self._found.etag)
            if len(data) != step:
                raise changed_error(self._store.display_path(self._path), "became shorter")
            yield data
            del data  # before the next one comes
            offset += step

    def check(self) -> None:
        now = self._store.head(self._found.key)
        if now is None:
            raise changed_error(self._store.display_path(self._path), "vanished")
        if now.etag != self._found.etag:
            raise changed_error(self._store.display_path(self._path))


class ObjectTarget(TargetFile):
    """An object being written: alone if it is small, otherwise in parts that an interrupted copy keeps."""

    algorithm = ""

    def __init__(
        self, store: ObjectStore, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True
    ):
        self.size, self.mtime_ns, self.mode = source_stat
        self._store = store
        self._path = path
        self._key = store.key_of(path)
        self._content = content_key(key, self.size)
        self._overwrite = overwrite
        self._part_bytes = PART_BYTES if self.size < 0 else object_part_size(self.size)
        self._only_part: bytearray | None = None
        self._parts = 0
        self._upload: PartUpload | None = None
        if not overwrite and store.status(path) is not None:
            raise already_exists_error(store.display_path(path))

    def missing_ranges(self, max_bytes: int = 0) -> list[Range]:
        if self.size <= self._part_bytes:
            return [(0, self.size)]
        self._upload = self._store.begin_upload(self._key, self._content, resumes=True)
        ranges = [(at, min(self._part_bytes, self.size - at)) for at in range(0, self.size, self._part_bytes)]
        self._parts = len(ranges)
        stored = self._upload.stored_parts()
        return [each for number, each in enumerate(ranges, 1) if stored.get(number) != each[1]]

    def put(
        self, offset: int, length: int, chunks: Callable[[], Chunks], source: SourceFile | None = None
    ) -> None:
        number = offset // self._part_bytes + 1
        if number > MAX_OBJECT_PARTS:
            raise PaiError(
                f"{self._store.display_path(self._path)} is too large for a stream: more than "
                f"{MAX_OBJECT_PARTS} parts of {self._part_bytes >> 20} MiB.",
                hint="Write it to a file first: of a file the size is known, and its parts are larger.",
            )

        def send() -> None:
            data = _collect(chunks(), length)
            if len(data) != length:
                raise changed_error(self._store.display_path(self._path), "became shorter")
            if self._upload is None and offset == 0:
                self._only_part = data  # of a stream more may follow
            else:
                self._part_upload().put(number, data)

        with_retries(send)
        self._parts = max(self._parts, number)

    def _part_upload(self) -> PartUpload:
        if self._upload is None:
            self._upload = self._store.begin_upload(self._key, self._content, resumes=False)
            if self._only_part is not None:
                self._upload.put(1, self._only_part)
                self._only_part = None
        return self._upload

    def finish(self, size: int) -> None:
        try:
            if self._upload is None:
                self._store.put_object(self._key, self._only_part or b"", overwrite=self._overwrite)
            else:
                self._upload.complete(self._parts, size, overwrite=self._overwrite)
        except Conflict:
            raise already_exists_error(self._store.display_path(self._path)) from None

    def close(self) -> None:
        if self._upload is not None:
            self._upload.close()

    def abandon(self) -> None:
        if self._upload is not None:
            self._upload.abort()


def object_part_size(size: int) -> int:
    """Size of an object's parts. The same in every run: parts of another size are not resumed."""
    length = part_size(size, MAX_OBJECT_PART_BYTES)
    while size > length * MAX_OBJECT_PARTS:
        length *= 2
    return length


def _collect(chunks: Chunks, length: int) -> RequestBody:
    """The bytes of a part, in memory that is allocated once."""
    data = RequestBody(length)
    at = 0
    for chunk in chunks:
        data[at : at + len(chunk)] = chunk
        at += len(chunk)
    del data[at:]
    return data
