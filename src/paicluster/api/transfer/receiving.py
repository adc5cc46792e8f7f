"""One part of an upload: bytes, then their hash. The disk writes one block while the next one arrives."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from openpaisdk.errors import InvalidParameters
from openpaisdk.parcels import hashing
from paicluster.api.files import Files
from paicluster.api.transfer.uploads import Upload

_BLOCK = 1 << 20


async def receive_part(request: Request, files: Files, upload: Upload, offset: int) -> None:
    announced = request.headers.get("content-length", "")
    if not announced.isdecimal() or int(announced) < hashing.SIZE:
        raise InvalidParameters("A part is sent with its length, and its hash comes after its bytes.")
    length = int(announced) - hashing.SIZE
    if length > upload.about.part_bytes:
        raise InvalidParameters(f"A part has {upload.about.part_bytes} bytes at most.")
    loop = asyncio.get_running_loop()
    made = hashing.maker(upload.about.hash)()

    def take(at: int, pieces: list[bytes]) -> None:
        for piece in pieces:
            made.update(piece)
        upload.write(at, pieces)

    pieces: list[bytes] = []
    size, at, left = 0, offset, length
    proof = b""
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
                writing = loop.run_in_executor(files.threads, take, at, pieces)
                at += size
                pieces, size = [], 0
        if writing is not None:
            await writing
            writing = None
    finally:
        if writing is not None:
            await asyncio.wait([writing])
    if left or proof != made.digest():
        raise InvalidParameters(
            f"A part of {upload.about.path} was cut or damaged on its way.",
            code="CutPartError",
            hint="Send it again.",
        )
    # One line in a file that is open: not worth a thread.
    upload.arrived(offset, length, proof)
