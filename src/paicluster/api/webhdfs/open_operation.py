"""OPEN: redirect to the URL of a file's bytes, or send the file or a range of it."""

from __future__ import annotations

import os
import re
from io import FileIO

import msgspec
from starlette.responses import Response

from paicluster.api.routing.route import OCTET_STREAM
from paicluster.api.transfer.file_response import RangeResponse
from paicluster.api.transfer.transfer_rights import TransferRights
from paicluster.api.webhdfs.exceptions import JavaException
from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.files import Entry
from paicluster.files.errors import disk_errors

# A range up to this size is read when the file is opened, without a second thread call.
_SMALL_RANGE_BYTES = 256 << 10
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class FileRange(msgspec.Struct, frozen=True):
    """Requested range of a file, and the file's size."""

    offset: int
    length: int
    size: int
    # Requested by a Range header: the response has status 206.
    is_partial: bool = False

    def headers(self) -> dict[str, str]:
        headers = {"content-length": str(self.length), "accept-ranges": "bytes"}
        if self.is_partial:
            headers["content-range"] = f"bytes {self.offset}-{self.offset + self.length - 1}/{self.size}"
        return headers


async def open_file(call: WebHdfsRequest) -> Response:
    if _is_first_step(call):
        await call.files.run(_check, call)
        return call.redirect()
    return await call.files.run(_open, call)


def _is_first_step(call: WebHdfsRequest) -> bool:
    """HDFS always redirects, and some clients insist on it. A `Range` is not HDFS's way: it is answered."""
    return not call.is_second_step and (
        call.parameters.flag("noredirect") or "range" not in call.request.headers
    )


def check_readable(call: WebHdfsRequest) -> Entry:
    """Report errors such as missing permissions before the redirect."""
    opened = call.storage.open_read(call.path, call.user)
    os.close(opened.fd)
    return opened.entry


def _check(call: WebHdfsRequest) -> None:
    _requested_range(call, check_readable(call).size)


def _open(call: WebHdfsRequest) -> Response:
    opened = call.storage.open_read(call.path, call.user)
    file = FileIO(opened.fd, "rb")
    try:
        part = _requested_range(call, opened.entry.size)
        if part.length <= _SMALL_RANGE_BYTES:
            data = _read_whole(call, file, part)
            file.close()
            return Response(data, 206 if part.is_partial else 200, part.headers(), OCTET_STREAM)
    except BaseException:
        file.close()
        raise
    status = 206 if part.is_partial else 200
    rights = TransferRights.of(call.request)
    return RangeResponse(
        call.files, file, part.offset, part.length, part.headers(), rights=rights, status=status
    )


def _read_whole(call: WebHdfsRequest, file: FileIO, part: FileRange) -> bytes:
    with disk_errors(call.path):
        data = os.pread(file.fileno(), part.length, part.offset)
    if len(data) < part.length:
        raise JavaException("java.io.IOException", 403, f"{call.path} was truncated while it was read.")
    return data


def _requested_range(call: WebHdfsRequest, size: int) -> FileRange:
    match = _RANGE.fullmatch(call.request.headers.get("range", "").strip())
    if match is not None and (match[1] or match[2]):
        return _header_range(call, match[1], match[2], size)
    offset = call.parameters.number("offset", 0) or 0
    length = call.parameters.number("length")
    if offset > size:
        raise JavaException(
            "java.io.IOException",
            403,
            f"Offset={offset} out of the range [0, {size}); OPEN, path={call.path}",
        )
    rest = size - offset
    return FileRange(offset, rest if length is None else min(length, rest), size)


def _header_range(call: WebHdfsRequest, first: str, last: str, size: int) -> FileRange:
    if not first:
        length = min(int(last), size)
        start, end = size - length, size
    else:
        start, end = int(first), min(int(last) + 1, size) if last else size
    if start >= end:
        raise JavaException(
            "java.io.IOException", 416, f"The range is outside of {call.path}, which has {size} bytes."
        )
    return FileRange(start, end - start, size, is_partial=True)
