"""OPEN: a file, or a part of one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from io import FileIO

from starlette.responses import Response

from paicluster.api.responses import json_response
from paicluster.api.transfer.file_response import BYTES, RangeResponse
from paicluster.api.webhdfs.exceptions import Refused
from paicluster.api.webhdfs.redirects import redirect_url
from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.files.errors import disk_errors

# What is as small as this is read at once with opening it, without a second way to the disk.
_SMALL = 256 << 10
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, slots=True)
class FileRange:
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


async def open_file(call: WebHdfsRequest) -> Response:
    if call.parameters.flag("noredirect"):
        return json_response({"Location": redirect_url(call)})
    return await call.files.run(_begin, call)


def _begin(call: WebHdfsRequest) -> Response:
    opened = call.storage.open_read(call.path, call.who)
    file = FileIO(opened.fd, "rb")
    try:
        part = _wanted(call, opened.entry.size)
        if part.length <= _SMALL:
            data = _read_whole(call, file, part)
            file.close()
            return Response(data, 206 if part.ranged else 200, part.headers(), BYTES)
    except BaseException:
        file.close()
        raise
    status = 206 if part.ranged else 200
    return RangeResponse(call.files, file, part.offset, part.length, part.headers(), status=status)


def _read_whole(call: WebHdfsRequest, file: FileIO, part: FileRange) -> bytes:
    with disk_errors(call.path):
        data = os.pread(file.fileno(), part.length, part.offset)
    if len(data) < part.length:
        raise Refused("java.io.IOException", 403, f"{call.path} became shorter while it was read.")
    return data


def _wanted(call: WebHdfsRequest, size: int) -> FileRange:
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
    return FileRange(offset, rest if length is None else min(length, rest), size)


def _ranged(call: WebHdfsRequest, first: str, last: str, size: int) -> FileRange:
    if not first:
        length = min(int(last), size)
        start, end = size - length, size
    else:
        start, end = int(first), min(int(last) + 1, size) if last else size
    if start >= end:
        raise Refused("java.io.IOException", 416, f"There are no such bytes in {call.path}: it has {size}.")
    return FileRange(start, end - start, size, ranged=True)
