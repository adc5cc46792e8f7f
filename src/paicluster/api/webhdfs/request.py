"""One request to the storage, taken apart: who, what, where."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from openpaisdk.errors import InvalidParameters
from paicluster.api.context import Context, context
from paicluster.api.webhdfs.authentication import Caller, authenticate
from paicluster.api.webhdfs.exceptions import Unsupported
from paicluster.api.webhdfs.parameters import Parameters
from paicluster.files import Storage, StorageUser
from paicluster.files.errors import bad_path
from paicluster.services.file_service import FileService

# Hadoop's own, the one of OpenPAI's proxy, and what `hdfscli` makes of that proxy's address.
PREFIXES = ("/webhdfs/v1", "/webhdfs/api/v1", "/webhdfs/webhdfs/v1")
_DOOR = "/rest-server"


@dataclass(frozen=True, slots=True)
class WebHdfsRequest:
    request: Request
    context: Context
    prefix: str
    path: str
    operation: str
    parameters: Parameters
    caller: Caller

    @property
    def files(self) -> FileService:
        return self.context.files

    @property
    def storage(self) -> Storage:
        return self.context.files.storage

    @property
    def who(self) -> StorageUser:
        return self.caller.person


async def read_call(request: Request) -> WebHdfsRequest:
    prefix, path = _split(request)
    parameters = Parameters(request.scope["query_string"])
    operation = parameters.text("op").upper()
    if not operation:
        raise InvalidParameters('Required param "op" for webhdfs is missing')
    if not operation.isascii() or len(operation) > 40:
        raise Unsupported("There is no such operation.")
    ctx = context(request)
    asking = await authenticate(request, ctx, parameters, operation, path)
    return WebHdfsRequest(request, ctx, prefix, path, operation, parameters, asking)


def _split(request: Request) -> tuple[str, str]:
    """The prefix, and the path below it, decoded once and strictly: what is not UTF-8 is no path."""
    raw = request.scope["raw_path"].partition(b"?")[0]
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise bad_path(raw.decode("ascii", "replace"), "it is not UTF-8") from None
    path = path.removeprefix(_DOOR)
    prefix = next((each for each in reversed(PREFIXES) if path == each or path.startswith(each + "/")), "")
    return prefix, path[len(prefix) :] or "/"
