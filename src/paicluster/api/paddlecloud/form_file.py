"""The file in a form, as PaddleCloud's simple upload sends it: received piece by piece, of any size."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from paiprotocol.errors import InvalidParameters

FIELD = b"file"
MAX_HEAD_BYTES = 64 << 10

_BOUNDARY = re.compile(r'multipart/form-data\s*;.*?boundary="?([^";]{1,70})"?', re.IGNORECASE)
_NAME = re.compile(rb'[;\s]name="([^"\r\n]*)"', re.IGNORECASE)


def form_boundary(content_type: str) -> bytes:
    match = _BOUNDARY.match(content_type)
    if match is None:
        raise InvalidParameters("The body must be a form with a file: multipart/form-data with a boundary.")
    return match[1].encode("latin-1", "replace")


async def file_in_form(pieces: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[bytes]:
    """Bytes of the field `file`. The last piece comes only if the form is complete; else an error does."""
    body = _FormBody(pieces)
    # A line break before the first boundary makes all boundaries the same.
    body.push_back(b"\r\n")
    delimiter = b"\r\n--" + boundary
    while True:
        async for _ in body.until(delimiter):
            pass
        if await body.read(2) != b"\r\n":
            raise InvalidParameters('The form has no field "file".')
        name = _NAME.search(await body.head())
        if name is not None and name[1] == FIELD:
            break
    held = b""
    async for data in body.until(delimiter):
        if held:
            yield held
        held = data
    await body.read(2)
    yield held


class _FormBody:
    """Body of a request, of which a little is kept."""

    def __init__(self, pieces: AsyncIterator[bytes]):
        self._pieces = pieces
        self._buffer = b""

    def push_back(self, data: bytes) -> None:
        self._buffer = data + self._buffer

    async def until(self, delimiter: bytes) -> AsyncIterator[bytes]:
        """What precedes a delimiter, piece by piece; the delimiter itself is dropped."""
        while True:
            at = self._buffer.find(delimiter)
            if at >= 0:
                data, self._buffer = self._buffer[:at], self._buffer[at + len(delimiter) :]
                if data:
                    yield data
                return
            # The end may be the beginning of the delimiter.
            keep = len(delimiter) - 1
            data, self._buffer = self._buffer[:-keep], self._buffer[-keep:]
            if data:
                yield data
            await self._more()

    async def read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._more()
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    async def head(self) -> bytes:
        """Headers of a part, after a line break."""
        end = b"\r\n\r\n"
        # A part without headers begins with the empty line.
        while end not in b"\r\n" + self._buffer:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise InvalidParameters("The head of a part of the form is too long.")
            await self._more()
        head, _, rest = (b"\r\n" + self._buffer).partition(end)
        self._buffer = rest
        return head

    async def _more(self) -> None:
        async for piece in self._pieces:
            if piece:
                self._buffer += piece
                return
        raise InvalidParameters("The form is truncated: its last boundary is missing. Nothing was stored.")
