"""Parsed WebHDFS request: user, operation, path, parameters."""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import Context, context
from paicluster.api.requests.own_url import own_url
from paicluster.api.webhdfs import redirects
from paicluster.api.webhdfs.authentication import Caller, authenticate
from paicluster.api.webhdfs.exceptions import UnsupportedOperation
from paicluster.api.webhdfs.parameters import Parameters
from paicluster.api.wire.responses import json_response
from paicluster.files import Storage, StorageUser
from paicluster.files.errors import bad_path
from paicluster.services.file_service import FileService
from paiprotocol.errors import InvalidParameters

# Hadoop's prefix, that of OpenPAI's proxy, and the one that `hdfscli` derives from the proxy's address.
PREFIXES = ("/webhdfs/v1", "/webhdfs/api/v1", "/webhdfs/webhdfs/v1")
_GATEWAY_PREFIX = "/rest-server"


class WebHdfsRequest(msgspec.Struct, frozen=True):
    """An authenticated request for one operation on one path."""

    request: Request
    context: Context
    prefix: str
    path: str
    operation: str
    parameters: Parameters
    caller: Caller

    @property
    def files(self) -> FileService:
        return self.context.files.own

    @property
    def storage(self) -> Storage:
        return self.context.files.own.storage

    @property
    def user(self) -> StorageUser:
        return self.caller.user

    @property
    def is_second_step(self) -> bool:
        """Whether this is the request to the redirect's URL, or a client that needs no redirect."""
        return self.parameters.flag("data") and not self.parameters.flag("noredirect")

    def redirect(self) -> Response:
        """Response to the first step of an operation: where the second one is."""
        resource = f"{own_url(self.request)}{self.prefix}{quote(self.path)}"
        url = redirects.redirect_url(
            resource, self.path, self.operation, self.parameters, self.user, self.context.identity.tickets
        )
        if self.parameters.flag("noredirect"):
            return json_response({"Location": url})
        return Response(None, 307, {"location": url})

    def hadoop_uri(self) -> str:
        return redirects.hadoop_uri(own_url(self.request), self.path)


async def parse_request(request: Request) -> WebHdfsRequest:
    prefix, path = _split(request)
    parameters = Parameters(request.scope["query_string"])
    operation = parameters.text("op").upper()
    if not operation:
        raise InvalidParameters('Required param "op" for webhdfs is missing')
    if not operation.isascii() or len(operation) > 40:
        raise UnsupportedOperation("Unknown operation.")
    ctx = context(request)
    caller = await authenticate(request, ctx, parameters, operation, path)
    return WebHdfsRequest(request, ctx, prefix, path, operation, parameters, caller)


def _split(request: Request) -> tuple[str, str]:
    """Prefix, and the path below it, decoded once; a path that is not UTF-8 is an error."""
    raw = request.scope["raw_path"].partition(b"?")[0]
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise bad_path(raw.decode("ascii", "replace"), "it is not UTF-8") from None
    path = path.removeprefix(_GATEWAY_PREFIX)
    prefix = next(
        (known for known in reversed(PREFIXES) if path == known or path.startswith(known + "/")), ""
    )
    return prefix, path[len(prefix) :] or "/"
