"""Backend of our own cluster: WebHDFS for metadata, the transfer API for large files and for many files."""

from __future__ import annotations

import json
import os
import sys
import threading

from openpaisdk.client.http1 import Body, send_all
from openpaisdk.errors import Conflict, ConnectionFailed, InvalidParameters, NotFound, PaiError, Unavailable
from openpaisdk.fileio import hashing
from openpaisdk.fileio.pack_format import MAX_PACK_FILES
from openpaisdk.storage.backends.base import (
    CHUNK_BYTES,
    MAX_LOCAL_PART_BYTES,
    MAX_PART_BYTES,
    WORKERS,
    part_size,
    split_ranges,
)
from openpaisdk.storage.backends.connection_pool import (
    REQUEST_TIMEOUT_S,
    ConnectionPool,
    iter_blocks,
    iter_body,
    read_all,
    with_retries,
)
from openpaisdk.storage.backends.descriptor_io import DescriptorTarget
from openpaisdk.storage.backends.webhdfs import BASE, WebHdfs, WebHdfsSource
from openpaisdk.storage.file_info import DirectoryListing

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from openpaisdk.client.http1 import Response
    from openpaisdk.storage.backends.base import Chunks, DescriptorChannel, Range, SourceFile, TargetFile
    from openpaisdk.storage.file_info import FileStat

LOCAL_PATH = "/api/v2/transfer/local"
TRANSFER_PATH = "/api/v2/transfer"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
UPLOADS_PATH = TRANSFER_PATH + "/uploads"


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
        response = self._request("GET", TRANSFER_PATH + "/tree", query)
        rest = b""
        for data in iter_body(response, self.url):
            *complete, rest = (rest + data).split(b"\n")
            for line in complete:
                folder = json.loads(line)
                if "end" in folder:
                    return
                if "code" in folder:
                    raise _error_from(folder)
                yield DirectoryListing(folder["p"], folder["f"], folder["d"])
        raise ConnectionFailed(
            f"The listing of {self.display_path(path)} is incomplete: a proxy may truncate responses."
        )

    def read(
        self, path: str, offset: int = 0, length: int = -1, on_verified: Callable[[bytes], None] | None = None
    ) -> Chunks:
        """Bytes of a file, verified: they are valid only when the iteration ends without an error.

        Their hash is then passed to ``on_verified``.
        """
        if length == 0:
            return
        response = self._request(
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
        left = int(announced) - hashing.DIGEST_BYTES
        digest = b""
        buffer = memoryview(bytearray(max(1, min(CHUNK_BYTES, int(announced)))))
        for data in iter_blocks(response, self.url, buffer):
            if len(data) > left:
                digest += data[left:]
                data = data[:left]
            left -= len(data)
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
        response = self._request("GET", TRANSFER_PATH + "/file", {"path": self.root + path, "length": 0})
        read_all(response, self.url)
        headers = response.headers
        try:
            return int(headers["x-pai-size"]), int(headers["x-pai-mtime"]), int(headers["x-pai-mode"], 8)
        except (KeyError, ValueError):
            raise self._unexpected_response() from None

    def create(self, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True) -> TargetFile:
        return MultipartUpload(self, path, source_stat, key, overwrite=overwrite)

    def descriptor_channel(self) -> DescriptorChannel | None:
        """Session for file-descriptor passing; None if the cluster is on another machine."""
        if self.over_http:
            return None
        with self._channel_lock:
            if self._channel_pid != os.getpid():
                # A fork cannot use its parent's session.
                self._channel, self._channel_pid = None, os.getpid()
            if sys.platform == "linux" and self._channel is None and is_same_machine(self.capabilities):
                from openpaisdk.storage.backends.fd_passing import connect

                self._channel = connect(self._invite)
            self.over_http = self._channel is None
        return self._channel

    def _invite(self) -> dict[str, object]:
        """The socket of the cluster's descriptor server, and a ticket for it."""
        return self._parse_response(self._request("POST", LOCAL_PATH, {}, b""), "local transfers")

    def free_bytes(self, path: str) -> int | None:
        free = self.capabilities.get("free")
        return free if isinstance(free, int) else None

    # -- packs ---------------------------------------------------------------------------------

    def send_pack(self, base: str, pack: bytes) -> list[tuple[str, PaiError]]:
        def send() -> dict[str, object]:
            return self._parse_response(
                self._request("POST", TRANSFER_PATH + "/pack", {"path": self.root + base}, pack),
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
                response = self._request("POST", TRANSFER_PATH + "/remove", {}, body)
                return self._parse_response(response, "a bulk delete")

            problems += _parse_problems(with_retries(remove))
        return problems

    def fetch_pack(self, base: str, names: list[str]) -> bytes:
        body = json.dumps({"path": self.root + base, "names": names, "hash": self.algorithm}).encode()
        return with_retries(
            lambda: read_all(self._request("POST", TRANSFER_PATH + "/fetch", {}, body), self.url)
        )

    # -- requests ------------------------------------------------------------------------------

    def _request(
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

    def _parse_response(self, response: Response, what: str) -> dict[str, object]:
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


class MultipartUpload(DescriptorTarget):
    """Resumable upload of a large file: parts in any order, each with its hash; the server records them."""

    def __init__(
        self, backend: ClusterBackend, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True
    ):
        super().__init__()
        self.backend = backend
        self.path = path
        self.what = backend.display_path(path)
        self.size, self.mtime_ns, self.mode = source_stat
        self.in_order = self.size < 0
        self.algorithm = backend.algorithm
        self.part_bytes = part_size(self.size, backend.max_part_bytes)
        self.digests: dict[int, bytes] = {}
        self.request = {
            "path": backend.root + path,
            "size": self.size,
            "mtime": self.mtime_ns,
            "mode": self.mode,
            "key": key,
            "hash": self.algorithm,
            "partBytes": self.part_bytes,
            "overwrite": overwrite,
        }
        self.channel = backend.descriptor_channel() if self.size > 0 else None
        state: dict[str, object] | None = None
        if self.channel is not None:
            self.fd, state = self.channel.create(self.request)
        if state is None:
            state = with_retries(self._create)
        self.id = str(state["id"])
        have = state.get("have")
        self.received: dict[int, str] = (
            {int(at): str(digest) for at, digest in have.items()} if isinstance(have, dict) else {}
        )

    def _create(self) -> dict[str, object]:
        response = self.backend._request("POST", UPLOADS_PATH, {}, json.dumps(self.request).encode())
        return self.backend._parse_response(response, self.what)

    def missing_ranges(self, max_bytes: int = MAX_PART_BYTES) -> list[Range]:
        left = []
        for at, length in split_ranges(self.size, self.part_bytes):
            if at in self.received:
                self.digests[at] = bytes.fromhex(self.received[at])
            else:
                left.append((at, length))
        return left

    def put(
        self, offset: int, length: int, chunks: Callable[[], Chunks], source: SourceFile | None = None
    ) -> None:
        if self.fd >= 0:
            with_retries(lambda: self.write(offset, length, chunks(), source))
            return

        def send() -> None:
            fd = -1 if source is None else source.fileno()
            body = _PartBody(offset, length, chunks, self.algorithm, fd)
            try:
                response = self.backend._request("PUT", f"{UPLOADS_PATH}/{self.id}", {"offset": offset}, body)
                read_all(response, self.backend.url)
            except NotFound:
                # Another copy of the same file finished it; or it was cleaned up, or the disk was replaced.
                if not self._has_arrived(self.size):
                    raise ConnectionFailed(
                        f"The cluster no longer has the upload of {self.what}.",
                        hint="Run the same command again.",
                    ) from None
            self.digests[offset] = body.digest

        with_retries(send)

    def mark_written(self, offset: int, length: int, digest: bytes) -> None:
        if self.channel is not None:
            self.channel.mark_written(self.id, offset, length, digest)
            self.digests[offset] = digest

    def finish(self, size: int) -> None:
        ordered = [self.digests[at] for at in sorted(self.digests)]
        completion: dict[str, object] = {
            "size": size,
            "mtime": self.mtime_ns,
            "digest": hashing.combine(ordered, self.algorithm).hex(),
        }
        channel = self.channel if self.fd >= 0 else None
        self.close()
        body = json.dumps(completion).encode()

        def end() -> None:
            try:
                if channel is not None:
                    channel.finish(self.id, completion)
                    return
                read_all(
                    self.backend._request("POST", f"{UPLOADS_PATH}/{self.id}/finish", {}, body),
                    self.backend.url,
                )
            except NotFound as e:
                # The response to an earlier attempt may have been lost, or another copy finished the upload.
                if not self._has_arrived(size):
                    raise ConnectionFailed(e.message) from None
            except Conflict as e:
                if e.code != "StillOpenError":
                    raise
                raise Unavailable(
                    f"Another copy of the same file to {self.what} is in progress.",
                    hint="Run the same command again when that copy has finished.",
                ) from None

        with_retries(end)

    def _has_arrived(self, size: int) -> bool:
        there = self.backend.status(self.path)
        return there is not None and (there.size, there.mtime_ns // 10**6) == (size, self.mtime_ns // 10**6)

    def abandon(self) -> None:
        self.close()
        try:
            read_all(self.backend._request("DELETE", f"{UPLOADS_PATH}/{self.id}", {}), self.backend.url)
        except PaiError:
            pass


class _PartBody(Body):
    """Request body of a part: its bytes, then their hash, which is computed while they are sent."""

    __slots__ = ("algorithm", "digest", "make", "offset", "source")

    def __init__(self, offset: int, length: int, make: Callable[[], Chunks], algorithm: str, source: int):
        super().__init__(length + hashing.DIGEST_BYTES)
        self.offset = offset
        self.make = make
        self.algorithm = algorithm
        self.source = source if sys.platform == "linux" else -1
        self.digest = b""

    def chunks(self) -> Iterator[bytes]:
        hasher = hashing.hasher(self.algorithm)()
        for chunk in self.make():
            hasher.update(chunk)
            yield chunk  # type: ignore[misc]  # a socket accepts memoryviews as well
        self.digest = hasher.digest()
        yield self.digest

    def send(self, sock: socket.socket) -> None:
        """Send with sendfile when the part comes from a file; the bytes are read here only to hash them.

        If the file changes in between, the cluster finds that the bytes do not match the hash.
        """
        if self.source < 0:
            super().send(sock)
            return
        from openpaisdk.storage.backends.sendfile import send_range

        at, end = self.offset, self.offset + self.size - hashing.DIGEST_BYTES
        for chunk in self.chunks():
            # The last chunk is the hash, which is not in the file.
            if at == end or not send_range(sock, self.source, at, len(chunk)):
                send_all(sock, chunk)
            at += len(chunk)


def _parse_problems(response: dict[str, object]) -> list[tuple[str, PaiError]]:
    listed = response.get("problems")
    problems = listed if isinstance(listed, list) else []
    return [(str(each.get("name")), _error_from(each)) for each in problems if isinstance(each, dict)]


def _error_from(problem: dict[str, object]) -> PaiError:
    return PaiError(
        str(problem.get("message") or "The cluster rejected it."),
        code=str(problem.get("code") or "") or None,
        hint=str(problem.get("hint") or ""),
    )
