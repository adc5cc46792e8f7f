"""The routes of `/api/v2/transfer`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from io import FileIO
from typing import NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from openpaisdk.errors import InvalidParameters, PaiError
from openpaisdk.fileio import hashing
from openpaisdk.fileio.pack_format import MAX_PACK_BYTES, MAX_PACK_FILES
from paicluster.api.context import authenticate, context
from paicluster.api.responses import encode, int_param, json_response, read_body
from paicluster.api.transfer.file_response import OCTET_STREAM, RangeResponse
from paicluster.api.transfer.receive_part import receive_part
from paicluster.files import Storage, StorageUser
from paicluster.files.transfer import packs, tree_listing
from paicluster.files.transfer.range_hashes import RangeHash
from paicluster.files.transfer.upload import BOOT_ID, UploadRequest
from paicluster.files.usage import free_bytes
from paicluster.services.file_service import FileService, TransferState, storage_user

Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")

VERSION = 1
_SMALL_RANGE_BYTES = 1 << 18
_TREE_CHUNK_BYTES = 1 << 18
_MIN_TREE_LINE_FILES = 1 << 10
"""With fewer files in a line, a large folder would be sorted in very many parts."""
_BASE = "/api/v2/transfer"


async def _begin(request: Request) -> tuple[FileService, TransferState, StorageUser]:
    """File service, transfer state and authenticated user of a request."""
    user = storage_user(await authenticate(request))
    files = context(request).files
    if not files.storage.has_provisioned(user):  # a needless thread switch costs more than a small file
        await files.run(files.storage.provision, user)
    return files, files.transfers, user


async def offer(request: Request) -> Response:
    """Version and capabilities of the transfer API."""
    files, _, user = await _begin(request)
    return json_response(
        {
            "version": VERSION,
            "hashes": list(hashing.ALGORITHMS),
            "removes": True,
            "boot": BOOT_ID,
            "free": free_bytes(files.storage.namespace.fd),
            "home": files.storage.home_of(user),
            "url": f"{files.external_url}/webhdfs",
        }
    )


async def tree(request: Request) -> Response:
    files, _, user = await _begin(request)
    max_files = int_param(request.query_params.get("files"), "files", 0)
    if max_files:
        max_files = max(max_files, _MIN_TREE_LINE_FILES)
    lines = tree_listing.tree_lines(files.storage, _path(request), user, max_files)
    first = await files.run(_next_chunk, lines)
    return StreamingResponse(_stream(files, first, lines), media_type="application/x-ndjson")


def _next_chunk(lines: Iterator[bytes]) -> bytes:
    """The next lines, joined. An error before the first line becomes the response."""
    out: list[bytes] = []
    size = 0
    for line in lines:
        out.append(line)
        size += len(line)
        if size >= _TREE_CHUNK_BYTES:
            break
    return b"".join(out)


async def _stream(files: FileService, first: bytes, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    block = first
    while block:
        yield block
        try:
            block = await files.run(_next_chunk, lines)
        except PaiError as error:
            yield encode({"code": error.code, "message": error.message, "hint": error.hint}) + b"\n"
            return


async def read_file(request: Request) -> Response:
    """A range of a file, followed by its hash."""
    files, transfers, user = await _begin(request)
    query = request.query_params
    algorithm = query.get("hash") or hashing.XXH3
    hashing.hasher(algorithm)
    offset = int_param(query.get("offset"), "offset", 0)
    max_length = int_param(query.get("length"), "length", 1 << 60)
    opened = await files.run(_open_range, files.storage, _path(request), user, offset, max_length)
    if opened.whole is not None:
        digest = hashing.hash_bytes(opened.whole, algorithm)
        return Response(opened.whole + digest, headers=opened.headers, media_type=OCTET_STREAM)
    file = FileIO(opened.fd, "rb")
    recompute = query.get("fresh") == "true"
    range_hash = RangeHash(
        transfers.range_hashes, opened.fd, offset, opened.length, algorithm, recompute=recompute
    )
    return RangeResponse(files, file, offset, opened.length, opened.headers, range_hash=range_hash)


class _OpenRange(NamedTuple):
    fd: int
    length: int
    headers: dict[str, str]
    # A small range is read at once and the file is closed.
    whole: bytes | None


def _open_range(storage: Storage, path: str, user: StorageUser, offset: int, max_length: int) -> _OpenRange:
    opened = storage.open_read(path, user)
    fd = opened.fd
    try:
        status = os.fstat(fd)
        length = min(max_length, max(0, status.st_size - offset))
        headers = {
            "content-length": str(length + hashing.DIGEST_BYTES),
            "x-pai-size": str(status.st_size),
            "x-pai-mtime": str(status.st_mtime_ns),
            "x-pai-mode": f"{opened.entry.ownership.mode & 0o777:o}",
        }
        if length > _SMALL_RANGE_BYTES:
            return _OpenRange(fd, length, headers, None)
        whole = os.pread(fd, length, offset)
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    if len(whole) != length:
        raise PaiError(f"{path} changed while it was read.", code="ChangedFileError", status=409)
    return _OpenRange(-1, length, headers, whole)


class _FetchRequest(msgspec.Struct):
    path: str
    names: list[str]
    hash: str = hashing.XXH3


async def fetch(request: Request) -> Response:
    files, _, user = await _begin(request)
    selection = _decode(await read_body(request), _FetchRequest)
    hashing.hasher(selection.hash)
    if len(selection.names) > MAX_PACK_FILES:
        raise InvalidParameters(f"At most {MAX_PACK_FILES} files can be fetched at once.")
    blocks = packs.read_files(files.storage, user, selection.path, selection.names, selection.hash)

    async def send() -> AsyncIterator[bytes]:
        while block := await files.run(next, blocks, b""):
            yield block

    return StreamingResponse(send(), media_type=OCTET_STREAM)


async def store(request: Request) -> Response:
    files, _, user = await _begin(request)
    pack = await read_body(request, MAX_PACK_BYTES)
    problems = await files.run(packs.write_pack, files.storage, user, _path(request), pack)
    return json_response({"problems": problems})


class _DeleteRequest(msgspec.Struct):
    path: str
    names: list[str]


async def remove(request: Request) -> Response:
    files, _, user = await _begin(request)
    deletion = _decode(await read_body(request, MAX_PACK_BYTES), _DeleteRequest)
    if len(deletion.names) > MAX_PACK_FILES:
        raise InvalidParameters(f"At most {MAX_PACK_FILES} names can be deleted at once.")
    problems = await files.run(packs.bulk_delete, files.storage, user, deletion.path, deletion.names)
    return json_response({"problems": problems})


async def begin(request: Request) -> Response:
    files, transfers, user = await _begin(request)
    upload_request = _decode(await read_body(request, 1 << 16), UploadRequest)

    def describe() -> dict[str, object]:
        with transfers.uploads.begin(upload_request, user) as upload:
            return upload.describe()

    return json_response(await files.run(describe))


async def put_part(request: Request) -> Response:
    files, transfers, user = await _begin(request)
    offset = int_param(request.query_params.get("offset"), "offset", 0, maximum=1 << 60)
    await receive_part(request, files, transfers.uploads, user, request.path_params["upload"], offset)
    return json_response({})


class _FinishRequest(msgspec.Struct):
    size: int
    mtime: int | None = None
    digest: str = ""


async def finish(request: Request) -> Response:
    files, transfers, user = await _begin(request)
    end = _decode(await read_body(request, 1 << 16), _FinishRequest)
    upload = request.path_params["upload"]
    await files.run(transfers.uploads.finish, upload, user, end.size, end.mtime, end.digest)
    return json_response({})


async def drop(request: Request) -> Response:
    files, transfers, user = await _begin(request)
    await files.run(transfers.uploads.drop, request.path_params["upload"], user)
    return json_response({})


async def fd_ticket(request: Request) -> Response:
    """Address of the local fd server, and a ticket that is valid once."""
    _, transfers, user = await _begin(request)
    return json_response(transfers.fd_server.issue_ticket(user))


def _path(request: Request) -> str:
    path = request.query_params.get("path", "")
    if not path:
        raise InvalidParameters('"path" is missing.')
    return path


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise InvalidParameters(f"The request body is not valid: {error}.") from None
    except (UnicodeDecodeError, RecursionError):
        raise InvalidParameters("The request body is not valid JSON, or nested too deep.") from None


ROUTES: list[tuple[str, list[str], Handler]] = [
    (_BASE, ["GET"], offer),
    (_BASE + "/tree", ["GET"], tree),
    (_BASE + "/file", ["GET"], read_file),
    (_BASE + "/fetch", ["POST"], fetch),
    (_BASE + "/pack", ["POST"], store),
    (_BASE + "/remove", ["POST"], remove),
    (_BASE + "/uploads", ["POST"], begin),
    (_BASE + "/uploads/{upload}", ["PUT"], put_part),
    (_BASE + "/uploads/{upload}", ["DELETE"], drop),
    (_BASE + "/uploads/{upload}/finish", ["POST"], finish),
    (_BASE + "/local", ["POST"], fd_ticket),
]

__all__ = ["ROUTES"]
