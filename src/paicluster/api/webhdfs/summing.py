"""GETFILECHECKSUM: all of a file is read for it, in threads of its own, as long as somebody waits for it."""

from __future__ import annotations

import asyncio
import threading

from starlette.responses import Response

from paicluster.api.answers import answer
from paicluster.api.transfer.giving import disconnected
from paicluster.api.webhdfs import shapes
from paicluster.api.webhdfs.call import Call
from paicluster.files import Need


async def file_checksum(call: Call) -> Response:
    # Whoever may not read it, and what is not there, need not wait for others' checksums.
    await call.files.run(call.storage.check, call.path, call.who, Need.READ)
    stop = threading.Event()
    gone = asyncio.ensure_future(disconnected(call.request.receive))
    gone.add_done_callback(lambda _: stop.set())
    try:
        found = await asyncio.get_running_loop().run_in_executor(
            call.files.checksums, call.storage.checksum, call.path, call.who, stop.is_set
        )
    finally:
        # Also when the server leaves: the thread would keep it.
        gone.cancel()
        stop.set()
    return answer(shapes.file_checksum(*found))
