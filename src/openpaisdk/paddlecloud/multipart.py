"""Multipart bodies of PaddleCloud's requests: whole files, and chunks with their fixed boundary."""

from __future__ import annotations

import os

from paiprotocol.errors import ConnectionFailed, PaiError
from pairuntime.transport.http1 import Body, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pairuntime.transport.http1 import Response

BOUNDARY = "8d7b0e5709d756e21e971ff4d9ac3b20"
"""Boundary of chunks in both directions: receivers do not read it from the header."""
CHUNK_TYPE = f"multipart/form-data; boundary={BOUNDARY}"
MAX_HEAD_BYTES = 1 << 16
READ_BYTES = 1 << 20


class FileForm(Body):
    """The upload of one whole file, which is read while it is sent. The boundary is random."""

    __slots__ = ("_file_size", "_head", "_path", "_tail", "content_type")

    def __init__(self, path: str, name: str, size: int):
        """``name`` is the name in the form; ``size`` the file's size when it was collected."""
        boundary = os.urandom(20).hex()
        escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "%0D").replace("\n", "%0A")
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self._path = path
        self._file_size = size
        self._head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{escaped}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        self._tail = f"\r\n--{boundary}--\r\n".encode()
        super().__init__(len(self._head) + size + len(self._tail))

    def chunks(self) -> Iterator[bytes]:
        yield self._head
        remaining = self._file_size
        with open(self._path, "rb") as f:
            while remaining and (data := f.read(min(remaining, READ_BYTES))):
                remaining -= len(data)
                yield data
            if remaining or f.read(1):
                # The server discards a form without its end.
                raise changed_during_copy(self._path)
        yield self._tail


class ChunkBody(Body):
    """One chunk of a file. Its place is in the part's file name, as a query string."""

    __slots__ = ("_content", "_head")

    def __init__(self, path: str, offset: int, content: memoryview):
        place = f"chunksize={len(content)}&offset={offset}&path={quote(path)}"
        self._head = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chunk"; filename="{place}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        self._content = content
        super().__init__(len(self._head) + len(content) + len(_CLOSE))

    def chunks(self) -> Iterator[bytes]:
        yield self._head
        yield self._content  # type: ignore[misc]  # sent as it is
        yield _CLOSE


_CLOSE = f"\r\n--{BOUNDARY}--\r\n".encode()


def read_chunk(response: Response, buffer: memoryview) -> int:
    """Read the one part of a downloaded chunk; returns how many bytes of the buffer it filled.

    The reply ends with a JSON object behind the closing boundary, which repeats what is known by then.
    """
    head = b""
    while (end := head.find(b"\r\n\r\n")) < 0:
        part = response.read_some()
        head += part
        if not part or len(head) > MAX_HEAD_BYTES:
            raise ConnectionFailed("The datacenter sent no chunk of the file.", hint="Run the command again.")
    content = head[end + 4 :][: len(buffer)]
    filled = len(content)
    buffer[:filled] = content
    extra = head[end + 4 + filled :]
    filled += response.read_into(buffer[filled:])
    rest = extra + response.read()
    if not rest.startswith(_CLOSE.rstrip(b"\r\n")):
        # Either the part is longer than announced, or it ended before: then its boundary is in the buffer.
        raise ConnectionFailed("The datacenter sent a chunk of another size.", hint="Run the command again.")
    return filled


class SourceChanged(PaiError):
    """The file that is copied is no longer the one that the copy began with."""


def changed_during_copy(path: str) -> SourceChanged:
    return SourceChanged(
        f"{path} changed while it was copied, so the copy is not complete.",
        hint="Run the command again when nothing writes to the file.",
    )
