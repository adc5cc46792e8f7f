"""CREATE and APPEND: where to send the bytes, or the bytes themselves, into a file that is whole then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters
from paicluster.api.responses import json_response
from paicluster.api.webhdfs.redirects import address, redirect_url
from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.files import Staged
from paicluster.files.errors import cut

# So much is gathered before it goes to the disk, while the next is arriving: two of them are held at most.
_PIECE = 1 << 20


async def create(call: WebHdfsRequest) -> Response:
    flags = call.parameters.text("createflag").upper()
    overwrite = call.parameters.flag("overwrite", "OVERWRITE" in flags)
    mode = call.parameters.mode()
    parents = call.parameters.flag("createparent", True)

    def begin() -> Staged:
        return call.storage.stage(call.path, call.who, overwrite=overwrite, mode=mode, parents=parents)

    if _first_step(call):
        return await _redirect(call, begin)
    await _receive(call, begin)
    return Response(None, 201, {"location": address(call)})


async def append(call: WebHdfsRequest) -> Response:
    def begin() -> Staged:
        return call.storage.stage_append(call.path, call.who)

    if _first_step(call):
        return await _redirect(call, begin)
    await _receive(call, begin)
    return Response(None, 200)


def _first_step(call: WebHdfsRequest) -> bool:
    """A request without a body only asks where to send one; `data=true` says that this is it."""
    if call.parameters.flag("noredirect"):
        return True
    if call.parameters.flag("data"):
        return False
    headers = call.request.headers
    return "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"


async def _redirect(call: WebHdfsRequest, begin: Callable[[], Staged]) -> Response:
    """Whoever would be refused in the end is refused before he sends anything."""
    await call.files.run(lambda: begin().abandon())
    where = redirect_url(call)
    if call.parameters.flag("noredirect"):
        return json_response({"Location": where})
    return Response(None, 307, {"location": where})


async def _receive(call: WebHdfsRequest, begin: Callable[[], Staged]) -> None:
    """The body, written aside as it comes and committed once all of it is there."""
    run = call.files.run
    body = _Body(call)
    staged: Staged | None = None
    writing: asyncio.Future[None] | None = None
    try:
        if body.waits_for_permission or body.announced > _PIECE:
            staged = await run(begin)
            await run(staged.reserve, body.announced)
        while True:
            parts, last = await body.gather()
            if staged is None and last:
                # Small files: one way to the disk for all of it.
                await run(_write_inline, begin, parts, body.check)
                return
            if staged is None:
                staged = await run(begin)
            if writing is not None:
                await writing
            writing = asyncio.ensure_future(run(staged.write_all, parts))
            if last:
                await writing
                body.check()
                await run(staged.commit)
                return
    finally:
        if writing is not None:
            # A thread may still be writing when the client is gone.
            await asyncio.wait([writing])
        if staged is not None:
            # Here and now: the server may be leaving, and its threads with it.
            staged.abandon()


def _write_inline(begin: Callable[[], Staged], parts: list[bytes], check: Callable[[], None]) -> None:
    staged = begin()
    try:
        check()
        staged.write_all(parts)
        staged.commit()
    finally:
        staged.abandon()


class _Body:
    def __init__(self, call: WebHdfsRequest):
        headers = call.request.headers
        self._call = call
        length = headers.get("content-length", "")
        if length and not (length.isascii() and length.isdigit() and len(length) < 20):
            raise InvalidParameters("The Content-Length of the request is not a number.")
        self.announced = int(length or 0)
        self._has_length = bool(length)
        self.waits_for_permission = "expect" in headers
        self._got = 0

    async def gather(self) -> tuple[list[bytes], bool]:
        """The next pieces of the body, and whether they are the last."""
        parts: list[bytes] = []
        size = 0
        while size < _PIECE:
            message = await self._call.request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part: bytes = message.get("body", b"")
            if part:
                parts.append(part)
                size += len(part)
            if not message.get("more_body", False):
                self._got += size
                return parts, True
        self._got += size
        return parts, False

    def check(self) -> None:
        if self._has_length and self._got != self.announced:
            raise cut(quote(self._call.path), self._got, self.announced)
