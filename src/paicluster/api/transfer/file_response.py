"""A range of an open file as an answer: by a thread of its own where that can be, else piece by piece."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from io import FileIO

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paicluster.api.transfer.socket_io import send_file
from paicluster.services.file_service import FileService

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paicluster.files.transfer.range_hashes import RangeHash

_PIECE = 512 << 10
BYTES = "application/octet-stream"


class RangeResponse(Response):
    """The headers say how long it is. With a proof, the hash of the bytes comes after them."""

    def __init__(
        self,
        files: FileService,
        file: FileIO,
        offset: int,
        length: int,
        headers: Mapping[str, str],
        *,
        status: int = 200,
        proof: RangeHash | None = None,
    ):
        """``file`` closes its descriptor in the end, whatever becomes of the answer."""
        super().__init__(None, status, headers, BYTES)
        self._files = files
        self._file = file
        self._at = offset
        self._end = offset + length
        self._proof = proof
        self._made = proof.made if proof is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            fd = self._file.fileno()
            given = await send_file(receive, fd, self._at, self._end - self._at, self._made)
            hashed = self._at + given.hashed
            self._at += given.sent
            if self._at == self._end or await self._streamed(fd, hashed, gone, send):
                last = b"" if self._proof is None else self._proof.digest(fd)
                await send({"type": "http.response.body", "body": last})
        finally:
            gone.cancel()
            self._file.close()

    async def _streamed(self, fd: int, hashed: int, gone: asyncio.Future[None], send: Send) -> bool:
        """The next piece is read while the last one is on its way."""
        at = self._at
        ahead = self._read(fd, at, hashed)
        try:
            while at < self._end:
                data = await ahead
                at += len(data)
                if not data or gone.done():
                    # Fewer bytes than announced: the server closes the connection, and the client knows.
                    return False
                if at < self._end:
                    ahead = self._read(fd, at, hashed)
                await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            # A thread may still be reading: the file is closed after it.
            await asyncio.wait([ahead])
        return True

    def _read(self, fd: int, at: int, hashed: int) -> asyncio.Future[bytes]:
        made, most = self._made, min(_PIECE, self._end - at)

        def read() -> bytes:
            data = os.pread(fd, most, at)
            if made is not None and at + len(data) > hashed:
                made.update(memoryview(data)[max(0, hashed - at) :])
            return data

        return asyncio.get_running_loop().run_in_executor(self._files.threads, read)


async def disconnected(receive: Receive) -> None:
    """Returns once the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
