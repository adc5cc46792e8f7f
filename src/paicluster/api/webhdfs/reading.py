"""OPEN: a file, or a part of one, in large pieces read ahead of the network."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from io import FileIO

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paicluster.api.answers import answer
from paicluster.api.files import Files
from paicluster.api.webhdfs.call import Call
from paicluster.api.webhdfs.exceptions import Refused
from paicluster.api.webhdfs.location import location
from paicluster.files.refusals import disk_errors

# What is as small as this is read at once with opening it, without a second way to the disk.
_SMALL = 256 << 10
_PIECE = 512 << 10
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Part:
    """What of a file is wanted, and what is there."""

    offset: int
    length: int
    size: int
    # Asked for by a Range header, and so to be answered with 206.
    ranged: bool = False

    def headers(self) -> dict[str, str]:
        shown = {"content-length": str(self.length), "accept-ranges": "bytes"}
        if self.ranged:
            shown["content-range"] = f"bytes {self.offset}-{self.offset + self.length - 1}/{self.size}"
        return shown


async def open_file(call: Call) -> Response:
    if call.parameters.flag("noredirect"):
        return answer({"Location": location(call)})
    return await call.files.run(_begin, call)


def _begin(call: Call) -> Response:
    opened = call.storage.open_read(call.path, call.who)
    file = FileIO(opened.fd, "rb")
    try:
        part = _wanted(call, opened.entry.size)
        if part.length <= _SMALL:
            data = _read_whole(call, file, part)
            file.close()
            return Response(data, 206 if part.ranged else 200, part.headers(), _TYPE)
    except BaseException:
        file.close()
        raise
    # The file object closes the descriptor in the end, whatever becomes of the answer.
    return FileAnswer(call.files, file, part)


def _read_whole(call: Call, file: FileIO, part: Part) -> bytes:
    with disk_errors(call.path):
        data = os.pread(file.fileno(), part.length, part.offset)
    if len(data) < part.length:
        raise Refused("java.io.IOException", 403, f"{call.path} became shorter while it was read.")
    return data


def _wanted(call: Call, size: int) -> Part:
    found = _RANGE.fullmatch(call.request.headers.get("range", "").strip())
    if found is not None and (found[1] or found[2]):
        return _ranged(call, found[1], found[2], size)
    offset = call.parameters.number("offset", 0) or 0
    length = call.parameters.number("length")
    if offset > size:
        raise Refused(
            "java.io.IOException",
            403,
            f"Offset={offset} out of the range [0, {size}); OPEN, path={call.path}",
        )
    rest = size - offset
    return Part(offset, rest if length is None else min(length, rest), size)


def _ranged(call: Call, first: str, last: str, size: int) -> Part:
    if not first:
        length = min(int(last), size)
        start, end = size - length, size
    else:
        start, end = int(first), min(int(last) + 1, size) if last else size
    if start >= end:
        raise Refused("java.io.IOException", 416, f"There are no such bytes in {call.path}: it has {size}.")
    return Part(start, end - start, size, ranged=True)


class FileAnswer(Response):
    """A part of an open file. The next piece is read while the last one is on its way."""

    def __init__(self, files: Files, file: FileIO, part: Part):
        super().__init__(None, 206 if part.ranged else 200, part.headers(), _TYPE)
        self._files = files
        self._file = file
        self._part = part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        file = self._file
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await self._stream(file.fileno(), gone, send)
        finally:
            gone.cancel()
            file.close()

    async def _stream(self, fd: int, gone: asyncio.Future[None], send: Send) -> None:
        at, end = self._part.offset, self._part.offset + self._part.length
        ahead = self._read(fd, at, end)
        try:
            while at < end:
                data = await ahead
                at += len(data)
                if not data or gone.done():
                    # Fewer bytes than announced: the server closes the connection, and the client knows.
                    return
                if at < end:
                    ahead = self._read(fd, at, end)
                await send({"type": "http.response.body", "body": data, "more_body": at < end})
        finally:
            # A thread may still be reading: the file is closed after it.
            await asyncio.wait([ahead])

    def _read(self, fd: int, at: int, end: int) -> asyncio.Future[bytes]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._files.threads, os.pread, fd, min(_PIECE, end - at), at)


async def disconnected(receive: Receive) -> None:
    """Returns once the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
