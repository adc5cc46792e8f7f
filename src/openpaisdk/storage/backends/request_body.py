"""Body of a request to a cloud storage, sent slice by slice."""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SLICE_BYTES = 256 << 10


class RequestBody(bytearray):
    """Data of a part, which aiohttp sends in slices once `register_payload` was called.

    Sent as a whole, it would be copied four times on its way to the socket.
    """


@functools.cache
def register_payload() -> None:
    from aiohttp import payload

    class RequestBodyPayload(payload.BytesPayload):
        async def write(self, writer: Any) -> None:
            await self.write_with_length(writer, None)

        async def write_with_length(self, writer: Any, content_length: int | None) -> None:
            data = memoryview(self._value)[:content_length]
            for at in range(0, len(data), SLICE_BYTES):
                await writer.write(data[at : at + SLICE_BYTES])

    payload.register_payload(RequestBodyPayload, RequestBody)
