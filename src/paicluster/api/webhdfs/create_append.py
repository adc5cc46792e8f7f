"""CREATE and APPEND: redirect to the URL for the data, or receive the data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.files import StagedFile
from paicluster.files.errors import incomplete
from paiprotocol.errors import InvalidParameters

# Bytes per disk write. At most two pieces are in memory: one is written while the next one arrives.
_PIECE_BYTES = 1 << 20


async def create(call: WebHdfsRequest) -> Response:
    flags = call.parameters.text("createflag").upper()
    overwrite = call.parameters.flag("overwrite", "OVERWRITE" in flags)
    mode = call.parameters.mode()
    parents = call.parameters.flag("createparent", True)

    def stage() -> StagedFile:
        return call.storage.stage(call.path, call.user, overwrite=overwrite, mode=mode, parents=parents)

    if _is_first_step(call):
        return await _redirect(call, stage)
    await _receive(call, stage)
    return Response(None, 201, {"location": call.hadoop_uri()})


async def append(call: WebHdfsRequest) -> Response:
    def stage() -> StagedFile:
        return call.storage.stage_append(call.path, call.user)

    if _is_first_step(call):
        return await _redirect(call, stage)
    await _receive(call, stage)
    return Response(None, 200)


def _is_first_step(call: WebHdfsRequest) -> bool:
    """A request without a body asks for the redirect; `data=true` marks the second step."""
    if call.is_second_step:
        return False
    if call.parameters.flag("noredirect"):
        return True
    headers = call.request.headers
    return "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"


async def _redirect(call: WebHdfsRequest, stage: Callable[[], StagedFile]) -> Response:
    """Redirect. Errors such as missing permissions are reported before the client sends any data."""
    await call.files.run(lambda: stage().abandon())
    return call.redirect()


async def _receive(call: WebHdfsRequest, stage: Callable[[], StagedFile]) -> None:
    """Write the body to a staging file as it arrives, and commit it when it is complete."""
    run = call.files.run
    body = _Body(call)
    staged: StagedFile | None = None
    pending_write: asyncio.Future[None] | None = None
    try:
        if body.expects_continue or body.content_length > _PIECE_BYTES:
            staged = await run(stage)
            await run(staged.reserve, body.content_length)
        while True:
            parts, last = await body.gather()
            if staged is None and last:
                # Small files: one thread call for everything.
                await run(_write_inline, stage, parts, body.check)
                return
            if staged is None:
                staged = await run(stage)
            if pending_write is not None:
                await pending_write
            pending_write = asyncio.ensure_future(run(staged.write_all, parts))
            if last:
                await pending_write
                body.check()
                await run(staged.commit)
                return
    finally:
        if pending_write is not None:
            # A thread may still be writing when the client has disconnected.
            await asyncio.wait([pending_write])
        if staged is not None:
            # Synchronously: the server may be shutting down, and its threads with it.
            staged.abandon()


def _write_inline(stage: Callable[[], StagedFile], parts: list[bytes], check: Callable[[], None]) -> None:
    staged = stage()
    try:
        check()
        staged.write_all(parts)
        staged.commit()
    finally:
        staged.abandon()


class _Body:
    """Body of a request, read in pieces."""

    def __init__(self, call: WebHdfsRequest):
        headers = call.request.headers
        self._call = call
        length = headers.get("content-length", "")
        if length and not (length.isascii() and length.isdigit() and len(length) < 20):
            raise InvalidParameters("The Content-Length of the request is not a number.")
        self.content_length = int(length or 0)
        self._has_length = bool(length)
        self.expects_continue = "expect" in headers
        self._received = 0

    async def gather(self) -> tuple[list[bytes], bool]:
        """The next pieces of the body, and whether they are the last."""
        parts: list[bytes] = []
        size = 0
        while size < _PIECE_BYTES:
            message = await self._call.request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part: bytes = message.get("body", b"")
            if part:
                parts.append(part)
                size += len(part)
            if not message.get("more_body", False):
                self._received += size
                return parts, True
        self._received += size
        return parts, False

    def check(self) -> None:
        if self._has_length and self._received != self.content_length:
            raise incomplete(quote(self._call.path), self._received, self.content_length)
