"""GETFILECHECKSUM: all of a file is read for it, in threads of its own, as long as somebody waits for it."""

from __future__ import annotations

import asyncio
import threading

from starlette.responses import Response

from paicluster.api.responses import json_response
from paicluster.api.transfer.file_response import disconnected
from paicluster.api.webhdfs import serializers
from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.files import Access


async def file_checksum(call: WebHdfsRequest) -> Response:
    # Whoever may not read it, and what is not there, need not wait for others' checksums.
    await call.files.run(call.storage.check, call.path, call.who, Access.READ)
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
    return json_response(serializers.file_checksum(*found))
