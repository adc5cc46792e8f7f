"""Backend of our own cluster: WebHDFS for metadata, the transfer API for large files and for many files."""

from __future__ import annotations

import json
import os
import sys
import threading

from openpaisdk.storage.backends.base import (
    CHUNK_BYTES,
    MAX_LOCAL_PART_BYTES,
    MAX_PART_BYTES,
    WORKERS,
)
from openpaisdk.storage.backends.connection_pool import (
    REQUEST_TIMEOUT_S,
    ConnectionPool,
    iter_blocks,
    iter_body,
    read_all,
    with_retries,
)
from openpaisdk.storage.backends.resumable_upload import ResumableUpload
from openpaisdk.storage.backends.webhdfs import WebHdfs, WebHdfsSource
from openpaisdk.storage.file_info import DirectoryListing
from paiprotocol.errors import ConnectionFailed, InvalidParameters, NotFound, PaiError
from paiprotocol.transfer import hashing
from paiprotocol.transfer.pack_format import MAX_PACK_FILES
from pairuntime.transport.http1 import Body
from pairuntime.transport.webhdfs import BASE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.storage.backends.base import Chunks, DescriptorChannel, SourceFile, TargetFile
    from openpaisdk.storage.file_info import FileStat
    from pairuntime.transport.http1 import Response

LOCAL_PATH = "/api/v2/transfer/local"
TRANSFER_PATH = "/api/v2/transfer"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class ClusterBackend(WebHdfs):
    """Storage of a cluster with the transfer API: packs, multipart upload, descriptor passing."""

    supports_packs = True
    max_part_bytes = MAX_PART_BYTES

    def __init__(
        self,
        pool: ConnectionPool,
        capabilities: dict[str, object],
        *,
        url: str,
        user: str = "",
        base: str = BASE,
        root: str = "",
        rest_path: str = "",
        over_http: bool = False,
    ):
        """``capabilities``: the response of the transfer API; ``over_http``: never pass file descriptors."""
        super().__init__(pool, url=url, user=user, base=base, root=root)
        self.capabilities = capabilities
        self.rest_path = rest_path
        supported = capabilities.get("hashes")
        best = hashing.preferred_algorithm()
        self.algorithm = best if isinstance(supported, list) and best in supported else hashing.BLAKE2B
        self.over_http = over_http
        if is_same_machine(capabilities):
            # The cluster needs the same processors: more threads than processors only slow each other down.
            self.workers = max(2, min(WORKERS, os.cpu_count() or 1))
            self.max_part_bytes = MAX_LOCAL_PART_BYTES
        self._bypass_hash_cache = False
        self._channel: DescriptorChannel | None = None
        self._channel_pid = os.getpid()
        self._channel_lock = threading.Lock()

    def walk(self, path: str, max_files: int = 0) -> Iterator[DirectoryListing]:
        query: dict[str, object] = {"path": self.root + path, "files": max_files or None}
        response = self.transfer_request("GET", TRANSFER_PATH + "/tree", query)
        rest = b""
        for data in iter_body(response, self.url):
            *complete, rest = (rest + data).split(b"\n")
            for line in complete:
                listing = self._listing_of(line)
                if listing is None:
                    return
                yield listing
        raise ConnectionFailed(
            f"The listing of {self.display_path(path)} is incomplete: a proxy may truncate responses."
        )

    def _listing_of(self, line: bytes) -> DirectoryListing | None:
        """One line of the listing of a tree; None at its end."""
        try:
            folder = json.loads(line)
            if "end" in folder:
                return None
            if "code" not in folder:
                path, files, folders = folder["p"], folder["f"], folder["d"]
                is_valid = isinstance(path, str) and isinstance(folders, list)
                if is_valid and all(map(_is_file_stat, files.values())):
                    return DirectoryListing(path, files, folders)
            elif isinstance(folder, dict):
                raise _error_from(folder)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise ConnectionFailed(f"The storage {self.url} sent a listing that cannot be read.")

    def read(
        self, path: str, offset: int = 0, length: int = -1, on_verified: Callable[[bytes], None] | None = None
    ) -> Chunks:
        """Bytes of a file, verified: they are valid only when the iteration ends without an error.

        Their hash is then passed to ``on_verified``.
        """
        if length == 0:
            return
        response = self.transfer_request(
            "GET",
            TRANSFER_PATH + "/file",
            {
                "path": self.root + path,
                "offset": offset or None,
                "length": length if length >= 0 else None,
                "hash": self.algorithm,
                "fresh": "true" if self._bypass_hash_cache else None,
            },
        )
        announced = response.headers.get("content-length", "")
        if not announced.isdecimal():
            raise self._truncated(path)
        hasher = hashing.hasher(self.algorithm)()
        remaining = int(announced) - hashing.DIGEST_BYTES
        digest = b""
        buffer = memoryview(bytearray(max(1, min(CHUNK_BYTES, int(announced)))))
        for data in iter_blocks(response, self.url, buffer):
            if len(data) > remaining:
                digest += data[remaining:]
                data = data[:remaining]
            remaining -= len(data)
            if data:
                hasher.update(data)
                yield data
        if digest != hasher.digest():
            # The cluster caches hashes: from now on it must hash the bytes themselves.
            self._bypass_hash_cache = True
            raise self._truncated(path)
        if on_verified is not None:
            on_verified(digest)

    def open(self, path: str, file_stat: FileStat | None = None) -> SourceFile:
        channel = self.descriptor_channel()
        if channel is not None:
            return channel.open(self.root + path, self.display_path(path))
        return VerifiedSource(self, path, self._stat(path))

    def _stat(self, path: str) -> FileStat:
        """Size, time in nanoseconds and mode, which a walk does not return."""
        response = self.transfer_request(
            "GET", TRANSFER_PATH + "/file", {"path": self.root + path, "length": 0}
        )
        read_all(response, self.url)
        headers = response.headers
        try:
            return int(headers["x-pai-size"]), int(headers["x-pai-mtime"]), int(headers["x-pai-mode"], 8)
        except (KeyError, ValueError):
            raise self.unexpected_response() from None

    def create(self, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True) -> TargetFile:
        return ResumableUpload(self, path, source_stat, key, overwrite=overwrite)

    def descriptor_channel(self) -> DescriptorChannel | None:
        """Channel for file-descriptor passing; None if the cluster is on another machine."""
        if self.over_http:
            return None
        with self._channel_lock:
            if self._channel_pid != os.getpid():
                # A fork cannot use its parent's channel.
                self._channel, self._channel_pid = None, os.getpid()
            if sys.platform == "linux" and self._channel is None and is_same_machine(self.capabilities):
                from openpaisdk.storage.backends.fd_passing import connect

                self._channel = connect(self._invite)
            self.over_http = self._channel is None
        return self._channel

    def _invite(self) -> dict[str, object]:
        """The socket of the cluster's descriptor server, and a ticket for it."""
        return self.parse_transfer_response(
            self.transfer_request("POST", LOCAL_PATH, {}, b""), "local transfers"
        )

    def free_bytes(self, path: str) -> int | None:
        free = self.capabilities.get("free")
        return free if isinstance(free, int) else None

    # -- packs ---------------------------------------------------------------------------------

    def send_pack(self, base: str, pack: bytes) -> list[tuple[str, PaiError]]:
        def send() -> dict[str, object]:
            return self.parse_transfer_response(
                self.transfer_request("POST", TRANSFER_PATH + "/pack", {"path": self.root + base}, pack),
                "a pack of files",
            )

        return _parse_problems(with_retries(send))

    def delete_all(self, base: str, names: list[str]) -> list[tuple[str, PaiError]]:
        if not self.capabilities.get("removes"):
            return super().delete_all(base, names)
        problems = []
        for start in range(0, len(names), MAX_PACK_FILES):
            some = names[start : start + MAX_PACK_FILES]
            body = json.dumps({"path": self.root + base, "names": some}).encode()

            def remove(body: bytes = body) -> dict[str, object]:
                response = self.transfer_request("POST", TRANSFER_PATH + "/remove", {}, body)
                return self.parse_transfer_response(response, "a bulk delete")

            problems += _parse_problems(with_retries(remove))
        return problems

    def fetch_pack(self, base: str, names: list[str]) -> bytes:
        body = json.dumps({"path": self.root + base, "names": names, "hash": self.algorithm}).encode()
        return with_retries(
            lambda: read_all(self.transfer_request("POST", TRANSFER_PATH + "/fetch", {}, body), self.url)
        )

    # -- requests ------------------------------------------------------------------------------

    def transfer_request(
        self, method: str, path: str, values: dict[str, object], body: bytes | Body | None = None
    ) -> Response:
        try:
            return self.pool.transport(streaming=method == "GET").request(
                method, self.rest_path + path, values=values, body=body, timeout=REQUEST_TIMEOUT_S
            )
        except InvalidParameters as e:
            # A proxy may truncate requests as well: as a connection error it is retried.
            if e.code in ("CutPackError", "CutPartError", "IncompleteFileError"):
                raise ConnectionFailed(e.message) from None
            raise
        except NotFound as e:
            raise NotFound(e.message, code=e.code, hint=e.hint) from None

    def parse_transfer_response(self, response: Response, what: str) -> dict[str, object]:
        try:
            parsed = json.loads(read_all(response, self.url))
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise ConnectionFailed(f"{self.url} sent an unexpected response about {what}.")
        return parsed


def is_same_machine(capabilities: dict[str, object]) -> bool:
    """Whether the cluster reports the boot id of this machine."""
    if sys.platform == "linux" and capabilities.get("boot"):
        try:
            with open(BOOT_ID, encoding="ascii") as f:
                return f.read().strip() == capabilities["boot"]
        except OSError:
            pass
    return False


class VerifiedSource(WebHdfsSource):
    """Source file whose ranges were verified when read, so the target need not hash them again."""

    supports_checksum = False

    def __init__(self, backend: ClusterBackend, path: str, file_stat: FileStat):
        super().__init__(backend, path, file_stat)
        self._backend = backend
        self.max_part_bytes = backend.max_part_bytes
        self._digests: dict[tuple[int, int], bytes] = {}

    def read(self, offset: int, length: int) -> Chunks:
        def keep(digest: bytes) -> None:
            self._digests[offset, length] = digest

        if not length:
            keep(hashing.hash_bytes(b"", self._backend.algorithm))
        return self._backend.read(self.path, offset, length, keep)

    def provides_digests(self, algorithm: str) -> bool:
        return self._backend.algorithm == algorithm

    def range_digest(self, offset: int, length: int) -> bytes:
        return self._digests.pop((offset, length))


def _parse_problems(response: dict[str, object]) -> list[tuple[str, PaiError]]:
    listed = response.get("problems")
    problems = listed if isinstance(listed, list) else []
    return [(str(each.get("name")), _error_from(each)) for each in problems if isinstance(each, dict)]


def _is_file_stat(stat: object) -> bool:
    return type(stat) is list and len(stat) == 3 and type(stat[0]) is int and type(stat[1]) is int


def _error_from(problem: dict[str, object]) -> PaiError:
    return PaiError(
        str(problem.get("message") or "The cluster rejected it."),
        code=str(problem.get("code") or "") or None,
        hint=str(problem.get("hint") or ""),
    )
