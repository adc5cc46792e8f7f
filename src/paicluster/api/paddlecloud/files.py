"""Routes of PaddleCloud's simple files: upload and download of a whole one, names in a folder, publishing."""

from __future__ import annotations

import time
import uuid
from urllib.parse import quote

import msgspec
from sqlalchemy import Connection
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from paicluster.api.context import Context, context
from paicluster.api.paddlecloud.chunk_files import CloudFiles
from paicluster.api.paddlecloud.cloud_paths import CloudPath
from paicluster.api.paddlecloud.form_file import file_in_form, form_boundary
from paicluster.api.paddlecloud.replies import (
    SUCCESS,
    error_reply,
    replying,
    sentence,
)
from paicluster.api.requests.authentication import caller
from paicluster.api.requests.own_url import own_url
from paicluster.api.routing.authority import CLUSTER, JOBS, PUBLIC
from paicluster.api.routing.route import JSON, Body, Bound, Query, Routes, Text
from paicluster.api.transfer.file_response import RangeResponse
from paicluster.api.transfer.transfer_rights import TransferRights
from paicluster.api.wire.paddlecloud import (
    PaddleNames,
    PaddlePath,
    PaddlePublished,
    PaddleReply,
    PaddleUnauthorized,
    PaddleUrl,
)
from paicluster.api.wire.responses import json_response
from paicluster.files import StagedFile, StorageUser
from paicluster.services.file_service import storage_user
from paicluster.store import groups, user_records, users
from paicluster.store.rows import UserGrants
from paicluster.store.user_records import UserRecord
from paiprotocol.errors import InvalidParameters, NotFound, PaiError

route = Routes("paddlecloud", returns={401: PaddleUnauthorized}, around=replying)

_DOWNLOAD = Text("application/force-download", binary=True)
_PATH = Query("path", required=True, description="/pfs/DATACENTER/home/USER/…, or …/public/…")

PUBLISHED = "published"
MAX_PUBLISHED = 1000
"""Published files of a user."""

_MISSING = "file not exist"


async def _files_of(ctx: Context, user: StorageUser) -> CloudFiles:
    storage = ctx.files.own.storage
    if not storage.has_provisioned(user):
        await ctx.files.own.run(storage.provision, user)
    return CloudFiles(storage, user)


@route(
    "GET /api/v1/file",
    authority=JOBS,
    summary="Read a file",
    query=(_PATH,),
    returns={200: (_DOWNLOAD, PaddleReply), 404: PaddleReply},
)
async def get_file(request: Request) -> Response:
    """A whole file. A missing one is a 404: the Go client would store the text of any 200 as the file."""
    ctx = context(request)
    files = await _files_of(ctx, storage_user(caller(request)))
    path = files.resolve(request.query_params.get("path", ""))
    return await _download(ctx, files, path, TransferRights.of(request))


async def _download(ctx: Context, files: CloudFiles, path: CloudPath, rights: TransferRights) -> Response:
    try:
        file = await ctx.files.own.run(files.open, path)
    except PaiError as error:
        if error.status not in (404, 409):
            raise
        return json_response(PaddleReply(404, f"{_MISSING}: {path.cloud}"), 404)
    size = file.seek(0, 2)
    name = path.cloud.rpartition("/")[2]
    ascii_name = name.encode("ascii", "replace").decode().replace('"', "_").replace("\\", "_")
    headers = {
        "Content-Type": "application/force-download",
        "Content-Disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name)}",
        "Content-Length": str(size),
    }
    return RangeResponse(ctx.files.own, file, 0, size, headers, rights=rights)


@route(
    "POST /api/v1/file",
    authority=JOBS,
    summary="Store a file",
    query=(_PATH,),
    body=Body({"multipart/form-data": Text("multipart/form-data", binary=True)}, limit=Bound.STREAMED),
)
async def put_file(request: Request) -> PaddleReply:
    """Store a whole file. Missing folders are created; an old file is replaced by a complete new one."""
    ctx = context(request)
    files = await _files_of(ctx, storage_user(caller(request)))
    path = files.resolve(request.query_params.get("path", ""), writes=True)
    boundary = form_boundary(request.headers.get("content-type", ""))
    staged = await ctx.files.own.run(_stage, files, path)
    try:
        async for data in file_in_form(request.stream(), boundary):
            await ctx.files.own.run(staged.write, data)
    except BaseException as error:
        await ctx.files.own.run(staged.abandon)
        if isinstance(error, ClientDisconnect):
            raise InvalidParameters("The form is truncated. Nothing was stored.") from None
        raise
    await ctx.files.own.run(staged.commit)
    return SUCCESS


def _stage(files: CloudFiles, path: CloudPath) -> StagedFile:
    return files.storage.stage(path.stored, files.user, overwrite=True)


@route(
    "GET /api/v1/filelist",
    authority=JOBS,
    summary="List the names in a folder",
    query=(_PATH,),
)
async def list_names(request: Request) -> PaddleNames:
    """Names in a folder."""
    ctx = context(request)
    files = await _files_of(ctx, storage_user(caller(request)))
    try:
        folder = files.resolve(request.query_params.get("path", ""))
        listing = await ctx.files.own.run(files.storage.list, folder.stored, files.user)
    except NotFound:
        return PaddleNames(404, "dir not exist", [])
    except PaiError as error:
        return PaddleNames(error.status, sentence(error), [])
    entries = listing.entries
    if entries and not entries[0].name:
        return PaddleNames(404, "dir not exist", [])
    return PaddleNames(200, "", [entry.name for entry in entries])


# -- publishing -------------------------------------------------------------------------------------------


@route(
    "GET /api/v1/publish",
    authority=JOBS,
    summary="List published files",
)
async def list_published(request: Request) -> PaddlePublished:
    ctx, username = context(request), caller(request).username
    records = await ctx.store.read(lambda conn: _published(conn, username))
    paths = [_path_of(ctx, record) for record in records]
    return PaddlePublished(paths, [_url(request, record.name) for record in records])


@route(
    "POST /api/v1/publish",
    authority=CLUSTER,
    summary="Publish a file",
    body=Body(media=(JSON,), may_be_empty=False),
)
async def publish(request: Request, body: PaddlePath) -> PaddleUrl | PaddleReply:
    """Publish a file at a URL that needs no token. A file that is published already keeps its URL."""
    ctx = context(request)
    files = await _files_of(ctx, storage_user(caller(request)))
    target = files.resolve(body.path)
    if (await ctx.files.own.run(files.stat, target)).is_folder:
        raise InvalidParameters(f"{target.cloud} is a folder: only files can be published.")
    username = caller(request).username
    sealed = ctx.identity.sealer.seal(msgspec.json.encode(target.cloud), _scope(username))
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

    return PaddleUrl(_url(request, await ctx.store.write(add)))


@route(
    "GET /filepub",
    authority=PUBLIC,
    summary="Read a published file",
    query=(Query("uuid", required=True),),
    returns={200: _DOWNLOAD, 404: PaddleReply},
)
async def get_published(request: Request) -> Response:
    """A published file. Its URL is the only credential, while its user is not disabled."""
    ctx = context(request)
    name = request.query_params.get("uuid", "")

    def read(conn: Connection) -> tuple[UserRecord, UserGrants] | None:
        record = user_records.find_record(conn, PUBLISHED, name)
        user = None if record is None else users.get_user(conn, record.username)
        if record is None or user is None or user.disabled_ms is not None:
            return None
        return record, groups.access_of(conn, record.username)

    published = await ctx.store.read(read)
    if published is None:
        return json_response(PaddleReply(404, _MISSING), 404)
    record, grants = published
    files = await _files_of(ctx, StorageUser(record.username, frozenset(grants.groups)))
    rights = TransferRights.of_user(request, record.username, grants)
    try:
        return await _download(ctx, files, files.resolve(_path_of(ctx, record)), rights)
    except PaiError as error:
        return json_response(error_reply(error))


def _published(conn: Connection, username: str) -> list[UserRecord]:
    return user_records.list_records(conn, PUBLISHED, username)


def _path_of(ctx: Context, record: UserRecord) -> str:
    return msgspec.json.decode(ctx.identity.sealer.unseal(record.sealed, _scope(record.username)), type=str)


def _scope(username: str) -> str:
    return f"{PUBLISHED}:{username}"


def _url(request: Request, name: str) -> str:
    return f"{own_url(request)}/filepub/?uuid={name}"
