"""One part of an upload: bytes, then their hash. The disk writes one block while the next one arrives."""

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

_BLOCK = 1 << 20


async def receive_part(
    request: Request,
    files: FileService,
    uploads: UploadRegistry,
    who: StorageUser,
    upload_id: str,
    offset: int,
) -> None:
    """The upload is held only while a block of it is written: a slow client keeps no file open."""
    announced = request.headers.get("content-length", "")
    if not announced.isdecimal() or int(announced) < hashing.SIZE:
        raise InvalidParameters("A part is sent with its length, and its hash comes after its bytes.")
    length = int(announced) - hashing.SIZE
    about = await files.run(_expected, uploads, who, upload_id, offset, length)
    loop = asyncio.get_running_loop()
    made = hashing.hasher(about.hash)()

    def take(at: int, data: bytes | memoryview) -> None:
        made.update(data)
        with uploads.locked(upload_id, who) as upload:
            upload.write(at, data)

    def arrived() -> None:
        with uploads.locked(upload_id, who) as upload:
            upload.arrived(offset, length, proof)

    pieces: list[bytes] = []
    size, at, left = 0, offset, length
    proof = b""

    def sink(data: memoryview) -> None:
        nonlocal at, left, proof
        if len(data) > left:
            proof += bytes(data[left:])
            data = data[:left]
        if data:
            take(at, data)
            at += len(data)
            left -= len(data)

    if await receive_body(request.receive, length + hashing.SIZE, sink):
        if left or proof != made.digest():
            raise _damaged(about.path)
        await files.run(arrived)
        return
    writing: asyncio.Future[None] | None = None
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
                proof += data[left:]
                data = data[:left]
            if data:
                left -= len(data)
                pieces.append(data)
                size += len(data)
            if size >= _BLOCK or (size and not left):
                if writing is not None:
                    await writing
                writing = loop.run_in_executor(files.threads, take, at, b"".join(pieces))
                at += size
                pieces, size = [], 0
        if writing is not None:
            await writing
            writing = None
    finally:
        if writing is not None:
            await asyncio.wait([writing])
    if left or proof != made.digest():
        raise _damaged(about.path)
    await files.run(arrived)


def _expected(
    uploads: UploadRegistry, who: StorageUser, upload_id: str, offset: int, length: int
) -> UploadRequest:
    with uploads.locked(upload_id, who) as upload:
        upload.about.check_part(offset, length)
        upload.expect(offset, length)
        return upload.about


def _damaged(path: str) -> InvalidParameters:
    return InvalidParameters(
        f"A part of {path} was cut or damaged on its way.", code="CutPartError", hint="Send it again."
    )
