"""Resumable upload of a large file to our own cluster: parts that arrived are not sent again."""

from __future__ import annotations

import json
import sys

from openpaisdk.storage.backends.base import MAX_PART_BYTES, part_size, split_ranges
from openpaisdk.storage.backends.connection_pool import read_all, with_retries
from openpaisdk.storage.backends.descriptor_io import DescriptorTarget
from paiprotocol.errors import Conflict, ConnectionFailed, NotFound, PaiError, Unavailable
from paiprotocol.transfer import hashing
from pairuntime.transport.http1 import Body, send_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from typing import Protocol

    from openpaisdk.storage.backends.base import Chunks, DescriptorChannel, Range, SourceFile
    from openpaisdk.storage.file_info import FileInfo, FileStat
    from pairuntime.transport.http1 import Response

    class UploadBackend(Protocol):
        """What an upload needs of the backend that begins it."""

        root: str
        algorithm: str
        max_part_bytes: int

        @property
        def url(self) -> str: ...
        def display_path(self, path: str) -> str: ...
        def status(self, path: str) -> FileInfo | None: ...
        def descriptor_channel(self) -> DescriptorChannel | None: ...
        def transfer_request(
            self, method: str, path: str, values: dict[str, object], body: bytes | Body | None = None
        ) -> Response: ...
        def parse_transfer_response(self, response: Response, what: str) -> dict[str, object]: ...


UPLOADS_PATH = "/api/v2/transfer/uploads"


class ResumableUpload(DescriptorTarget):
    """Resumable upload of a large file: parts in any order, each with its hash; the server records them."""

    def __init__(
        self, backend: UploadBackend, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True
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
        response = self.backend.transfer_request("POST", UPLOADS_PATH, {}, json.dumps(self.request).encode())
        return self.backend.parse_transfer_response(response, self.what)

    def missing_ranges(self, max_bytes: int = MAX_PART_BYTES) -> list[Range]:
        missing = []
        for at, length in split_ranges(self.size, self.part_bytes):
            if at in self.received:
                self.digests[at] = bytes.fromhex(self.received[at])
            else:
                missing.append((at, length))
        return missing

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
                response = self.backend.transfer_request(
                    "PUT", f"{UPLOADS_PATH}/{self.id}", {"offset": offset}, body
                )
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
                    self.backend.transfer_request("POST", f"{UPLOADS_PATH}/{self.id}/finish", {}, body),
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
            read_all(
                self.backend.transfer_request("DELETE", f"{UPLOADS_PATH}/{self.id}", {}), self.backend.url
            )
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
