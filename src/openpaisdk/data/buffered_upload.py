"""Upload of a file that is written piece by piece."""

from __future__ import annotations

from openpaisdk.storage.backends.base import PART_BYTES
from openpaisdk.storage.transfer.stream_upload import StreamUpload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Backend


class BufferedUpload:
    """Collects pieces to whole parts. The target is unchanged until ``finish``."""

    def __init__(self, backend: Backend, path: str):
        self._upload = StreamUpload(backend, path)
        self._pieces: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | memoryview) -> None:
        self._pieces.append(bytes(data))
        self._size += len(data)
        if self._size >= PART_BYTES:
            buffered = b"".join(self._pieces)
            at = 0
            while len(buffered) - at >= PART_BYTES:
                self._upload.add(buffered[at : at + PART_BYTES])
                at += PART_BYTES
            self._pieces = [buffered[at:]]
            self._size = len(buffered) - at

    def finish(self) -> None:
        if self._size:
            self._upload.add(b"".join(self._pieces))
        self._upload.finish()

    def abandon(self) -> None:
        self._upload.abandon()
