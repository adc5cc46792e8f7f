"""WebHDFS backend: the storage of an OpenPAI cluster, or any HDFS."""

from __future__ import annotations

import json
import time
from sys import intern

from openpaisdk.client.address import query, quote
from openpaisdk.client.http1 import Body
from openpaisdk.client.http_errors import error_from_response
from openpaisdk.errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    NotFound,
    PaiError,
    Unauthorized,
    UsageError,
)
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from openpaisdk.client.http1 import Response
    from openpaisdk.storage.backends.base import Chunks, Range
    from openpaisdk.storage.file_info import FileStat

BASE = "/webhdfs/v1"
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
_REDIRECT_STATUSES = (300, 301, 302, 303, 307, 308)
# Value of `data`: our own server then sends what is asked for at once. HDFS ignores it and redirects.
_IN_ONE_STEP = "true"
_CHECKSUM_TYPES = {1: "CRC32", 2: "CRC32C"}
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
        self.base = base
        self.root = root.rstrip("/")
        self.own_folder = f"/user/{user}" if user and not self.root else ""
        self.max_response_bytes: int | None = None
        """Bound of a response that is no content of a file; None: there is none."""
        self._checksum_type: str | None = None
        self._supports_batches = True

    # -- queries -------------------------------------------------------------------------------

    def invalid_name_reason(self, path: str) -> str:
        return invalid_name_reason(path)

    def canonical(self, path: str) -> str:
        return f"webhdfs://{self.pool.endpoint.address.authority}{self.root}{path}"

    def status(self, path: str) -> FileInfo | None:
        try:
            found = self._json("GET", path, "GETFILESTATUS")
        except NotFound:
            return None
        status = found.get("FileStatus")
        if not isinstance(status, dict):
            raise self._unexpected_response()
        return _file_info(status, path.rstrip("/").rpartition("/")[2])

    def list_after(self, path: str, after: str) -> tuple[list[FileInfo], str]:
        """Entries of a folder after a name, and the name after which the next page begins; empty at the
        end."""
        entries, left, last = self._batch(path, after)
        if left and last <= after:
            raise self._unexpected_response()
        return entries, last if left else ""

    def list_folder(self, path: str) -> list[FileInfo]:
        entries = [entry for page in self.list_pages(path) for entry in page]
        entries.sort(key=lambda entry: entry.name)
        return entries

    def list_pages(self, path: str) -> Iterator[list[FileInfo]]:
        entries, left, last = self._batch(path)
        yield entries
        while left:
            entries, left, end = self._batch(path, last)
            if end <= last:
                raise self._unexpected_response()
            last = end
            yield entries

    def is_empty(self, path: str) -> bool:
        entries, left, _ = self._batch(path)
        return not entries and not left

    def _batch(self, path: str, after: str = "") -> tuple[list[FileInfo], int, str]:
        """One page of a listing after a name: entries, the number of remaining ones, the last name."""
        found: Any = None
        if self._supports_batches:
            try:
                found = self._json("GET", path, "LISTSTATUS_BATCH", startAfter=after or None)
            except UsageError:
                if after:
                    raise
                self._supports_batches = False  # unknown to HDFS before 2.9
        if not self._supports_batches:
            whole_list = self._json("GET", path, "LISTSTATUS")
            found = {"DirectoryListing": {"partialListing": whole_list, "remainingEntries": 0}}
        try:
            batch = found["DirectoryListing"]
            items = list(batch["partialListing"]["FileStatuses"]["FileStatus"])
            left = int(batch["remainingEntries"])
            # A file is listed as itself, with an empty name; entries of a folder have names.
            alone = len(items) == 1 and items[0].get("type") == "FILE"
            name = path.rstrip("/").rpartition("/")[2] if alone else ""
            entries = [_file_info(item, name) for item in items]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._unexpected_response() from None
        for entry in entries:
            if not is_valid_name(entry.name):
                raise PaiError(f"The storage {self.url} lists {entry.name!r}, which is not a valid name.")
        last = entries[-1].name if entries else ""
        return [entry for entry in entries if not entry.name.endswith(PARTIAL_SUFFIX)], left, last

    def summary(self, path: str) -> dict[str, object]:
        found = self._json("GET", path, "GETCONTENTSUMMARY").get("ContentSummary")
        return found if isinstance(found, dict) else {}

    def read(self, path: str, offset: int = 0, length: int = -1) -> Chunks:
        """Bytes of a file, as they come."""
        if length == 0:
            return
        response = self._call(
            "GET",
            path,
            "OPEN",
            offset=offset or None,
            length=length if length >= 0 else None,
            data=_IN_ONE_STEP,
        )
        if response.status in _REDIRECT_STATUSES or "json" in response.headers.get("content-type", ""):
            location = self._location(response)
            response = self.pool.follow_redirect("GET", location, None)
            self._check(response, path)
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
            status = self._json("GET", path, "GETFILESTATUS").get("FileStatus")
            # For an encrypted file HDFS reports the checksum of the encrypted bytes.
            if not isinstance(status, dict) or status.get("encBit") or not status.get("length"):
                return None
            response = self._call("GET", path, "GETFILECHECKSUM", data=_IN_ONE_STEP)
            if response.status in _REDIRECT_STATUSES:
                response = self.pool.follow_redirect("GET", self._location(response), None)
                self._check(response, path)
            checksum = json.loads(self._read(response))["FileChecksum"]
            return Checksum(str(checksum["algorithm"]), str(checksum["bytes"]))
        except (PaiError, ValueError, KeyError, TypeError):
            return None

    def checksum_type(self) -> str:
        """Checksum algorithm of newly written files; empty if the storage does not report it."""
        if self._checksum_type is None:
            try:
                defaults: Any = self._json("GET", "/", "GETSERVERDEFAULTS")["FsServerDefaults"]
                step, kind = int(defaults["bytesPerChecksum"]), _CHECKSUM_TYPES[defaults["checksumType"]]
                self._checksum_type = f"MD5-of-{int(defaults['blockSize']) // step}MD5-of-{step}{kind}"
            except (PaiError, ValueError, KeyError, TypeError, ZeroDivisionError):
                self._checksum_type = ""
        return self._checksum_type

    # -- changes -------------------------------------------------------------------------------

    def make_folder(self, path: str) -> None:
        self._json("PUT", path, "MKDIRS")

    def delete(self, path: str) -> None:
        if self._json("DELETE", path, "DELETE", recursive="true").get("boolean") is not True:
            raise _not_found(self.display_path(path))

    def rename(self, path: str, target: str, *, overwrite: bool = True) -> None:
        # Without an option, HDFS moves into an existing folder of the target's name, and gives no reason for
        # a failure.
        option = "OVERWRITE" if overwrite else "NONE"
        response = self._call(
            "PUT", path, "RENAME", destination=self.root + target, renameoptions=option, body=b""
        )
        body = self._read(response)
        # Hadoop sends none with an option.
        if body and self._parse(body).get("boolean") is False:
            raise PaiError(f"{self.display_path(path)} could not be renamed to {self.display_path(target)}.")

    def put(self, path: str, size: int, chunks: Callable[[], Chunks], mode: int = 0o644) -> None:
        self._send("PUT", path, "CREATE", size, chunks, overwrite="true", permission=f"{mode & 0o777:o}")

    def append(self, path: str, size: int, chunks: Callable[[], Chunks]) -> None:
        self._send("POST", path, "APPEND", size, chunks)

    def set_time(self, path: str, mtime_ns: int) -> None:
        modified = max(0, mtime_ns // 1_000_000)  # no times before 1970 (see ``file_info.is_unchanged``)
        self._read(self._call("PUT", path, "SETTIMES", modificationtime=modified, body=b""))

    # -- file transfer -------------------------------------------------------------------------

    def open(self, path: str, file_stat: FileStat | None = None) -> SourceFile:
        return WebHdfsSource(self, path, file_stat or self._stat(path))

    def create(self, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True) -> TargetFile:
        return WebHdfsTarget(self, path, source_stat, key, overwrite=overwrite)

    def _stat(self, path: str) -> FileStat:
        found = self.status(path)
        if found is None:
            raise _not_found(self.display_path(path))
        if found.is_folder:
            raise UsageError(f"{self.display_path(path)} is a folder and not a file.")
        return found.size, found.mtime_ns, found.mode

    # -- requests ------------------------------------------------------------------------------

    def _send(
        self, method: str, path: str, op: str, size: int, chunks: Callable[[], Chunks], **values: object
    ) -> None:
        """Two-step write of HDFS: request the data node's address, then send the bytes there."""
        first = self._call(method, path, op, body=b"", **values)
        location = self._location(first)
        second = self.pool.follow_redirect(method, location, ChunkedBody(size, chunks))
        self._check(second, path)
        self._read(second)

    def _location(self, response: Response) -> str:
        body = self._read(response)
        location = response.headers.get("location", "")
        if not location and body:
            try:
                location = str(json.loads(body).get("Location") or "")
            except (ValueError, AttributeError):
                location = ""
        if "://" not in location:
            raise self._unexpected_response()
        return location

    def _json(self, method: str, path: str, op: str, **values: object) -> dict[str, object]:
        response = self._call(method, path, op, body=None if method == "GET" else b"", **values)
        return self._parse(self._read(response))

    def _parse(self, body: bytes) -> dict[str, object]:
        try:
            found = json.loads(body)
        except ValueError:
            raise self._unexpected_response() from None
        if not isinstance(found, dict):
            raise self._unexpected_response()
        return found

    def _call(
        self, method: str, path: str, op: str, *, body: bytes | None = None, **values: object
    ) -> Response:
        transport = self.pool.transport(streaming=op == "OPEN")
        parameters: dict[str, object] = {"op": op, **values}
        if self.user and not transport.endpoint.token:
            parameters["user.name"] = self.user
        target = self.base + self.quote_path(path) + query(parameters)
        # Of a cluster with a token, a 401 is about that token; else it is what the storage says of the user.
        accepted = _ERROR_STATUSES if transport.endpoint.token else (*_ERROR_STATUSES, 401)
        try:
            response = transport.request(
                method,
                target,
                body=body,
                timeout=self.pool.request_timeout_s,
                accept=accepted,
            )
        except ConnectionFailed as e:
            raise ConnectionFailed(e.message.replace("The cluster", "The storage", 1), hint=e.hint) from None
        self._check(response, path)
        return response

    def _read(self, response: Response) -> bytes:
        return read_all(response, self.url, self.pool.request_timeout_s, max_bytes=self.max_response_bytes)

    def quote_path(self, path: str) -> str:
        return "/".join(quote(part) for part in (self.root + path).split("/"))

    def _check(self, response: Response, path: str) -> None:
        if response.status >= 400:
            raise self._error(response.status, self._read(response), path)

    def _error(self, status: int, body: bytes, path: str) -> PaiError:
        try:
            remote = json.loads(body)["RemoteException"]
            name, message = str(remote["exception"]), str(remote.get("message") or "").split("\n")[0]
        except (ValueError, KeyError, TypeError):
            return error_from_response(status, body, f"The storage {self.url}")
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
        if name == "ParentNotDirectoryException":
            return UsageError(f"{file_url}: a part of this path is a file and not a folder.", status=status)
        return kind(f"{file_url}: {message or name}", status=status)

    def _unexpected_response(self) -> ConnectionFailed:
        return ConnectionFailed(f"The storage {self.url} sent a response that is not WebHDFS.")

    def _truncated(self, path: str) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self.display_path(path)} arrived truncated: a proxy may cut off responses."
        )

    def close(self) -> None:
        self.pool.close()


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
        found = self.backend.status(self.partial)
        have = found.size if found is not None and 0 < found.size <= self.size else 0
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
            found = self.backend.status(self.partial)
            have = found.size if found is not None else 0
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
        found = self.backend.status(self.partial)
        if found is None or found.size != size:
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
