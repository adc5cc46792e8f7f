"""Receiver of one part of an upload: bytes, then their hash. Writes one block while the next one arrives."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from openpaisdk.errors import InvalidParameters
from openpaisdk.fileio import hashing
from paicluster.api.transfer.socket_io import receive_body
from paicluster.files import StorageUser
from paicluster.files.transfer.upload import UploadRequest
from paicluster.files.transfer.upload_registry import UploadRegistry
from paicluster.services.file_service import FileService

_BLOCK_BYTES = 1 << 20


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
    loop = asyncio.get_running_loop()
    hasher = hashing.hasher(upload_request.hash)()

    def write(at: int, data: bytes | memoryview) -> None:
        hasher.update(data)
        with uploads.locked(upload_id, user) as upload:
            upload.write(at, data, range(offset, offset + length))

    def record_part() -> None:
        with uploads.locked(upload_id, user) as upload:
            upload.record_part(offset, length, digest)

    pieces: list[bytes] = []
    size, at, left = 0, offset, length
    digest = b""

    def sink(data: memoryview) -> None:
        nonlocal at, left, digest
        if len(data) > left:
            digest += bytes(data[left:])
            data = data[:left]
        if data:
            write(at, data)
            at += len(data)
            left -= len(data)

    if await receive_body(request.receive, length + hashing.DIGEST_BYTES, sink):
        if left or digest != hasher.digest():
            raise _damaged(upload_request.path)
        await files.run(record_part)
        return
    pending_write: asyncio.Future[None] | None = None
    receive = request.receive
    try:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            data: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            if len(data) > left:
                digest += data[left:]
                data = data[:left]
            if data:
                left -= len(data)
                pieces.append(data)
                size += len(data)
            if size >= _BLOCK_BYTES or (size and not left):
                if pending_write is not None:
                    await pending_write
                pending_write = loop.run_in_executor(files.threads, write, at, b"".join(pieces))
                at += size
                pieces, size = [], 0
        if pending_write is not None:
            await pending_write
            pending_write = None
    finally:
        if pending_write is not None:
            await asyncio.wait([pending_write])
    if left or digest != hasher.digest():
        raise _damaged(upload_request.path)
    await files.run(record_part)


def _prepare_part(
    uploads: UploadRegistry, user: StorageUser, upload_id: str, offset: int, length: int
) -> UploadRequest:
    with uploads.locked(upload_id, user) as upload:
        upload.request.check_part(offset, length)
        return upload.request


def _damaged(path: str) -> InvalidParameters:
    return InvalidParameters(
        f"A part of {path} was truncated or damaged in transit.", code="CutPartError", hint="Send it again."
    )
