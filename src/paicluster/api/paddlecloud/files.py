"""Routes of PaddleCloud's simple files: upload and download of a whole one, names in a folder, publishing."""

from __future__ import annotations

import time
import uuid
from urllib.parse import quote

import msgspec
from sqlalchemy import Connection
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, NotFound, PaiError
from paicluster.api.context import Context, context, own_url
from paicluster.api.paddlecloud.chunk_files import CloudFiles
from paicluster.api.paddlecloud.cloud_paths import CloudPath
from paicluster.api.paddlecloud.form_file import file_in_form, form_boundary
from paicluster.api.paddlecloud.replies import error_reply, paddle_route, sentence, success
from paicluster.api.responses import MAX_FIELDS_BYTES, form_or_json, json_response
from paicluster.api.transfer.file_response import RangeResponse
from paicluster.auth.tokens import Identity
from paicluster.files import StagedFile, StorageUser
from paicluster.services.file_service import storage_user
from paicluster.store import groups, user_records
from paicluster.store.user_records import UserRecord

PUBLISHED = "published"
MAX_PUBLISHED = 1000
"""Published files of a user."""

_MISSING = "file not exist"


async def _files_of(ctx: Context, user: StorageUser) -> CloudFiles:
    storage = ctx.files.storage
    if not storage.has_provisioned(user):
        await ctx.files.run(storage.provision, user)
    return CloudFiles(storage, user)


@paddle_route
async def get_file(request: Request, identity: Identity) -> Response:
    """A whole file. A missing one is a 404: the Go client would store the text of any 200 as the file."""
    ctx = context(request)
    files = await _files_of(ctx, storage_user(identity))
    path = files.resolve(request.query_params.get("path", ""))
    return await _download(ctx, files, path)


async def _download(ctx: Context, files: CloudFiles, path: CloudPath) -> Response:
    try:
        file = await ctx.files.run(files.open, path)
    except PaiError as error:
        if error.status not in (404, 409):
            raise
        return json_response({"code": 404, "msg": f"{_MISSING}: {path.cloud}"}, 404)
    size = file.seek(0, 2)
    name = path.cloud.rpartition("/")[2]
    ascii_name = name.encode("ascii", "replace").decode().replace('"', "_").replace("\\", "_")
    headers = {
        "Content-Type": "application/force-download",
        "Content-Disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name)}",
        "Content-Length": str(size),
    }
    return RangeResponse(ctx.files, file, 0, size, headers)


@paddle_route
async def put_file(request: Request, identity: Identity) -> Response:
    """Store a whole file. Missing folders are created; an old file is replaced by a complete new one."""
    ctx = context(request)
    files = await _files_of(ctx, storage_user(identity))
    path = files.resolve(request.query_params.get("path", ""), writes=True)
    boundary = form_boundary(request.headers.get("content-type", ""))
    staged = await ctx.files.run(_stage, files, path)
    try:
        async for data in file_in_form(request.stream(), boundary):
            await ctx.files.run(staged.write, data)
    except BaseException as error:
        await ctx.files.run(staged.abandon)
        if isinstance(error, ClientDisconnect):
            raise InvalidParameters("The form is truncated. Nothing was stored.") from None
        raise
    await ctx.files.run(staged.commit)
    return success()


def _stage(files: CloudFiles, path: CloudPath) -> StagedFile:
    return files.storage.stage(path.stored, files.user, overwrite=True)


@paddle_route
async def list_names(request: Request, identity: Identity) -> Response:
    """Names in a folder."""
    ctx = context(request)
    files = await _files_of(ctx, storage_user(identity))
    try:
        folder = files.resolve(request.query_params.get("path", ""))
        listing = await ctx.files.run(files.storage.list, folder.stored, files.user)
    except NotFound:
        return _no_names(404, "dir not exist")
    except PaiError as error:
        return _no_names(error.status, sentence(error))
    entries = listing.entries
    if entries and not entries[0].name:
        return _no_names(404, "dir not exist")
    return success(items=[entry.name for entry in entries])


def _no_names(code: int, message: str) -> Response:
    return json_response({"code": code, "msg": message, "items": []})


# -- publishing -------------------------------------------------------------------------------------------


@paddle_route
async def list_published(request: Request, identity: Identity) -> Response:
    ctx = context(request)
    records = await ctx.store.read(lambda conn: _published(conn, identity.username))
    paths = [_path_of(ctx, record) for record in records]
    return json_response({"files": paths, "urls": [_url(request, record.name) for record in records]})


@paddle_route
async def publish(request: Request, identity: Identity) -> Response:
    """Publish a file at a URL that needs no token. A file that is published already keeps its URL."""
    ctx = context(request)
    path = (await form_or_json(request, MAX_FIELDS_BYTES)).get("path")
    if not isinstance(path, str):
        raise InvalidParameters("path must be the path of a file.")
    files = await _files_of(ctx, storage_user(identity))
    target = files.resolve(path)
    if (await ctx.files.run(files.stat, target)).is_folder:
        raise InvalidParameters(f"{target.cloud} is a folder: only files can be published.")
    username = identity.username
    sealed = ctx.sealer.seal(msgspec.json.encode(target.cloud), _scope(username))
    new = UserRecord(PUBLISHED, str(uuid.uuid4()), username, int(time.time() * 1000), sealed)

    def add(conn: Connection) -> str:
        records = _published(conn, username)
        for record in records:
            if _path_of(ctx, record) == target.cloud:
                return record.name
        if len(records) >= MAX_PUBLISHED:
            raise InvalidParameters(f"You have {MAX_PUBLISHED} published files, which is the limit.")
        user_records.put_record(conn, new)
        return new.name

    return json_response({"url": _url(request, await ctx.store.write(add))})


async def get_published(request: Request) -> Response:
    """A published file. Its URL is the only credential."""
    ctx = context(request)
    name = request.query_params.get("uuid", "")

    def read(conn: Connection) -> tuple[UserRecord, StorageUser] | None:
        record = user_records.find_record(conn, PUBLISHED, name)
        if record is None:
            return None
        grants = groups.access_of(conn, record.username)
        return record, StorageUser(record.username, frozenset(grants.groups))

    found = await ctx.store.read(read)
    if found is None:
        return json_response({"code": 404, "msg": _MISSING}, 404)
    record, user = found
    files = await _files_of(ctx, user)
    try:
        return await _download(ctx, files, files.resolve(_path_of(ctx, record)))
    except PaiError as error:
        return error_reply(error)


def _published(conn: Connection, username: str) -> list[UserRecord]:
    return user_records.list_records(conn, PUBLISHED, username)


def _path_of(ctx: Context, record: UserRecord) -> str:
    return msgspec.json.decode(ctx.sealer.unseal(record.sealed, _scope(record.username)), type=str)


def _scope(username: str) -> str:
    return f"{PUBLISHED}:{username}"


def _url(request: Request, name: str) -> str:
    return f"{own_url(request)}/filepub/?uuid={name}"
