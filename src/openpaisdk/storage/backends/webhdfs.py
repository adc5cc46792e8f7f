"""WebHDFS backend: the storage of an OpenPAI cluster, or any HDFS."""

from __future__ import annotations

import time
from sys import intern

from openpaisdk.client.http_errors import error_from_response
from openpaisdk.storage.backends.base import (
    MAX_PART_BYTES,
    PART_BYTES,
    PARTIAL_SUFFIX,
    STORAGE_FULL,
    Backend,
    SourceFile,
    TargetFile,
    already_exists_error,
    changed_error,
    content_key,
    partial_name,
)
from openpaisdk.storage.backends.connection_pool import (
    ConnectionPool,
    iter_body,
    read_all,
    with_retries,
)
from openpaisdk.storage.file_info import Checksum, FileInfo, is_valid_name
from openpaisdk.storage.location import invalid_name_reason
from paiprotocol.errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    NotFound,
    PaiError,
    Unauthorized,
    UsageError,
)
from pairuntime.transport.http1 import Body
from pairuntime.transport.webhdfs import BASE, REDIRECT_STATUSES, WebHdfsClient, remote_exception

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from openpaisdk.storage.backends.base import Chunks, Range
    from openpaisdk.storage.file_info import FileStat
    from pairuntime.transport.http1 import Response

NO_FILE = "NoFileError"
IS_FOLDER = "IsAFolderError"
NOT_FOLDER = "NotAFolderError"
_BY_EXCEPTION: dict[str, type[PaiError]] = {
    "FileNotFoundException": NotFound,
    "AccessControlException": Forbidden,
    "SecurityException": Unauthorized,
    "AuthenticationException": Unauthorized,
    "InvalidToken": Unauthorized,
    "FileAlreadyExistsException": Conflict,
    "PathIsNotEmptyDirectoryException": Conflict,
    "InvalidPathException": UsageError,
    "IllegalArgumentException": UsageError,
    "ParentNotDirectoryException": UsageError,
    "QuotaExceededException": PaiError,
    "DSQuotaExceededException": PaiError,
    "NSQuotaExceededException": PaiError,
}
LEASE_HELD = "HeldFileError"
_LEASE_MESSAGES = (
    "AlreadyBeingCreatedException",
    "RecoveryInProgressException",
    "file lease is currently owned",
)
"""HDFS holds the write lease of a file for a minute after its writer died."""
LEASE_TIMEOUT_S = 90.0
_ERROR_STATUSES = (400, 403, 404, 405, 409, 410, 500, 501, 507)
_CHECKSUM_TYPES = {1: "CRC32", 2: "CRC32C"}
# What our own server answers to a client without a token; an HDFS has other words.
_WANTS_TOKEN = "Authentication required: send a token"
_FULL_MESSAGES = ("QuotaExceeded", "DiskOutOfSpace", "could only be replicated", "No space")


class ChunkedBody(Body):
    """Request body of a range; ``make`` produces its chunks again for every attempt."""

    __slots__ = ("make", "tail")

    def __init__(self, size: int, make: Callable[[], Chunks]):
        super().__init__(size)
        self.make = make

    def chunks(self) -> Iterator[bytes]:
        return self.make()  # type: ignore[return-value]  # a socket accepts memoryviews as well


class WebHdfs(Backend):
    """Storage that speaks WebHDFS."""

    def __init__(self, pool: ConnectionPool, *, url: str, user: str = "", base: str = BASE, root: str = ""):
        """``user`` is sent as ``user.name`` when there is no token; ``root`` is the prefix of all paths."""
        self.pool = pool
        self.url = url
        self.user = user
        self.root = root.rstrip("/")
        self._client = _PooledClient(self, base)
        self.own_folder = f"/user/{user}" if user and not self.root else ""
        self.max_response_bytes: int | None = None
        """Bound of a response that is no content of a file; None: there is none."""
        self._checksum_type: str | None = None
        self._supports_batches = True

    # -- queries -------------------------------------------------------------------------------

    def invalid_name_reason(self, path: str) -> str:
        return invalid_name_reason(path)

    def canonical(self, path: str) -> str:
        return f"webhdfs://{self.pool.endpoint.address.netloc}{self.root}{path}"

    def status(self, path: str) -> FileInfo | None:
        try:
            status = self._client.file_status(path)
        except NotFound:
            return None
        return _file_info(status, path.rstrip("/").rpartition("/")[2])

    def list_after(self, path: str, after: str) -> tuple[list[FileInfo], str]:
        """Entries of a folder after a name, and the name after which the next page begins; empty at the
        end."""
        entries, remaining, last = self._batch(path, after)
        if remaining and last <= after:
            raise self.unexpected_response()
        return entries, last if remaining else ""

    def list_folder(self, path: str) -> list[FileInfo]:
        entries = [entry for page in self.list_pages(path) for entry in page]
        entries.sort(key=lambda entry: entry.name)
        return entries

    def list_pages(self, path: str) -> Iterator[list[FileInfo]]:
        entries, remaining, last = self._batch(path)
        yield entries
        while remaining:
            entries, remaining, end = self._batch(path, last)
            if end <= last:
                raise self.unexpected_response()
            last = end
            yield entries

    def is_empty(self, path: str) -> bool:
        entries, remaining, _ = self._batch(path)
        return not entries and not remaining

    def _batch(self, path: str, after: str = "") -> tuple[list[FileInfo], int, str]:
        """One page of a listing after a name: entries, the number of remaining ones, the last name."""
        items, remaining = self._list(path, after)
        # A file is listed as itself, with an empty name; entries of a folder have names.
        alone = len(items) == 1 and items[0].get("type") == "FILE"
        name = path.rstrip("/").rpartition("/")[2] if alone else ""
        entries = [_file_info(item, name) for item in items]
        for entry in entries:
            if not is_valid_name(entry.name):
                raise PaiError(f"The storage {self.url} lists {entry.name!r}, which is not a valid name.")
        last = entries[-1].name if entries else ""
        return [entry for entry in entries if not entry.name.endswith(PARTIAL_SUFFIX)], remaining, last

    def _list(self, path: str, after: str) -> tuple[list[dict[str, Any]], int]:
        if self._supports_batches:
            try:
                return self._client.list_batch(path, after)
            except UsageError:
                if after:
                    raise
                self._supports_batches = False  # unknown to HDFS before 2.9
        return self._client.list_status(path), 0

    def summary(self, path: str) -> dict[str, object]:
        return self._client.content_summary(path)

    def read(self, path: str, offset: int = 0, length: int = -1) -> Chunks:
        """Bytes of a file, as they come."""
        if length == 0:
            return
        response = self._client.open(path, offset=offset or None, length=length if length >= 0 else None)
        got = 0
        announced = response.headers.get("content-length", "")
        for data in iter_body(response, self.url, self.pool.request_timeout_s):
            got += len(data)
            yield data
        if announced.isdecimal() and got != int(announced):
            raise self._truncated(path)

    def checksum(self, path: str) -> Checksum | None:
        """The storage's checksum of a file; None if it has none."""
        try:
            status = self._client.file_status(path)
            # For an encrypted file HDFS reports the checksum of the encrypted bytes.
            if status.get("encBit") or not status.get("length"):
                return None
            checksum = self._client.file_checksum(path)
            return Checksum(str(checksum["algorithm"]), str(checksum["bytes"]))
        except (PaiError, ValueError, KeyError, TypeError):
            return None

    def checksum_type(self) -> str:
        """Checksum algorithm of newly written files; empty if the storage does not report it."""
        if self._checksum_type is None:
            try:
                defaults = self._client.server_defaults()
                step, kind = int(defaults["bytesPerChecksum"]), _CHECKSUM_TYPES[defaults["checksumType"]]
                self._checksum_type = f"MD5-of-{int(defaults['blockSize']) // step}MD5-of-{step}{kind}"
            except (PaiError, ValueError, KeyError, TypeError, ZeroDivisionError):
                self._checksum_type = ""
        return self._checksum_type

    # -- changes -------------------------------------------------------------------------------

    def make_folder(self, path: str) -> None:
        self._client.make_folder(path)

    def delete(self, path: str) -> None:
        if not self._client.delete(path, recursive=True):
            raise _not_found(self.display_path(path))

    def rename(self, path: str, target: str, *, overwrite: bool = True) -> None:
        # Without an option, HDFS moves into an existing folder of the target's name, and gives no reason for
        # a failure.
        if not self._client.rename(path, self.root + target, "OVERWRITE" if overwrite else "NONE"):
            raise PaiError(f"{self.display_path(path)} could not be renamed to {self.display_path(target)}.")

    def put(self, path: str, size: int, chunks: Callable[[], Chunks], mode: int = 0o644) -> None:
        body, permission = ChunkedBody(size, chunks), f"{mode & 0o777:o}"
        self._client.write("PUT", path, "CREATE", body, overwrite="true", permission=permission)

    def append(self, path: str, size: int, chunks: Callable[[], Chunks]) -> None:
        self._client.write("POST", path, "APPEND", ChunkedBody(size, chunks))

    def set_time(self, path: str, mtime_ns: int) -> None:
        self._client.set_time(path, mtime_ns)

    # -- file transfer -------------------------------------------------------------------------

    def open(self, path: str, file_stat: FileStat | None = None) -> SourceFile:
        return WebHdfsSource(self, path, file_stat or self._stat(path))

    def create(self, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True) -> TargetFile:
        return WebHdfsTarget(self, path, source_stat, key, overwrite=overwrite)

    def _stat(self, path: str) -> FileStat:
        info = self.status(path)
        if info is None:
            raise _not_found(self.display_path(path))
        if info.is_folder:
            raise UsageError(f"{self.display_path(path)} is a folder and not a file.")
        return info.size, info.mtime_ns, info.mode

    # -- errors --------------------------------------------------------------------------------

    def error(self, status: int, text: bytes, path: str) -> PaiError:
        """The error described by a response with an error status."""
        remote = remote_exception(text)
        if remote is None:
            return error_from_response(status, text, f"The storage {self.url}")
        name, message = remote[0], remote[1].split("\n")[0]
        file_url = self.display_path(path)
        if status == 507 or any(mark in name + message for mark in _FULL_MESSAGES):
            return PaiError(
                f"The storage is full: {file_url} cannot be written.", code=STORAGE_FULL, status=507
            )
        if any(mark in name + message for mark in _LEASE_MESSAGES):
            return PaiError(f"{file_url}: an interrupted copy still holds the write lease.", code=LEASE_HELD)
        kind = _BY_EXCEPTION.get(name, PaiError)
        if kind is NotFound:
            return _not_found(file_url)
        if kind is Forbidden:
            return Forbidden(f"{file_url}: permission denied ({message.removesuffix('.')}).")
        if status == 401 and message.startswith(_WANTS_TOKEN):
            address = f"{self.pool.endpoint.address.scheme}://{self.pool.endpoint.address.netloc}"
            return Unauthorized(
                f"{address} is the storage of a cluster, which knows its users by their tokens.",
                hint=f"Add the cluster instead: pai add-cluster -a NAME --pai-uri {address} --user USER; "
                "then use pai://NAME/...",
            )
        if name == "ParentNotDirectoryException":
            return UsageError(f"{file_url}: a part of this path is a file and not a folder.", status=status)
        return kind(f"{file_url}: {message or name}", status=status)

    def unexpected_response(self) -> ConnectionFailed:
        return ConnectionFailed(f"The storage {self.url} sent a response that is not WebHDFS.")

    def _truncated(self, path: str) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self.display_path(path)} arrived truncated: a proxy may cut off responses."
        )

    def close(self) -> None:
        self.pool.close()


class _PooledClient(WebHdfsClient):
    """Requests by the connections of a pool, with errors for the users of the SDK."""

    def __init__(self, backend: WebHdfs, base: str):
        self._backend = backend
        self._base = base

    def quote_path(self, path: str) -> str:
        return self._base + super().quote_path(self._backend.root + path)

    def user_parameter(self) -> str:
        return "" if self._backend.pool.endpoint.token else self._backend.user

    def send(self, method: str, target: str, body: bytes | Body | None, *, streams: bool) -> Response:
        pool = self._backend.pool
        transport = pool.transport(streaming=streams)
        # Of a cluster with a token, a 401 is about that token; else it is what the storage says of the user.
        accepted = (*_ERROR_STATUSES, *REDIRECT_STATUSES, *(() if transport.endpoint.token else (401,)))
        try:
            return transport.request(
                method, target, body=body, timeout=pool.request_timeout_s, accept=accepted
            )
        except ConnectionFailed as e:
            raise ConnectionFailed(e.message.replace("The cluster", "The storage", 1), hint=e.hint) from None

    def follow(self, method: str, location: str, body: bytes | Body | None) -> Response:
        return self._backend.pool.follow_redirect(method, location, body)

    def read_text(self, response: Response) -> bytes:
        backend = self._backend
        return read_all(
            response, backend.url, backend.pool.request_timeout_s, max_bytes=backend.max_response_bytes
        )

    def failure(self, status: int, text: bytes, path: str) -> PaiError:
        return self._backend.error(status, text, path)

    def unexpected_response(self) -> PaiError:
        return self._backend.unexpected_response()


class WebHdfsSource(SourceFile):
    supports_checksum = True

    def __init__(self, backend: WebHdfs, path: str, file_stat: FileStat):
        self.backend = backend
        self.path = path
        self.size, self.mtime_ns, self.mode = file_stat
        self.key = content_key(backend.url, path, self.size, self.mtime_ns)

    def chunks(self, offset: int, length: int) -> Chunks:
        got = 0
        for data in self.read(offset, length):
            got += len(data)
            yield data
        if got != length:
            self.check()
            raise self.backend._truncated(self.path)

    def read(self, offset: int, length: int) -> Chunks:
        return self.backend.read(self.path, offset, length)

    def checksum(self) -> Checksum | None:
        return self.backend.checksum(self.path)

    def check(self) -> None:
        now = self.backend.status(self.path)
        if now is None:
            raise changed_error(self.backend.display_path(self.path), "vanished")
        if now.size != self.size or now.mtime_ns // 1_000_000 != self.mtime_ns // 1_000_000:
            raise changed_error(self.backend.display_path(self.path))


class WebHdfsTarget(TargetFile):
    """Target in HDFS, written from beginning to end; an interrupted copy is resumed by appending."""

    in_order = True
    supports_checksum = True

    def __init__(
        self, backend: WebHdfs, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True
    ):
        self.backend = backend
        self.path = path
        self.size, self.mtime_ns, self.mode = source_stat
        self.overwrite = overwrite
        folder, _, name = path.rpartition("/")
        self.partial = f"{folder}/{partial_name(name, key)}"
        there = backend.status(path)
        if there is not None and there.is_folder:
            raise UsageError(f"{backend.display_path(path)} is a folder; a file cannot replace it.")
        if there is not None and not overwrite:
            raise already_exists_error(backend.display_path(path))

    def missing_ranges(self, max_bytes: int = MAX_PART_BYTES) -> list[Range]:
        info = self.backend.status(self.partial)
        have = info.size if info is not None and 0 < info.size <= self.size else 0
        if have == self.size and self.size:
            return []
        return [
            (at, min(PART_BYTES * 4, self.size - at)) for at in range(have, self.size, PART_BYTES * 4)
        ] or [(0, 0)]

    def put(
        self, offset: int, length: int, chunks: Callable[[], Chunks], source: SourceFile | None = None
    ) -> None:
        def send() -> None:
            if offset == 0:
                self.backend.put(self.partial, length, chunks, self.mode)
                return
            info = self.backend.status(self.partial)
            have = info.size if info is not None else 0
            if have == offset + length:
                return  # it had arrived, only the response was lost
            if have != offset:
                raise ConnectionFailed(
                    f"{self.backend.display_path(self.path)}: the storage has {have} bytes, not {offset}."
                )
            self._append(length, chunks)

        with_retries(send)

    def _append(self, length: int, chunks: Callable[[], Chunks]) -> None:
        """Append, waiting until HDFS has released the write lease of an interrupted copy."""
        ends = time.monotonic() + LEASE_TIMEOUT_S
        while True:
            try:
                self.backend.append(self.partial, length, chunks)
            except PaiError as e:
                if e.code != LEASE_HELD or time.monotonic() > ends:
                    raise
            else:
                return
            time.sleep(2)

    def checksum(self) -> Checksum | None:
        return self.backend.checksum(self.partial)

    def checksum_type(self) -> str:
        return self.backend.checksum_type()

    def finish(self, size: int) -> None:
        info = self.backend.status(self.partial)
        if info is None or info.size != size:
            raise ConnectionFailed(
                f"{self.backend.display_path(self.path)} arrived incomplete; the target is unchanged.",
                hint="Run the same command again: it resumes the copy.",
            )
        self.backend.set_time(self.partial, self.mtime_ns)
        self.backend.rename(self.partial, self.path, overwrite=self.overwrite)

    def abandon(self) -> None:
        try:
            self.backend.delete(self.partial)
        except PaiError:
            pass


def _file_info(status: dict[str, object], name: str) -> FileInfo:
    def number(key: str) -> int:
        value = status.get(key)
        return value if isinstance(value, int) else 0

    permission = str(status.get("permission") or "0")
    return FileInfo(
        str(status.get("pathSuffix") or "") or name,
        status.get("type") == "DIRECTORY",
        number("length"),
        number("modificationTime") * 1_000_000,
        int(permission, 8) if permission and not permission.strip("01234567") else 0,
        intern(str(status.get("owner") or "")),  # few distinct names, for any number of files
        intern(str(status.get("group") or "")),
    )


def _not_found(file_url: str) -> NotFound:
    return NotFound(f"{file_url}: there is no such file or folder.", code=NO_FILE)
