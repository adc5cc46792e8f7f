"""The routes of `/api/v2/transfer`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from io import FileIO
from typing import NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import FILES
from paicluster.api.routing.route import OCTET_STREAM, Audit, Body, Bound, Routes
from paicluster.api.transfer.file_response import RangeResponse
from paicluster.api.transfer.receive_part import receive_part
from paicluster.api.transfer.transfer_rights import TransferRights
from paicluster.api.wire.query_parameters import int_param
from paicluster.api.wire.request_body import read_body
from paicluster.api.wire.responses import encode, json_response
from paicluster.files import Storage, StorageUser
from paicluster.files.transfer import packs, tree_listing
from paicluster.files.transfer.range_hashes import RangeHash
from paicluster.files.transfer.upload import BOOT_ID, UploadRequest
from paicluster.files.usage import free_bytes
from paicluster.services.file_service import FileService, TransferState, storage_user
from paiprotocol.errors import InvalidParameters, PaiError
from paiprotocol.transfer import hashing
from paiprotocol.transfer.pack_format import MAX_PACK_BYTES, MAX_PACK_FILES

T = TypeVar("T")

VERSION = 1
_SMALL_RANGE_BYTES = 1 << 18
_TREE_CHUNK_BYTES = 1 << 18
_MIN_TREE_LINE_FILES = 1 << 10
"""With fewer files in a line, a large folder would be sorted in very many parts."""
_MAX_REQUEST_BYTES = 1 << 16

route = Routes(other_methods=405)


async def _begin(request: Request) -> tuple[FileService, TransferState, StorageUser]:
    """File service, transfer state and authenticated user of a request."""
    user = storage_user(await authenticate(request))
    files = context(request).files.own
    if not files.storage.has_provisioned(user):  # a needless thread switch costs more than a small file
        await files.run(files.storage.provision, user)
    return files, files.transfers, user


@route("GET /api/v2/transfer", authority=FILES)
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


@route("GET /api/v2/transfer/tree", authority=FILES)
async def tree(request: Request) -> Response:
    files, _, user = await _begin(request)
    max_files = int_param(request.query_params.get("files"), "files", 0)
    if max_files:
        max_files = max(max_files, _MIN_TREE_LINE_FILES)
    lines = tree_listing.tree_lines(files.storage, _path(request), user, max_files)
    first = await files.run(_next_chunk, lines)
    blocks = TransferRights.of(request).while_kept(_stream(files, first, lines))
    return StreamingResponse(blocks, media_type="application/x-ndjson")


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


@route("GET /api/v2/transfer/file", authority=FILES)
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
    rights = TransferRights.of(request)
    return RangeResponse(
        files, file, offset, opened.length, opened.headers, rights=rights, range_hash=range_hash
    )


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


# It only reads, as GET does.
@route("POST /api/v2/transfer/fetch", authority=FILES, body=Body(limit=Bound.BODY_SETTING), audit=Audit.NEVER)
async def fetch(request: Request) -> Response:
    files, _, user = await _begin(request)
    selection = _decode(await read_body(request), _FetchRequest)
    hashing.hasher(selection.hash)
    if len(selection.names) > MAX_PACK_FILES:
        raise InvalidParameters(f"At most {MAX_PACK_FILES} files can be fetched at once.")
    blocks = packs.read_files(files.storage, user, selection.path, selection.names, selection.hash)

    # An error before the first block becomes the response.
    first = await files.run(next, blocks, b"")

    async def send() -> AsyncIterator[bytes]:
        block = first
        while block:
            yield block
            block = await files.run(next, blocks, b"")

    return StreamingResponse(TransferRights.of(request).while_kept(send()), media_type=OCTET_STREAM)


@route("POST /api/v2/transfer/pack", authority=FILES, body=Body(limit=MAX_PACK_BYTES))
async def store(request: Request) -> Response:
    files, _, user = await _begin(request)
    pack = await read_body(request)
    problems = await files.run(
        packs.write_pack,
        files.storage,
        user,
        _path(request),
        pack,
        overwrite=request.query_params.get("overwrite") != "false",
    )
    return json_response({"problems": problems})


class _DeleteRequest(msgspec.Struct):
    path: str
    names: list[str]


@route("POST /api/v2/transfer/remove", authority=FILES, body=Body(limit=MAX_PACK_BYTES))
async def remove(request: Request) -> Response:
    files, _, user = await _begin(request)
    deletion = _decode(await read_body(request), _DeleteRequest)
    if len(deletion.names) > MAX_PACK_FILES:
        raise InvalidParameters(f"At most {MAX_PACK_FILES} names can be deleted at once.")
    problems = await files.run(packs.bulk_delete, files.storage, user, deletion.path, deletion.names)
    return json_response({"problems": problems})


@route("POST /api/v2/transfer/uploads", authority=FILES, body=Body(limit=_MAX_REQUEST_BYTES))
async def begin(request: Request) -> Response:
    files, transfers, user = await _begin(request)
    upload_request = _decode(await read_body(request), UploadRequest)

    def describe() -> dict[str, object]:
        with transfers.uploads.begin(upload_request, user) as upload:
            return upload.describe()

    return json_response(await files.run(describe))


@route("PUT /api/v2/transfer/uploads/{upload}", authority=FILES, body=Body(limit=Bound.STREAMED))
async def put_part(request: Request) -> Response:
    files, transfers, user = await _begin(request)
    offset = int_param(request.query_params.get("offset"), "offset", 0, maximum=1 << 60)
    await receive_part(request, files, transfers.uploads, user, request.path_params["upload"], offset)
    return json_response({})


class _FinishRequest(msgspec.Struct):
    size: int
    mtime: int | None = None
    digest: str = ""


@route("POST /api/v2/transfer/uploads/{upload}/finish", authority=FILES, body=Body(limit=_MAX_REQUEST_BYTES))
async def finish(request: Request) -> Response:
    files, transfers, user = await _begin(request)
    end = _decode(await read_body(request), _FinishRequest)
    upload = request.path_params["upload"]
    await files.run(transfers.uploads.finish, upload, user, end.size, end.mtime, end.digest)
    return json_response({})


@route("DELETE /api/v2/transfer/uploads/{upload}", authority=FILES)
async def drop(request: Request) -> Response:
    files, transfers, user = await _begin(request)
    await files.run(transfers.uploads.drop, request.path_params["upload"], user)
    return json_response({})


@route("POST /api/v2/transfer/local", authority=FILES)
async def fd_ticket(request: Request) -> Response:
    """Address of the local fd server, and a ticket that is valid once."""
    _, transfers, user = await _begin(request)
    holder = (await authenticate(request)).token_id
    return json_response(transfers.fd_server.issue_ticket(user, holder))


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
