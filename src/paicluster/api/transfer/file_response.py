"""HTTP response with a range of an open file: sent by a thread where possible, else streamed in pieces."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from io import FileIO

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paicluster.api.routing.route import OCTET_STREAM
from paicluster.api.transfer.socket_io import send_file
from paicluster.api.transfer.transfer_rights import TransferRights
from paicluster.services.file_service import FileService
from paiprotocol.errors import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paicluster.files.transfer.range_hashes import RangeHash

_PIECE_BYTES = 512 << 10


class RangeResponse(Response):
    """Range of a file.

    The headers contain its length. With ``range_hash`` the bytes are followed by their hash. The connection
    is cut when the ``rights`` end that the request was made with.
    """

    def __init__(
        self,
        files: FileService,
        file: FileIO,
        offset: int,
        length: int,
        headers: Mapping[str, str],
        *,
        rights: TransferRights,
        status: int = 200,
        range_hash: RangeHash | None = None,
    ):
        """``file`` is closed at the end, also when the response fails."""
        super().__init__(None, status, headers, OCTET_STREAM)
        self._files = files
        self._file = file
        self._at = offset
        self._end = offset + length
        self._rights = rights
        self._range_hash = range_hash
        self._hasher = range_hash.hasher if range_hash is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnect = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            fd = self._file.fileno()
            with self._rights.cutting(receive):
                result = await send_file(receive, fd, self._at, self._end - self._at, self._hasher)
                hashed = self._at + result.hashed
                self._at += result.sent
                if self._at == self._end or await self._stream(fd, hashed, disconnect, send):
                    last = b"" if self._range_hash is None else self._range_hash.digest(fd)
                    await send({"type": "http.response.body", "body": last})
        finally:
            disconnect.cancel()
            self._file.close()

    async def _stream(self, fd: int, hashed: int, disconnect: asyncio.Future[None], send: Send) -> bool:
        """Stream the rest: the next piece is read while the previous one is sent."""
        at = self._at
        next_piece = self._read(fd, at, hashed)
        try:
            while at < self._end:
                data = await next_piece
                at += len(data)
                if not data or disconnect.done():
                    # Fewer bytes than announced: the server closes the connection, and the client notices.
                    return False
                if at < self._end:
                    next_piece = self._read(fd, at, hashed)
                await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            # A thread may still be reading: the file is closed after it.
            await asyncio.wait([next_piece])
        return True

    def _read(self, fd: int, at: int, hashed: int) -> asyncio.Future[bytes]:
        hasher, size = self._hasher, min(_PIECE_BYTES, self._end - at)

        def read() -> bytes:
            try:
                data = os.pread(fd, size, at)
            except OSError as error:
                raise Unavailable(f"The file cannot be read any more: {error.strerror}.") from None
            if hasher is not None and at + len(data) > hashed:
                hasher.update(memoryview(data)[max(0, hashed - at) :])
            return data

        return asyncio.get_running_loop().run_in_executor(self._files.threads, read)


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
