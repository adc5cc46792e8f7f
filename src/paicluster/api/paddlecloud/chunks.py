"""Routes of PaddleCloud's file server below `/api/v1/pfs`: files, checksums of chunks, and chunks.

Every reply is ``{"err": text, "results": …}`` and a line break, with the status 200 also for errors. A client
sends a chunk only where the checksum differs, so an interrupted upload continues, and of a changed file only
the changes travel.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from io import FileIO
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paicluster.api.context import context
from paicluster.api.paddlecloud.chunk_body import (
    MAX_BODY_BYTES,
    MAX_CHUNK_BYTES,
    MAX_FILE_BYTES,
    MIN_CHUNK_BYTES,
    PART_END,
    ChunkRange,
    boundary_of,
    part_head,
    read_chunk,
    read_range,
)
from paicluster.api.paddlecloud.chunk_files import CloudFiles
from paicluster.api.paddlecloud.cloud_paths import CloudPath
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import JSON, Body, Handler, Query, Routes, Text
from paicluster.api.transfer.transfer_rights import TransferRights
from paicluster.api.wire.paddlecloud import (
    PaddleChangeBody,
    PaddleChangeReply,
    PaddleChunkMeta,
    PaddleChunkMetaReply,
    PaddleEmptyReply,
    PaddleFile,
    PaddleFilesReply,
    PaddlePath,
)
from paicluster.api.wire.request_body import mapping_of, read_body
from paicluster.api.wire.responses import error_response
from paicluster.services.file_service import FileService, storage_user
from paiprotocol.errors import InvalidParameters, PaiError, TooManyRequests, Unauthorized

route = Routes("paddlecloud", returns={401: PaddleEmptyReply})

_CHUNK = (
    Query("path", required=True),
    Query("offset", int, required=True),
    Query("chunksize", int, required=True),
)

MAX_PATHS = 1000
"""Paths in one request."""

_TYPE = "application/json; charset=UTF-8"
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
_READ_BYTES = 1 << 20
_END_OF_FILE = "this file reaches end"
_encode = msgspec.json.Encoder().encode

FilesHandler = Callable[[Request, CloudFiles], Awaitable[Response]]


Results = PaddleFile | PaddleChunkMeta | PaddlePath | Sequence[PaddleFile | PaddlePath]


class _Envelope(msgspec.Struct):
    """Any of the replies that the routes declare."""

    err: str
    results: Results | None


def _envelope(results: Results | None = None, err: str = "") -> bytes:
    return _encode(_Envelope(err, results)) + b"\n"


def _reply(results: Results | None = None, err: str = "", status: int = 200) -> Response:
    return Response(_envelope(results, err), status, media_type=_TYPE)


def _with_files(handler: FilesHandler) -> Handler:
    """Route of an authenticated caller, whose errors are envelopes."""

    @functools.wraps(handler)
    async def route(request: Request) -> Response:
        try:
            identity = await authenticate(request)
        except Unauthorized:
            return _reply(err="get username error:server error: 401 Unauthorized", status=401)
        files = context(request).files.own
        user = storage_user(identity)
        try:
            if not files.storage.has_provisioned(user):
                await files.run(files.storage.provision, user)
            return await handler(request, CloudFiles(files.storage, user))
        except TooManyRequests as error:
            return error_response(error)
        except PaiError as error:
            if error.status == 413:
                return error_response(error)
            return _reply(err=error.message)

    return route


@route(
    "GET /api/v1/pfs/files",
    authority=JOBS,
    summary="List files (method=ls), or get one (method=stat)",
    query=(
        Query("method", required=True),
        Query("arg", description="A path to list, with wildcards; may be repeated."),
        Query("r", bool, description="Whether to list recursively."),
        Query("path", description="The file of method=stat."),
    ),
    returns={200: PaddleFilesReply, 405: PaddleEmptyReply},
)
@_with_files
async def get_files(request: Request, files: CloudFiles) -> Response:
    """`ls` and `stat`; `md5sum` is reserved."""
    method = request.query_params.get("method", "")
    service = context(request).files.own
    if method == "ls":
        paths = request.query_params.getlist("arg")
        recursive = request.query_params.get("r", "")
        if not paths or not recursive:
            raise InvalidParameters("not enough arguments")
        if recursive not in (*_TRUE, *_FALSE):
            raise InvalidParameters("invalid arguments:r")
        _check_number(paths)
        listed: list[PaddleFile] = []
        for path in paths:
            resolved = files.resolve(path)
            listed += await service.run(_list, files, resolved, recursive in _TRUE)
        return _reply(listed or None)
    if method == "stat":
        resolved = files.resolve(request.query_params.get("path", ""))
        return _reply(files.attributes(resolved, await service.run(files.stat, resolved)))
    return Response(b"") if method == "md5sum" else _reply(status=405)


def _list(files: CloudFiles, path: CloudPath, recursive: bool) -> list[PaddleFile]:
    return files.ls(path, recursive=recursive)


@route(
    "POST|DELETE /api/v1/pfs/files",
    authority=JOBS,
    summary="Create folders, create, resize or rename a file, remove files",
    body=Body({JSON: PaddleChangeBody}),
    returns={200: PaddleChangeReply, 405: PaddleEmptyReply},
)
@_with_files
async def change_files(request: Request, files: CloudFiles) -> Response:
    """`mkdir`, `touch` and `rm`.

    Our additions: `mv`, for uploads that appear when they are complete, and `cp` of a file within the cloud.
    """
    try:
        fields = mapping_of(request, await read_body(request))
    except InvalidParameters as error:
        if error.status == 413:
            raise
        raise InvalidParameters("parse json error") from None
    service = context(request).files.own
    method = fields.get("method")
    if method == "mkdir":
        folders = [files.resolve(path, writes=True) for path in _paths(fields)]
        for folder in folders:
            await service.run(files.make_folder, folder)
        return _reply([PaddlePath(folder.cloud) for folder in folders])
    if method == "touch":
        size, path = fields.get("filesize"), fields.get("path")
        if type(size) is not int or not 0 <= size <= MAX_FILE_BYTES:
            raise InvalidParameters(f"bad file size:{size}")
        if not isinstance(path, str):
            raise InvalidParameters("not enough arguments")
        file = files.resolve(path, writes=True)
        await service.run(files.touch, file, size)
        return _reply(PaddlePath(file.cloud))
    if method == "rm":
        recursive = fields.get("r", False)
        if not isinstance(recursive, bool):
            raise InvalidParameters("invalid arguments:r")
        removed: list[str] = []
        for each in [files.resolve(path, writes=True) for path in _paths(fields)]:
            removed += await service.run(files.remove, each, recursive=recursive)
        return _reply([PaddlePath(path) for path in removed])
    if method in ("mv", "cp"):
        old, new = fields.get("path"), fields.get("dest")
        if not isinstance(old, str) or not isinstance(new, str):
            raise InvalidParameters("not enough arguments")
        target = files.resolve(new, writes=True)
        if method == "mv":
            await service.run(files.move, files.resolve(old, writes=True), target)
        else:
            await service.run(files.copy, files.resolve(old), target)
        return _reply(PaddlePath(target.cloud))
    return _reply(status=405)


def _paths(fields: dict[str, Any]) -> list[str]:
    paths = fields.get("path")
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise InvalidParameters("not enough arguments")
    _check_number(paths)
    return paths


def _check_number(paths: list[str]) -> None:
    if len(paths) > MAX_PATHS:
        raise InvalidParameters(f"There are {len(paths)} paths; a request has {MAX_PATHS} at most.")


@route(
    "GET /api/v1/pfs/chunks",
    authority=JOBS,
    summary="Get the checksum of a chunk",
    query=(Query("method", required=True), *_CHUNK),
    returns={200: PaddleChunkMetaReply, 405: PaddleEmptyReply},
)
@_with_files
async def chunk_meta(request: Request, files: CloudFiles) -> Response:
    """Checksum and size of the bytes that a file has in a range; past its end there are none."""
    if request.query_params.get("method") != "GetChunkMeta":
        return _reply(status=405)
    chunk = read_range(request.scope["query_string"].decode("latin-1"))
    if chunk is None:
        raise InvalidParameters("Bad Request")
    if not MIN_CHUNK_BYTES <= chunk.size <= MAX_CHUNK_BYTES:
        raise InvalidParameters("chunksize error")
    path = files.resolve(chunk.path)
    checksum, size = await context(request).files.own.run(files.checksum, path, chunk.offset, chunk.size)
    return _reply(PaddleChunkMeta(chunk.offset, checksum, size))


@route(
    "GET /api/v1/pfs/storage/chunks",
    authority=JOBS,
    summary="Read a chunk, as a multipart body",
    query=_CHUNK,
    returns={200: (PaddleEmptyReply, Text())},
)
@_with_files
async def get_chunk(request: Request, files: CloudFiles) -> Response:
    """The bytes of a range as a multipart body, followed by an envelope."""
    chunk = read_range(request.scope["query_string"].decode("latin-1"))
    if chunk is None:
        return _reply()
    service = context(request).files.own
    file, err = None, ""
    try:
        file = await service.run(files.open, files.resolve(chunk.path))
    except PaiError as error:
        err = error.message
    # Clients know the boundary, and read neither type nor length.
    parts = TransferRights.of(request).while_kept(_chunk_parts(service, file, chunk, err))
    return StreamingResponse(parts, media_type="text/plain; charset=utf-8")


async def _chunk_parts(
    service: FileService, file: FileIO | None, chunk: ChunkRange, err: str
) -> AsyncIterator[bytes]:
    with file or contextlib.nullcontext():
        yield part_head(chunk)
        sent = 0
        while file is not None and sent < chunk.size:
            count = min(_READ_BYTES, chunk.size - sent)
            data = await service.run(os.pread, file.fileno(), count, chunk.offset + sent)
            if not data:
                err = _END_OF_FILE
                break
            sent += len(data)
            yield data
        yield PART_END + _envelope(err=err)


@route(
    "POST /api/v1/pfs/storage/chunks",
    authority=JOBS,
    summary="Write a chunk into a file",
    body=Body({"multipart/form-data": Text("multipart/form-data", binary=True)}, limit=MAX_BODY_BYTES),
    returns={200: PaddleEmptyReply, 400: PaddleEmptyReply},
)
@_with_files
async def put_chunk(request: Request, files: CloudFiles) -> Response:
    """Write a chunk into a file that exists. All of it has arrived, and is valid, before any is written."""
    body = await read_body(request)
    boundary = boundary_of(request.headers.get("content-type", ""))
    if boundary is None:
        return _reply(status=400)
    chunk = await asyncio.to_thread(read_chunk, body, boundary)
    path = files.resolve(chunk.range.path, writes=True)
    await context(request).files.own.run(files.write, path, chunk.range.offset, chunk.data)
    return _reply()
