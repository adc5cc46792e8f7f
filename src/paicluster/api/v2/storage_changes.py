"""Routes that change files in remote storages: make a folder, move, delete, upload."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters
from paicluster.api.context import authenticate, context
from paicluster.api.responses import bool_param, int_param, json_response
from paicluster.api.v2.storage_files import remote_storage, while_live
from paicluster.services.remote_changes import upload_memory_bytes
from paicluster.services.remote_tree import NewFile


async def make_folder(request: Request) -> Response:
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    await context(request).remote_changes.make_folder(storage, identity.username, _path(request))
    return json_response({"message": "The folder exists."}, 201)


async def delete_entry(request: Request) -> Response:
    """Delete a file, or up to 1000 objects of a folder; the caller repeats it until `isComplete`."""
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    step = await context(request).remote_changes.delete(storage, identity.username, _path(request))
    return json_response({"deleted": step.count, "isComplete": step.is_complete})


async def move_entry(request: Request) -> Response:
    """Move a file, or up to 100 objects of a folder; the caller repeats it until `isComplete`."""
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    step = await context(request).remote_changes.move(
        storage,
        identity.username,
        _path(request),
        _path(request, "target"),
        resumes=bool_param(request.query_params, "resume"),
    )
    return json_response({"moved": step.count, "isComplete": step.is_complete})


async def begin_upload(request: Request) -> Response:
    """Where an upload begins, or goes on."""
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    file = _new_file(request, int_param(request.query_params.get("size"), "size"))
    offset = await context(request).remote_changes.begin_upload(storage, identity.username, file)
    return json_response({"offset": offset})


async def cancel_upload(request: Request) -> Response:
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    file = _new_file(request, int_param(request.query_params.get("size"), "size"))
    await context(request).remote_changes.cancel_upload(storage, identity.username, file)
    return json_response({"message": "The upload is cancelled."})


async def write_content(request: Request) -> Response:
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
    ctx.policies.body_budget.reserve(request.scope, identity.username, upload_memory_bytes(file.size))
    body = while_live(ctx.tokens, identity.token_id, request.stream())
    await ctx.remote_changes.upload(storage, identity.username, file, offset, body)
    return json_response({"size": file.size}, 201)


def _new_file(request: Request, size: int) -> NewFile:
    key = request.query_params.get("upload", "")
    return NewFile(_path(request), size, key, bool_param(request.query_params, "overwrite"))


def _path(request: Request, name: str = "path") -> str:
    path = request.query_params.get(name, "")
    if not path:
        raise InvalidParameters(f'"{name}" is missing: name a file or a folder.')
    return path
