"""Routes that change files in remote storages: make a folder, move, delete, upload."""

from __future__ import annotations

from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import OCTET_STREAM, Body, Bound, Query, Routes, Text
from paicluster.api.v2.storage_files import remote_storage, while_live
from paicluster.api.wire.base import Message
from paicluster.api.wire.clusters import DeletedObjects, MovedObjects, StoredFile, UploadOffset
from paicluster.api.wire.query_parameters import bool_param, int_param
from paicluster.remote_storages.remote_changes import upload_memory_bytes
from paicluster.remote_storages.remote_tree import NewFile
from paiprotocol.errors import InvalidParameters

route = Routes("storage")

_OVERWRITE = Query("overwrite", bool, description="`true`: replace a file of this path.")
_UPLOAD = Query("upload", description="Identifies the content, so that an interrupted upload goes on.")


@route(
    "PUT /api/v2/storages/{storage}/entries",
    authority=JOBS,
    summary="Make a folder in a remote storage",
    query=(Query("path"),),
    status=201,
    errors=(409, 507),
)
async def make_folder(request: Request) -> Message:
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    await context(request).files.remote_changes.make_folder(storage, identity.username, _path(request))
    return Message("The folder exists.")


@route(
    "DELETE /api/v2/storages/{storage}/entries",
    authority=JOBS,
    summary="Delete a file of a remote storage, or up to 1000 objects of a folder",
    query=(Query("path"),),
    errors=(409, 507),
)
async def delete_entry(request: Request) -> DeletedObjects:
    """Delete a file, or up to 1000 objects of a folder; the caller repeats it until `isComplete`."""
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    step = await context(request).files.remote_changes.delete(storage, identity.username, _path(request))
    return DeletedObjects(step.count, step.is_complete)


@route(
    "POST /api/v2/storages/{storage}/moves",
    authority=JOBS,
    summary="Move or rename a file of a remote storage, or up to 100 objects of a folder",
    query=(
        Query("path"),
        Query("target"),
        Query("resume", bool, description="`true`: go on; the target exists already."),
    ),
    errors=(409, 507),
)
async def move_entry(request: Request) -> MovedObjects:
    """Move a file, or up to 100 objects of a folder; the caller repeats it until `isComplete`."""
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    step = await context(request).files.remote_changes.move(
        storage,
        identity.username,
        _path(request),
        _path(request, "target"),
        resumes=bool_param(request.query_params, "resume"),
    )
    return MovedObjects(step.count, step.is_complete)


@route(
    "POST /api/v2/storages/{storage}/uploads",
    authority=JOBS,
    summary="Ask where an upload to a remote storage begins, or goes on",
    query=(Query("path"), Query("size", int), _UPLOAD, _OVERWRITE),
    errors=(409, 507, 413),
)
async def begin_upload(request: Request) -> UploadOffset:
    """Where an upload begins, or goes on."""
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    file = _new_file(request, int_param(request.query_params.get("size"), "size"))
    offset = await context(request).files.remote_changes.begin_upload(storage, identity.username, file)
    return UploadOffset(offset)


@route(
    "DELETE /api/v2/storages/{storage}/uploads",
    authority=JOBS,
    summary="Delete what has arrived of an upload to a remote storage",
    query=(Query("path"), Query("size", int), _UPLOAD),
    errors=(409, 507, 413),
)
async def cancel_upload(request: Request) -> Message:
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    file = _new_file(request, int_param(request.query_params.get("size"), "size"))
    await context(request).files.remote_changes.cancel_upload(storage, identity.username, file)
    return Message("The upload is cancelled.")


@route(
    "PUT /api/v2/storages/{storage}/content",
    authority=JOBS,
    summary="Write a file of a remote storage, or the rest of one",
    query=(Query("path"), _OVERWRITE, _UPLOAD, Query("offset", int, description="Where the body begins.")),
    body=Body({OCTET_STREAM: Text(OCTET_STREAM, binary=True)}, limit=Bound.IN_PARTS),
    status=201,
    errors=(409, 507, 411),
)
async def write_content(request: Request) -> StoredFile:
    """Write a file; with ``offset``, the rest of one whose beginning has arrived."""
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    ctx = context(request)
    announced = request.headers.get("content-length")
    if announced is None:
        raise InvalidParameters(
            "The body has no Content-Length.",
            status=411,
            hint="The parts on the storage depend on it: send one.",
        )
    length = int_param(announced, "Content-Length")
    offset = int_param(request.query_params.get("offset"), "offset", 0)
    file = _new_file(request, offset + length)
    if offset and not file.key:
        raise InvalidParameters('An upload with an "offset" needs the "upload" that it goes on with.')
    ctx.server.policies.body_budget.reserve(request.scope, identity.username, upload_memory_bytes(file.size))
    body = while_live(ctx.identity.tokens, identity.token_id, request.stream())
    await ctx.files.remote_changes.upload(storage, identity.username, file, offset, body)
    return StoredFile(file.size)


def _new_file(request: Request, size: int) -> NewFile:
    key = request.query_params.get("upload", "")
    return NewFile(_path(request), size, key, bool_param(request.query_params, "overwrite"))


def _path(request: Request, name: str = "path") -> str:
    path = request.query_params.get(name, "")
    if not path:
        raise InvalidParameters(f'"{name}" is missing: name a file or a folder.')
    return path
