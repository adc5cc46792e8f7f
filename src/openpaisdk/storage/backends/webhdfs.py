"""A storage that speaks WebHDFS: a cluster's own, or any HDFS there is."""

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
    FULL,
    LONGEST_PARTS,
    MARK,
    PART_BYTES,
    Backend,
    SourceFile,
    TargetFile,
    changed,
    is_there_already,
    key_of,
    part_name,
)
from openpaisdk.storage.backends.connection_pool import ConnectionPool, body_of, whole, with_retries
from openpaisdk.storage.file_info import FileInfo, is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from openpaisdk.client.http1 import Response
    from openpaisdk.storage.backends.base import Chunks, Range
    from openpaisdk.storage.backends.hdfs_checksum import Checksum
    from openpaisdk.storage.file_info import FileStat

BASE = "/webhdfs/v1"
NO_FILE = "NoFileError"
IS_A_FOLDER = "IsAFolderError"
NOT_A_FOLDER = "NotAFolderError"
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
_HELD = ("AlreadyBeingCreatedException", "RecoveryInProgressException", "file lease is currently owned")
"""HDFS keeps a file for whoever wrote to it last, for a minute after he was gone."""
HELD_FOR_S = 90.0
_REDIRECTS = (300, 301, 302, 303, 307, 308)
_CHECKSUMS = {1: "CRC32", 2: "CRC32C"}
_FULL = ("QuotaExceeded", "DiskOutOfSpace", "could only be replicated", "No space")


class ChunkedBody(Body):
    """A range on its way, made anew whenever it must be sent again."""

    __slots__ = ("make", "tail")

    def __init__(self, size: int, make: Callable[[], Chunks]):
        super().__init__(size)
        self.make = make

    def chunks(self) -> Iterator[bytes]:
        return self.make()  # type: ignore[return-value]  # a socket takes views as well


class WebHdfs(Backend):
    names_are_hdfs = True

    def __init__(
        self, lines: ConnectionPool, *, where: str, user: str = "", base: str = BASE, root: str = ""
    ):
        """``user`` is sent as ``user.name`` where no token says who we are; ``root`` is put before paths."""
        self.lines = lines
        self.where = where
        self.user = user
        self.base = base
        self.root = root.rstrip("/")
        self._summing: str | None = None
        self._in_batches = True

    # -- questions -----------------------------------------------------------------------------

    def canonical(self, path: str) -> str:
        return f"webhdfs://{self.lines.endpoint.address.authority}{self.root}{path}"

    def status(self, path: str) -> FileInfo | None:
        try:
            found = self._json("GET", path, "GETFILESTATUS")
        except NotFound:
            return None
        status = found.get("FileStatus")
        if not isinstance(status, dict):
            raise self._strange()
        return _entry(status, path.rstrip("/").rpartition("/")[2])

    def listing(self, path: str) -> list[FileInfo]:
        entries, left, last = self._batch(path)
        while left:
            more, left, end = self._batch(path, last)
            if end <= last:
                raise self._strange()
            entries += more
            last = end
        entries.sort(key=lambda entry: entry.name)
        return entries

    def is_empty(self, path: str) -> bool:
        entries, left, _ = self._batch(path)
        return not entries and not left

    def _batch(self, path: str, after: str = "") -> tuple[list[FileInfo], int, str]:
        """What comes after a name, how many are left then, and the last name: not all in one answer."""
        found: Any = None
        if self._in_batches:
            try:
                found = self._json("GET", path, "LISTSTATUS_BATCH", startAfter=after or None)
            except UsageError:
                if after:
                    raise
                self._in_batches = False  # HDFS 2 before 2.9 knows none
        if not self._in_batches:
            whole_list = self._json("GET", path, "LISTSTATUS")
            found = {"DirectoryListing": {"partialListing": whole_list, "remainingEntries": 0}}
        try:
            batch = found["DirectoryListing"]
            items = list(batch["partialListing"]["FileStatuses"]["FileStatus"])
            left = int(batch["remainingEntries"])
            # A file is listed as itself, without a name; in a folder all have one.
            alone = len(items) == 1 and items[0].get("type") == "FILE"
            name = path.rstrip("/").rpartition("/")[2] if alone else ""
            entries = [_entry(item, name) for item in items]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._strange() from None
        for entry in entries:
            if not is_name(entry.name):
                raise PaiError(f"The storage {self.where} lists {entry.name!r}, which is not a name.")
        last = entries[-1].name if entries else ""
        return [entry for entry in entries if not entry.name.endswith(MARK)], left, last

    def summary(self, path: str) -> dict[str, object]:
        found = self._json("GET", path, "GETCONTENTSUMMARY").get("ContentSummary")
        return found if isinstance(found, dict) else {}

    def read(self, path: str, offset: int = 0, length: int = -1) -> Chunks:
        """Bytes of a file, as they come."""
        if length == 0:
            return
        answer = self._call(
            "GET", path, "OPEN", offset=offset or None, length=length if length >= 0 else None
        )
        if answer.status in _REDIRECTS or "json" in answer.headers.get("content-type", ""):
            location = self._location(answer)
            answer = self.lines.follow_redirect("GET", location, None)
            self._check(answer, path)
        got = 0
        announced = answer.headers.get("content-length", "")
        for data in body_of(answer, self.where):
            got += len(data)
            yield data
        if announced.isdecimal() and got != int(announced):
            raise self._cut(path)

    def checksum(self, path: str) -> Checksum | None:
        """What the storage says a file contains; None where it cannot tell."""
        from openpaisdk.storage.backends.hdfs_checksum import Checksum

        try:
            status = self._json("GET", path, "GETFILESTATUS").get("FileStatus")
            # Of what is encrypted it tells the checksum of what lies on its disks.
            if not isinstance(status, dict) or status.get("encBit") or not status.get("length"):
                return None
            answer = self._call("GET", path, "GETFILECHECKSUM")
            if answer.status in _REDIRECTS:
                answer = self.lines.follow_redirect("GET", self._location(answer), None)
                self._check(answer, path)
            told = json.loads(whole(answer, self.where))["FileChecksum"]
            return Checksum(str(told["algorithm"]), str(told["bytes"]))
        except (PaiError, ValueError, KeyError, TypeError):
            return None

    def will_sum(self) -> str:
        """The kind of checksum files will have that are written now; empty where it cannot be told."""
        if self._summing is None:
            try:
                told: Any = self._json("GET", "/", "GETSERVERDEFAULTS")["FsServerDefaults"]
                step, kind = int(told["bytesPerChecksum"]), _CHECKSUMS[told["checksumType"]]
                self._summing = f"MD5-of-{int(told['blockSize']) // step}MD5-of-{step}{kind}"
            except (PaiError, ValueError, KeyError, TypeError, ZeroDivisionError):
                self._summing = ""
        return self._summing

    # -- changes -------------------------------------------------------------------------------

    def make_folder(self, path: str) -> None:
        self._json("PUT", path, "MKDIRS")

    def delete(self, path: str) -> None:
        if self._json("DELETE", path, "DELETE", recursive="true").get("boolean") is not True:
            raise _missing(self.shown(path))

    def rename(self, path: str, target: str, *, replacing: bool = True) -> None:
        # Without an option, HDFS moves into a folder of the target's name, and does not say why it refuses.
        option = "OVERWRITE" if replacing else "NONE"
        answer = self._call(
            "PUT", path, "RENAME", destination=self.root + target, renameoptions=option, body=b""
        )
        said = whole(answer, self.where)
        if said and json.loads(said).get("boolean") is False:
            raise PaiError(f"{self.shown(path)} could not be renamed to {self.shown(target)}.")

    def put(self, path: str, size: int, chunks: Callable[[], Chunks], mode: int = 0o644) -> None:
        self._send("PUT", path, "CREATE", size, chunks, overwrite="true", permission=f"{mode & 0o777:o}")

    def append(self, path: str, size: int, chunks: Callable[[], Chunks]) -> None:
        self._send("POST", path, "APPEND", size, chunks)

    def set_time(self, path: str, mtime_ns: int) -> None:
        modified = max(0, mtime_ns // 1_000_000)  # there is no time before 1970 (see ``entries.is_same``)
        whole(self._call("PUT", path, "SETTIMES", modificationtime=modified, body=b""), self.where)

    # -- files in and out ----------------------------------------------------------------------

    def open(self, path: str, facts: FileStat | None = None) -> SourceFile:
        return WebHdfsSource(self, path, facts or self._facts(path))

    def create(self, path: str, outgoing: FileStat, key: str, *, replacing: bool = True) -> TargetFile:
        return WebHdfsTarget(self, path, outgoing, key, replacing=replacing)

    def _facts(self, path: str) -> FileStat:
        found = self.status(path)
        if found is None:
            raise _missing(self.shown(path))
        if found.is_folder:
            raise UsageError(f"{self.shown(path)} is a folder and not a file.")
        return found.size, found.mtime_ns, found.mode

    # -- the wire ------------------------------------------------------------------------------

    def _send(
        self, method: str, path: str, op: str, size: int, chunks: Callable[[], Chunks], **values: object
    ) -> None:
        """Two steps, as HDFS wants it: ask where to, then send the bytes there."""
        first = self._call(method, path, op, body=b"", **values)
        location = self._location(first)
        second = self.lines.follow_redirect(method, location, ChunkedBody(size, chunks))
        self._check(second, path)
        whole(second, self.where)

    def _location(self, answer: Response) -> str:
        body = whole(answer, self.where)
        location = answer.headers.get("location", "")
        if not location and body:
            try:
                location = str(json.loads(body).get("Location") or "")
            except (ValueError, AttributeError):
                location = ""
        if "://" not in location:
            raise self._strange()
        return location

    def _json(self, method: str, path: str, op: str, **values: object) -> dict[str, object]:
        answer = self._call(method, path, op, body=None if method == "GET" else b"", **values)
        try:
            found = json.loads(whole(answer, self.where))
        except ValueError:
            raise self._strange() from None
        if not isinstance(found, dict):
            raise self._strange()
        return found

    def _call(
        self, method: str, path: str, op: str, *, body: bytes | None = None, **values: object
    ) -> Response:
        transport = self.lines.transport(reading=op == "OPEN")
        asked: dict[str, object] = {"op": op, **values}
        if self.user and not transport.endpoint.token:
            asked["user.name"] = self.user
        target = self.base + self.quoted(path) + query(asked)
        try:
            answer = transport.request(
                method, target, body=body, timeout=120, accept=(400, 403, 404, 405, 409, 410, 500, 501, 507)
            )
        except ConnectionFailed as e:
            raise ConnectionFailed(e.message.replace("The cluster", "The storage", 1), hint=e.hint) from None
        self._check(answer, path)
        return answer

    def quoted(self, path: str) -> str:
        return "/".join(quote(part) for part in (self.root + path).split("/"))

    def _check(self, answer: Response, path: str) -> None:
        if answer.status >= 400:
            raise self._error(answer.status, whole(answer, self.where), path)

    def _error(self, status: int, body: bytes, path: str) -> PaiError:
        try:
            remote = json.loads(body)["RemoteException"]
            name, message = str(remote["exception"]), str(remote.get("message") or "").split("\n")[0]
        except (ValueError, KeyError, TypeError):
            return error_from_response(status, body, f"The storage {self.where}")
        shown = self.shown(path)
        if status == 507 or any(mark in name + message for mark in _FULL):
            return PaiError(f"The storage is full: {shown} cannot be written.", code=FULL, status=507)
        if any(mark in name + message for mark in _HELD):
            return PaiError(f"{shown}: the storage still keeps it for an interrupted copy.", code=LEASE_HELD)
        kind = _BY_EXCEPTION.get(name, PaiError)
        if kind is NotFound:
            return _missing(shown)
        if kind is Forbidden:
            return Forbidden(f"{shown}: permission denied ({message.removesuffix('.')}).")
        if name == "ParentNotDirectoryException":
            return UsageError(f"{shown}: a part of this path is a file and not a folder.", status=status)
        return kind(f"{shown}: {message or name}", status=status)

    def _strange(self) -> ConnectionFailed:
        return ConnectionFailed(f"The storage {self.where} does not answer as WebHDFS does.")

    def _cut(self, path: str) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self.shown(path)} came only in part: something on the way cuts answers off."
        )

    def close(self) -> None:
        self.lines.close()


class WebHdfsSource(SourceFile):
    sums = True

    def __init__(self, backend: WebHdfs, path: str, facts: FileStat):
        self.backend = backend
        self.path = path
        self.size, self.mtime_ns, self.mode = facts
        self.key = key_of(backend.where, path, self.size, self.mtime_ns)

    def chunks(self, offset: int, length: int) -> Chunks:
        got = 0
        for data in self.read(offset, length):
            got += len(data)
            yield data
        if got != length:
            self.check()
            raise self.backend._cut(self.path)

    def read(self, offset: int, length: int) -> Chunks:
        return self.backend.read(self.path, offset, length)

    def checksum(self) -> Checksum | None:
        return self.backend.checksum(self.path)

    def check(self) -> None:
        now = self.backend.status(self.path)
        if now is None:
            raise changed(self.backend.shown(self.path), "vanished")
        if now.size != self.size or now.mtime_ns // 1_000_000 != self.mtime_ns // 1_000_000:
            raise changed(self.backend.shown(self.path))


class WebHdfsTarget(TargetFile):
    """HDFS writes a file from its beginning to its end; an interrupted one is appended to."""

    in_order = True
    sums = True

    def __init__(self, backend: WebHdfs, path: str, outgoing: FileStat, key: str, *, replacing: bool = True):
        self.backend = backend
        self.path = path
        self.size, self.mtime_ns, self.mode = outgoing
        self.replacing = replacing
        folder, _, name = path.rpartition("/")
        self.part = f"{folder}/{part_name(name, key)}"
        there = backend.status(path)
        if there is not None and there.is_folder:
            raise UsageError(f"{backend.shown(path)} is a folder, and a file was to take its place.")
        if there is not None and not replacing:
            raise is_there_already(backend.shown(path))

    def missing(self, longest: int = LONGEST_PARTS) -> list[Range]:
        found = self.backend.status(self.part)
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
                self.backend.put(self.part, length, chunks, self.mode)
                return
            found = self.backend.status(self.part)
            have = found.size if found is not None else 0
            if have == offset + length:
                return  # it had arrived, only the answer was lost
            if have != offset:
                raise ConnectionFailed(
                    f"{self.backend.shown(self.path)}: the storage has {have} bytes of it, not {offset}."
                )
            self._append(length, chunks)

        with_retries(send)

    def _append(self, length: int, chunks: Callable[[], Chunks]) -> None:
        """What an interrupted copy left is HDFS's own business for a while; then it can be continued."""
        ends = time.monotonic() + HELD_FOR_S
        while True:
            try:
                self.backend.append(self.part, length, chunks)
            except PaiError as e:
                if e.code != LEASE_HELD or time.monotonic() > ends:
                    raise
            else:
                return
            time.sleep(2)

    def checksum(self) -> Checksum | None:
        return self.backend.checksum(self.part)

    def checksum_type(self) -> str:
        return self.backend.will_sum()

    def finish(self, size: int) -> None:
        found = self.backend.status(self.part)
        if found is None or found.size != size:
            raise ConnectionFailed(
                f"{self.backend.shown(self.path)} arrived only in part; what was there is as it was.",
                hint="Run the same command again: it continues.",
            )
        self.backend.set_time(self.part, self.mtime_ns)
        self.backend.rename(self.part, self.path, replacing=self.replacing)

    def abandon(self) -> None:
        try:
            self.backend.delete(self.part)
        except PaiError:
            pass


def _entry(status: dict[str, object], name: str) -> FileInfo:
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
        intern(str(status.get("owner") or "")),  # a few, for however many files
        intern(str(status.get("group") or "")),
    )


def _missing(shown: str) -> NotFound:
    return NotFound(f"{shown}: there is no such file or folder.", code=NO_FILE)
