"""The routes of `/api/v2/transfer`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from io import FileIO
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from openpaisdk.errors import InvalidParameters, PaiError
from openpaisdk.fileio import hashing
from openpaisdk.fileio.pack_format import COUNT, LARGEST
from paicluster.api.context import authenticate, context
from paicluster.api.responses import encode, int_param, json_response, read_body
from paicluster.api.transfer import removing
from paicluster.api.transfer.file_response import BYTES, RangeResponse
from paicluster.api.transfer.receive_part import receive_part
from paicluster.files import Storage, StorageUser
from paicluster.files.transfer import packs, tree_listing
from paicluster.files.transfer.fd_server import FdServer
from paicluster.files.transfer.range_hashes import RangeHash, RangeHashCache
from paicluster.files.transfer.upload import BOOT_ID, UploadRequest
from paicluster.files.transfer.upload_registry import UploadRegistry
from paicluster.services.file_service import FileService, storage_user

Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")

VERSION = 1
_SMALL = 1 << 18
_BASE = "/api/v2/transfer"


class Transfers:
    """What is kept of the transfers of one storage."""

    def __init__(self, storage: Storage):
        self.uploads = UploadRegistry(storage)
        self.window = FdServer(storage, self.uploads)
        self.proofs = RangeHashCache()


_kept: WeakKeyDictionary[Storage, Transfers] = WeakKeyDictionary()


async def _asked(request: Request) -> tuple[FileService, Transfers, StorageUser]:
    """Who asks, and where the files are."""
    who = storage_user(await authenticate(request))
    files = context(request).files
    storage = files.storage
    kept = _kept.get(storage)
    if kept is None:
        kept = _kept[storage] = Transfers(storage)
    if not storage.knows(who):  # a thread for nothing costs more than a small file does
        await files.run(storage.welcome, who)
    return files, kept, who


async def offer(request: Request) -> Response:
    """What this server can do for whoever moves files."""
    files, _, who = await _asked(request)
    disk = os.fstatvfs(files.storage.tree.fd)
    return json_response(
        {
            "version": VERSION,
            "hashes": list(hashing.ALGORITHMS),
            "removes": True,
            "boot": BOOT_ID,
            "free": disk.f_bavail * disk.f_frsize,
            "home": files.storage.home_of(who),
            "url": f"{files.external_url}/webhdfs",
        }
    )


async def tree(request: Request) -> Response:
    files, _, who = await _asked(request)
    lines = tree_listing.tree_lines(files.storage, _path(request), who)
    first = await files.run(_some, lines)
    return StreamingResponse(_all(files, first, lines), media_type="application/x-ndjson")


def _some(lines: Iterator[bytes]) -> bytes:
    """As many lines as are worth a message. A refusal before the first is an answer of its own."""
    out: list[bytes] = []
    size = 0
    for line in lines:
        out.append(line)
        size += len(line)
        if size >= 1 << 18:
            break
    return b"".join(out)


async def _all(files: FileService, first: bytes, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    block = first
    while block:
        yield block
        try:
            block = await files.run(_some, lines)
        except PaiError as error:
            yield encode({"code": error.code, "message": error.message, "hint": error.hint}) + b"\n"
            return


async def read_file(request: Request) -> Response:
    """A range of a file; after its bytes comes their hash."""
    files, kept, who = await _asked(request)
    query = request.query_params
    algorithm = query.get("hash") or hashing.XXH3
    hashing.hasher(algorithm)
    offset = int_param(query.get("offset"), "offset", 0)
    most = int_param(query.get("length"), "length", 1 << 60)
    opened = await files.run(_opened, files.storage, _path(request), who, offset, most)
    if opened.whole is not None:
        digest = hashing.of_bytes(opened.whole, algorithm)
        return Response(opened.whole + digest, headers=opened.headers, media_type=BYTES)
    file = FileIO(opened.fd, "rb")
    fresh = query.get("fresh") == "true"
    proof = RangeHash(kept.proofs, opened.fd, offset, opened.length, algorithm, fresh=fresh)
    return RangeResponse(files, file, offset, opened.length, opened.headers, proof=proof)


class _Opened(NamedTuple):
    fd: int
    length: int
    headers: dict[str, str]
    # A small range is read at once, and the file closed.
    whole: bytes | None


def _opened(storage: Storage, path: str, who: StorageUser, offset: int, most: int) -> _Opened:
    opened = storage.open_read(path, who)
    fd = opened.fd
    try:
        status = os.fstat(fd)
        length = min(most, max(0, status.st_size - offset))
        headers = {
            "content-length": str(length + hashing.SIZE),
            "x-pai-size": str(status.st_size),
            "x-pai-mtime": str(status.st_mtime_ns),
            "x-pai-mode": f"{opened.entry.record.mode & 0o777:o}",
        }
        if length > _SMALL:
            return _Opened(fd, length, headers, None)
        whole = os.pread(fd, length, offset)
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    if len(whole) != length:
        raise PaiError(f"{path} changed while it was read.", code="ChangedFileError", status=409)
    return _Opened(-1, length, headers, whole)


class _Wanted(msgspec.Struct):
    path: str
    names: list[str]
    hash: str = hashing.XXH3


async def fetch(request: Request) -> Response:
    files, _, who = await _asked(request)
    wanted = _decoded(await read_body(request), _Wanted)
    hashing.hasher(wanted.hash)
    if len(wanted.names) > COUNT:
        raise InvalidParameters(f"At most {COUNT} files are fetched at once.")
    blocks = packs.fetch(files.storage, who, wanted.path, wanted.names, wanted.hash)

    async def send() -> AsyncIterator[bytes]:
        while block := await files.run(next, blocks, b""):
            yield block

    return StreamingResponse(send(), media_type=BYTES)


async def store(request: Request) -> Response:
    files, _, who = await _asked(request)
    pack = await read_body(request, LARGEST)
    problems = await files.run(packs.store, files.storage, who, _path(request), pack)
    return json_response({"problems": problems})


class _Unwanted(msgspec.Struct):
    path: str
    names: list[str]


async def remove(request: Request) -> Response:
    files, _, who = await _asked(request)
    unwanted = _decoded(await read_body(request, LARGEST), _Unwanted)
    if len(unwanted.names) > COUNT:
        raise InvalidParameters(f"At most {COUNT} are removed at once.")
    problems = await files.run(removing.bulk_delete, files.storage, who, unwanted.path, unwanted.names)
    return json_response({"problems": problems})


async def begin(request: Request) -> Response:
    files, kept, who = await _asked(request)
    about = _decoded(await read_body(request, 1 << 16), UploadRequest)

    def described() -> dict[str, object]:
        with kept.uploads.begun(about, who) as upload:
            return upload.described()

    return json_response(await files.run(described))


async def put_part(request: Request) -> Response:
    files, kept, who = await _asked(request)
    offset = int_param(request.query_params.get("offset"), "offset", 0, maximum=1 << 60)
    await receive_part(request, files, kept.uploads, who, request.path_params["upload"], offset)
    return json_response({})


class _Finish(msgspec.Struct):
    size: int
    mtime: int | None = None
    digest: str = ""


async def finish(request: Request) -> Response:
    files, kept, who = await _asked(request)
    said = _decoded(await read_body(request, 1 << 16), _Finish)
    upload = request.path_params["upload"]
    await files.run(kept.uploads.finish, upload, who, said.size, said.mtime, said.digest)
    return json_response({})


async def drop(request: Request) -> Response:
    files, kept, who = await _asked(request)
    await files.run(kept.uploads.drop, request.path_params["upload"], who)
    return json_response({})


async def hand_over(request: Request) -> Response:
    """Where on this machine open files are handed over, and a ticket that is good once."""
    _, kept, who = await _asked(request)
    return json_response(kept.window.ticket_for(who))


def _path(request: Request) -> str:
    path = request.query_params.get("path", "")
    if not path:
        raise InvalidParameters('"path" is missing.')
    return path


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise InvalidParameters(f"The request is not one we know: {error}.") from None


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
    (_BASE + "/local", ["POST"], hand_over),
]

__all__ = ["ROUTES"]
