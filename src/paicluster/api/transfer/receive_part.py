"""Receiver of one part of an upload: bytes, then their hash. Writes one block while the next one arrives."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from paicluster.api.transfer.socket_io import receive_body
from paicluster.files import StorageUser
from paicluster.files.transfer.upload import UploadRequest
from paicluster.files.transfer.upload_registry import UploadRegistry
from paicluster.services.file_service import FileService
from paiprotocol.errors import InvalidParameters
from paiprotocol.transfer import hashing

_BLOCK_BYTES = 1 << 20

_Bytes = TypeVar("_Bytes", bytes, memoryview)


async def receive_part(
    request: Request,
    files: FileService,
    uploads: UploadRegistry,
    user: StorageUser,
    upload_id: str,
    offset: int,
) -> None:
    """Receive a part.

    The upload is locked only while a block is written: a slow client keeps no file open.
    """
    content_length = request.headers.get("content-length", "")
    if not content_length.isdecimal() or int(content_length) < hashing.DIGEST_BYTES:
        raise InvalidParameters(
            "A part needs a Content-Length, and its bytes must be followed by their hash."
        )
    length = int(content_length) - hashing.DIGEST_BYTES
    upload_request = await files.run(_prepare_part, uploads, user, upload_id, offset, length)
    part = _Part(uploads, user, upload_id, upload_request, range(offset, offset + length))
    if not await receive_body(request.receive, length + hashing.DIGEST_BYTES, part.take):
        await _receive_blocks(request, files, part)
    part.check()
    await files.run(part.record)


class _Part:
    """A part as it arrives: its content, then the hash of it."""

    def __init__(
        self, uploads: UploadRegistry, user: StorageUser, upload_id: str, request: UploadRequest, place: range
    ):
        self._uploads = uploads
        self._user = user
        self._upload_id = upload_id
        self._path = request.path
        self._place = place
        self._hasher = hashing.hasher(request.hash)()
        self._digest = b""
        self._at = place.start
        self.left = len(place)
        """Bytes of the content that have not arrived."""

    def content_of(self, data: _Bytes) -> _Bytes:
        """The content among the next bytes; what follows it is kept as its hash."""
        content, rest = data[: self.left], data[self.left :]
        self.left -= len(content)
        self._digest += rest
        return content

    def write(self, content: bytes | memoryview) -> None:
        """Write the next content. The upload is locked meanwhile."""
        self._hasher.update(content)
        with self._uploads.locked(self._upload_id, self._user) as upload:
            upload.write(self._at, content, self._place)
        self._at += len(content)

    def take(self, data: memoryview) -> None:
        if content := self.content_of(data):
            self.write(content)

    def check(self) -> None:
        """Raise InvalidParameters unless all of it arrived undamaged."""
        if self.left or self._digest != self._hasher.digest():
            raise InvalidParameters(
                f"A part of {self._path} was truncated or damaged in transit.",
                code="CutPartError",
                hint="Send it again.",
            )

    def record(self) -> None:
        with self._uploads.locked(self._upload_id, self._user) as upload:
            upload.record_part(self._place.start, len(self._place), self._digest)


async def _receive_blocks(request: Request, files: FileService, part: _Part) -> None:
    """Receive a part as messages of the server: one block is written while the next one arrives."""
    loop = asyncio.get_running_loop()
    pieces: list[bytes] = []
    size = 0
    pending_write: asyncio.Future[None] | None = None
    try:
        more = True
        while more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            if content := part.content_of(message.get("body", b"")):
                pieces.append(content)
                size += len(content)
            if size >= _BLOCK_BYTES or (size and not part.left):
                if pending_write is not None:
                    await pending_write
                pending_write = loop.run_in_executor(files.threads, part.write, b"".join(pieces))
                pieces, size = [], 0
        if pending_write is not None:
            await pending_write
            pending_write = None
    finally:
        if pending_write is not None:
            await asyncio.wait([pending_write])


def _prepare_part(
    uploads: UploadRegistry, user: StorageUser, upload_id: str, offset: int, length: int
) -> UploadRequest:
    with uploads.locked(upload_id, user) as upload:
        upload.request.check_part(offset, length)
        return upload.request
