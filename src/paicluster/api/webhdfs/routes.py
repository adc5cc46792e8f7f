"""Which operation answers what."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, PaiError, Unavailable
from paicluster.api.answers import answer
from paicluster.api.webhdfs import changing, delegation, looking, reading, summing, writing
from paicluster.api.webhdfs.call import PREFIXES, Call, read_call
from paicluster.api.webhdfs.exceptions import Unsupported, remote_exception
from paicluster.files.refusals import NOT_A_FOLDER, no_file, path_of_no_folder

log = logging.getLogger("paicluster.api")

Handler = Callable[[Request], Awaitable[Response]]

# Those that block: run in a thread, answered as JSON, or with nothing.
_BLOCKING: dict[tuple[str, str], Callable[[Call], Any]] = {
    ("GET", "GETFILESTATUS"): looking.file_status,
    ("GET", "LISTSTATUS"): looking.list_status,
    ("GET", "LISTSTATUS_BATCH"): looking.list_status_batch,
    ("GET", "GETCONTENTSUMMARY"): looking.content_summary,
    ("GET", "GETQUOTAUSAGE"): looking.quota_usage,
    ("GET", "GETHOMEDIRECTORY"): looking.home_directory,
    ("GET", "GETTRASHROOT"): looking.trash_root,
    ("GET", "GETSERVERDEFAULTS"): looking.server_defaults,
    ("GET", "GETACLSTATUS"): looking.acl_status,
    ("GET", "GETXATTRS"): looking.no_attributes,
    ("GET", "LISTXATTRS"): looking.no_attribute_names,
    ("GET", "GETFILEBLOCKLOCATIONS"): looking.block_locations,
    ("GET", "GET_BLOCK_LOCATIONS"): looking.located_blocks,
    ("GET", "CHECKACCESS"): looking.check_access,
    ("PUT", "MKDIRS"): changing.make_dirs,
    ("PUT", "RENAME"): changing.rename,
    ("PUT", "SETPERMISSION"): changing.set_permission,
    ("PUT", "SETOWNER"): changing.set_owner,
    ("PUT", "SETTIMES"): changing.set_times,
    ("PUT", "SETREPLICATION"): changing.set_replication,
    ("POST", "CONCAT"): changing.concat,
    ("POST", "TRUNCATE"): changing.truncate,
    ("DELETE", "DELETE"): changing.delete,
}
_STREAMING: dict[tuple[str, str], Callable[[Call], Awaitable[Response]]] = {
    ("GET", "OPEN"): reading.open_file,
    ("GET", "GETFILECHECKSUM"): summing.file_checksum,
    ("PUT", "CREATE"): writing.create,
    ("POST", "APPEND"): writing.append,
    ("GET", "GETDELEGATIONTOKEN"): delegation.get_token,
    ("PUT", "RENEWDELEGATIONTOKEN"): delegation.renew_token,
    ("PUT", "CANCELDELEGATIONTOKEN"): delegation.cancel_token,
}


_KNOWN = {operation for _, operation in (*_BLOCKING, *_STREAMING)}
# What HDFS has and this storage has not.
_NOT_HERE = re.compile(r"\w*(SNAPSHOT|ACL|XATTR|POLICY|QUOTA|LINK|TRASHROOTS|GETSTATUS)\w*")


async def webhdfs(request: Request) -> Response:
    try:
        return await _answer(await read_call(request))
    except PaiError as error:
        if error.code == NOT_A_FOLDER and request.method in ("GET", "HEAD"):
            # Nothing can be below a file: to those who only look it is not there.
            error = no_file(path_of_no_folder(error))
        return remote_exception(error)
    except ClientDisconnect:
        raise
    except asyncio.CancelledError:
        # The server leaves and does not wait for slow clients any longer.
        return remote_exception(Unavailable("The cluster is stopping: try again in a moment."))
    except Exception as error:
        # The path alone: tickets and tokens are in the query.
        log.exception("%s %s failed", request.method, request.url.path)
        return remote_exception(PaiError(f"The cluster hit an error of its own: {type(error).__name__}."))


async def _answer(call: Call) -> Response:
    if not call.storage.knows(call.who):
        await call.files.run(call.storage.welcome, call.who)
    method = "GET" if call.request.method == "HEAD" else call.request.method
    streaming = _STREAMING.get((method, call.operation))
    if streaming is not None:
        return await streaming(call)
    blocking = _BLOCKING.get((method, call.operation))
    if blocking is None and (call.operation in _KNOWN or _NOT_HERE.fullmatch(call.operation)):
        raise Unsupported(f"{call.operation} by {method} is not supported")
    if blocking is None:
        raise InvalidParameters(
            f'Invalid value for webhdfs parameter "op": No enum constant {method}.{call.operation}'
        )
    value = await call.files.run(blocking, call)
    return Response(None, 200) if value is None else answer(value)


class _AnyName(PathConvertor):
    """Names may have line breaks, which Starlette's own kind of path ends at."""

    regex = "(?s:.*)"


register_url_convertor("names", _AnyName())

_METHODS = ["GET", "PUT", "POST", "DELETE"]
ROUTES: list[tuple[str, list[str], Handler]] = [
    (prefix + below, _METHODS, webhdfs) for prefix in PREFIXES for below in ("", "/{path:names}")
]
