"""Routes that read files in remote storages: list a folder, read a file. The cluster's own storage has
WebHDFS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Literal
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import JOBS, READABLE_BY_TICKET
from paicluster.api.routing.route import OCTET_STREAM, Query, Routes, Text
from paicluster.api.v2.storages import storage_named
from paicluster.api.wire.clusters import ContentLink, StorageEntries, StorageEntry
from paicluster.api.wire.query_parameters import int_param
from paicluster.auth.tickets import holder_of
from paicluster.auth.tokens import Identity, Tokens
from paicluster.remote_storages.remote_clients import is_readable
from paicluster.remote_storages.remote_tree import RemoteEntry
from paicluster.remote_storages.storages import StorageConfig
from paicluster.store import groups, users
from paiprotocol.errors import InvalidParameters, Unauthorized

route = Routes("storage")

# As long as those of WebHDFS: a browser may ask where to save a file.
_TICKET_LIFETIME_S = 600


@route(
    "GET /api/v2/storages/{storage}/entries",
    authority=JOBS,
    summary="List a folder of a remote storage, in pages",
    query=(Query("path"), Query("cursor", description="`next` of the page before.")),
)
async def list_entries(request: Request) -> StorageEntries:
    """One page of a folder, or the file that the path is. ``cursor`` continues a listing."""
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    query = request.query_params
    path = query.get("path") or "/"
    listing = await context(request).files.remote_files.list(
        storage, identity.username, path, query.get("cursor", "")
    )
    return StorageEntries(
        file=None if listing.file is None else _wire(listing.file),
        entries=[_wire(entry) for entry in listing.entries],
        next=listing.next,
        is_truncated=listing.is_truncated,
    )


def _wire(entry: RemoteEntry) -> StorageEntry:
    kind: Literal["directory", "file"] = "directory" if entry.is_folder else "file"
    return StorageEntry(entry.name, kind, entry.size, entry.modified_ms)


@route(
    "POST /api/v2/storages/{storage}/content-link",
    authority=JOBS,
    summary="Issue an address of a file of a remote storage that needs no header",
    query=(Query("path"),),
)
async def issue_content_link(request: Request) -> ContentLink:
    """The address of a file's bytes, which needs no header; for downloads of a browser."""
    identity = await authenticate(request)
    storage = remote_storage(request, identity)
    ctx = context(request)
    path = request.query_params.get("path") or "/"
    await ctx.files.remote_files.open(storage, identity.username, path)
    subject = _subject(storage.name, identity.username, path)
    ticket = ctx.identity.tickets.issue(subject, _TICKET_LIFETIME_S, holder=identity.token_id)
    values = {"path": path, "user": identity.username, "ticket": ticket}
    return ContentLink(f"api/v2/storages/{quote(storage.name, safe='')}/content?{urlencode(values)}")


@route(
    "GET /api/v2/storages/{storage}/content",
    authority=READABLE_BY_TICKET,
    summary="Read a file of a remote storage",
    query=(
        Query("path"),
        Query("length", int, description="Only the first bytes."),
        Query("user"),
        Query("ticket", description="Of a content link, instead of a token."),
    ),
    returns={200: Text(OCTET_STREAM, binary=True)},
)
async def read_content(request: Request) -> Response:
    """A file, or the first ``length`` bytes of it."""
    ctx = context(request)
    query = request.query_params
    path = query.get("path") or "/"
    if (ticket := query.get("ticket")) is not None:
        username = query.get("user", "")
        storage, holder = await _storage_of_ticket(request, ticket, username, path), holder_of(ticket)
    else:
        identity = await authenticate(request)
        username, holder = identity.username, identity.token_id
        storage = storage_named(request, username, identity.access)
    storage = _readable(storage)
    file = await ctx.files.remote_files.open(storage, username, path)
    length = min(file.size, int_param(query.get("length"), "length", file.size))
    headers = {
        "content-length": str(length),
        # Never shown by the browser: it is whatever a user stored.
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
    }
    if request.method == "HEAD":
        return Response(headers=headers, media_type=OCTET_STREAM)
    end_download = ctx.files.remote_files.begin_download(username)
    pieces = while_live(ctx.identity.tokens, holder, ctx.files.remote_files.pieces(storage, file, length))
    return _DownloadResponse(end_download, pieces, headers=headers, media_type=OCTET_STREAM)


async def while_live(tokens: Tokens, holder: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces of a file, as long as the token is valid with which its transfer began."""
    async for piece in pieces:
        if not await tokens.is_live(holder):
            # Breaks a download off: the client takes no part of a file for the whole.
            raise Unauthorized("The session that started this transfer has ended.")
        yield piece


class _DownloadResponse(StreamingResponse):
    """Response that calls ``on_end`` whether or not its client reads any of it."""

    def __init__(self, on_end: Callable[[], None], content: AsyncIterator[bytes], **more: Any) -> None:
        super().__init__(content, **more)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


async def _storage_of_ticket(request: Request, ticket: str, username: str, path: str) -> StorageConfig:
    ctx = context(request)
    name = request.path_params["storage"]
    is_valid = ctx.identity.tickets.is_valid(ticket, _subject(name, username, path))
    if not is_valid or not await ctx.identity.tokens.is_live(holder_of(ticket)):
        raise Unauthorized("This address has expired: start the download again.")
    access = await ctx.store.read(
        lambda conn: None if users.get_user(conn, username) is None else groups.access_of(conn, username)
    )
    if access is None:
        raise Unauthorized("This address has expired: start the download again.")
    return storage_named(request, username, access)


def _subject(storage: str, username: str, path: str) -> str:
    # Names of storages and users have no line break, so no text can move from one field to another.
    return "\n".join(("storage", storage, username, path))


def remote_storage(request: Request, identity: Identity) -> StorageConfig:
    """The storage of the route, which is a remote one, if the caller may use it."""
    return _readable(storage_named(request, identity.username, identity.access))


def _readable(storage: StorageConfig) -> StorageConfig:
    if is_readable(storage):
        return storage
    hint = "Jobs that name the storage find it mounted."
    if storage.url is not None:
        hint = "WebHDFS serves the cluster's own storage."
    raise InvalidParameters(f"These routes do not read the storage {storage.name}.", hint=hint)
