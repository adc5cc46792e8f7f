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
        # Used for every part: new memory of this size costs more than what is written to it.
        self._part = memoryview(bytearray(PART_BYTES))
        self._filled = 0

    def write(self, data: bytes | memoryview) -> None:
        end = self._filled + len(data)
        if end < PART_BYTES:
            self._part[self._filled : end] = data
            self._filled = end
            return
        view = memoryview(data)
        while len(view) >= (free := PART_BYTES - self._filled):
            self._part[self._filled :] = view[:free]
            self._upload.add(self._part)
            self._filled = 0
            view = view[free:]
        self._part[: len(view)] = view
        self._filled = len(view)

    def finish(self) -> None:
        if self._filled:
            self._upload.add(self._part[: self._filled])
        self._upload.finish()

    def abandon(self) -> None:
        self._upload.abandon()
