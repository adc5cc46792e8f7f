"""Multipart bodies of PaddleCloud's chunk protocol: one part, whose file name has the parameters of a chunk.

Both directions use a fixed boundary. The part of an upload announces its size, so that its end is known
without a search for the boundary, which may occur in the bytes of a chunk.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import parse_qsl, quote

import msgspec

from paiprotocol.errors import InvalidParameters

BOUNDARY = b"8d7b0e5709d756e21e971ff4d9ac3b20"
PART_NAME = b"chunk"
MIN_CHUNK_BYTES = 4 << 10
MAX_CHUNK_BYTES = 32 << 20
MAX_BODY_BYTES = MAX_CHUNK_BYTES + (64 << 10)
"""A chunk and its part's head."""
MAX_FILE_BYTES = 1 << 40

_MAX_PARTS = 16
_MULTIPART = re.compile(r"multipart/form-data\s*(?:;.*)?", re.IGNORECASE)
_HEADER_BOUNDARY = re.compile(r';\s*boundary="?([^";\s]{1,70})"?', re.IGNORECASE)
_NAME = re.compile(rb'[;\s]name="([^"\r\n]*)"', re.IGNORECASE)
_FILE_NAME = re.compile(rb'[;\s]filename="([^"\r\n]*)"', re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,15}")
_CHECKSUM = re.compile(r"[0-9a-f]{32}")


class ChunkRange(msgspec.Struct, frozen=True):
    """A part of a file. ``checksum``: MD5 of its bytes, our addition; empty if it is not sent."""

    path: str
    offset: int
    size: int
    checksum: str = ""


class UploadedChunk(msgspec.Struct, frozen=True):
    range: ChunkRange
    data: memoryview


def boundary_of(content_type: str) -> bytes | None:
    """Boundary of a multipart body; None for another type."""
    if not _MULTIPART.fullmatch(content_type):
        return None
    named = _HEADER_BOUNDARY.search(content_type)
    return BOUNDARY if named is None else named[1].encode("latin-1", "replace")


def read_range(query: str) -> ChunkRange | None:
    """The chunk that a query names; None if a parameter is missing or not a number."""
    try:
        fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=20))
    except ValueError:  # too many fields
        return None
    path, offset, size = (fields.get(name, "") for name in ("path", "offset", "chunksize"))
    checksum = fields.get("checksum", "")
    if not path or not _NUMBER.fullmatch(offset) or not _NUMBER.fullmatch(size):
        return None
    if checksum and not _CHECKSUM.fullmatch(checksum):
        return None
    return ChunkRange(path, int(offset), int(size), checksum)


def read_chunk(body: bytes, boundary: bytes) -> UploadedChunk:
    """The chunk in an uploaded body. Anything missing, or left over, is an error: then nothing is written."""
    delimiter = b"--" + boundary
    at = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    if not body.startswith(delimiter, at):
        raise InvalidParameters("the body does not begin with the boundary that its header names")
    for _ in range(_MAX_PARTS):
        head_start = at + len(delimiter)
        if body.startswith(b"--", head_start):
            raise InvalidParameters('the body has no part named "chunk"')
        head_end = body.find(b"\r\n\r\n", head_start)
        if not body.startswith(b"\r\n", head_start) or head_end < 0:
            raise InvalidParameters("the multipart body is truncated: the head of a part has no end")
        head = body[head_start:head_end]
        name, file_name = _NAME.search(head), _FILE_NAME.search(head)
        start = head_end + 4
        if name is not None and name[1] == PART_NAME:
            return _chunk_at(body, start, file_name[1] if file_name is not None else b"", delimiter)
        end = body.find(b"\r\n" + delimiter, start)
        if end < 0:
            raise InvalidParameters("the multipart body is truncated: a part has no end")
        at = end + 2
    raise InvalidParameters(f'the first {_MAX_PARTS} parts of the body have another name than "chunk"')


def _chunk_at(body: bytes, start: int, parameters: bytes, delimiter: bytes) -> UploadedChunk:
    named = read_range(parameters.decode("utf-8", "replace"))
    if named is None:
        raise InvalidParameters("the part's filename must have path, offset and chunksize of the chunk")
    if named.size > MAX_CHUNK_BYTES:
        raise InvalidParameters(f"chunksize error: a chunk has {MAX_CHUNK_BYTES} bytes at most")
    if named.offset + named.size > MAX_FILE_BYTES:
        raise InvalidParameters(f"bad file size:{named.offset + named.size}")
    end = start + named.size
    # The last delimiter of a body ends with "--": then all of the chunk has arrived.
    if not body.startswith(b"\r\n" + delimiter, end):
        raise InvalidParameters(f"the chunk is incomplete: its part does not have {named.size} bytes")
    if not body.startswith(b"--", end + 2 + len(delimiter)) and body.rfind(delimiter + b"--") < end:
        raise InvalidParameters("the multipart body is truncated: its last boundary is missing")
    data = memoryview(body)[start:end]
    if named.checksum and hashlib.md5(data, usedforsecurity=False).hexdigest() != named.checksum:
        raise InvalidParameters("the chunk does not have the checksum that was sent with it")
    return UploadedChunk(named, data)


def part_head(chunk: ChunkRange) -> bytes:
    """What precedes the bytes of a chunk that is sent."""
    query = f"chunksize={chunk.size}&offset={chunk.offset}&path={quote(chunk.path, safe='')}"
    return (
        b'--%b\r\nContent-Disposition: form-data; name="%b"; filename="%b"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n"
    ) % (BOUNDARY, PART_NAME, query.encode())


PART_END = b"\r\n--%b--\r\n" % BOUNDARY
