"""Routes of WebHDFS, and the table of operations."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from paicluster.api.routing.authority import FILES
from paicluster.api.routing.route import Body, Bound, Routes
from paicluster.api.webhdfs import (
    absent_features,
    archive_operation,
    create_append,
    delegation_tokens,
    open_operation,
    read_operations,
    write_operations,
)
from paicluster.api.webhdfs.exceptions import UnsupportedOperation, remote_exception
from paicluster.api.webhdfs.request import PREFIXES, WebHdfsRequest, parse_request
from paicluster.api.wire.responses import json_response
from paicluster.files.errors import NOT_A_FOLDER, no_file, path_of_not_a_folder
from paiprotocol.errors import InvalidParameters, PaiError, Unavailable

log = logging.getLogger("paicluster.api")

# Run in a file thread; the result is the JSON response, None an empty one.
_BLOCKING: dict[tuple[str, str], Callable[[WebHdfsRequest], Any]] = {
    ("GET", "GETFILESTATUS"): read_operations.file_status,
    ("GET", "LISTSTATUS"): read_operations.list_status,
    ("GET", "LISTSTATUS_BATCH"): read_operations.list_status_batch,
    ("GET", "GETCONTENTSUMMARY"): read_operations.content_summary,
    ("GET", "GETQUOTAUSAGE"): read_operations.quota_usage,
    ("GET", "GETHOMEDIRECTORY"): read_operations.home_directory,
    ("GET", "GETTRASHROOT"): read_operations.trash_root,
    ("GET", "GETSERVERDEFAULTS"): read_operations.server_defaults,
    ("GET", "GETXATTRS"): read_operations.no_attributes,
    ("GET", "LISTXATTRS"): read_operations.no_attribute_names,
    ("GET", "GETFILEBLOCKLOCATIONS"): read_operations.block_locations,
    ("GET", "GET_BLOCK_LOCATIONS"): read_operations.located_blocks,
    ("GET", "CHECKACCESS"): read_operations.check_access,
    ("GET", "GETACLSTATUS"): absent_features.reject_acls,
    ("PUT", "SETACL"): absent_features.reject_acls,
    ("PUT", "MODIFYACLENTRIES"): absent_features.reject_acls,
    ("PUT", "REMOVEACLENTRIES"): absent_features.reject_acls,
    ("PUT", "REMOVEDEFAULTACL"): absent_features.reject_acls,
    ("PUT", "REMOVEACL"): absent_features.reject_acls,
    ("PUT", "CREATESNAPSHOT"): absent_features.reject_snapshots,
    ("PUT", "RENAMESNAPSHOT"): absent_features.reject_snapshots,
    ("DELETE", "DELETESNAPSHOT"): absent_features.reject_snapshots,
    ("GET", "GETSNAPSHOTDIFF"): absent_features.reject_snapshots,
    ("GET", "GETSNAPSHOTLIST"): absent_features.reject_snapshots,
    ("GET", "GETSNAPSHOTTABLEDIRECTORYLIST"): absent_features.no_snapshottable_folders,
    ("PUT", "MKDIRS"): write_operations.make_dirs,
    ("PUT", "RENAME"): write_operations.rename,
    ("PUT", "SETPERMISSION"): write_operations.set_permission,
    ("PUT", "SETOWNER"): write_operations.set_owner,
    ("PUT", "SETTIMES"): write_operations.set_times,
    ("PUT", "SETREPLICATION"): write_operations.set_replication,
    ("POST", "CONCAT"): write_operations.concat,
    ("POST", "TRUNCATE"): write_operations.truncate,
    ("DELETE", "DELETE"): write_operations.delete,
}
_ASYNC: dict[tuple[str, str], Callable[[WebHdfsRequest], Awaitable[Response]]] = {
    ("GET", "OPEN"): open_operation.open_file,
    ("GET", "GETARCHIVE"): archive_operation.get_archive,
    ("GET", "GETFILECHECKSUM"): read_operations.file_checksum,
    ("PUT", "CREATE"): create_append.create,
    ("POST", "APPEND"): create_append.append,
    ("GET", "GETDELEGATIONTOKEN"): delegation_tokens.get_token,
    ("PUT", "RENEWDELEGATIONTOKEN"): delegation_tokens.renew_token,
    ("PUT", "CANCELDELEGATIONTOKEN"): delegation_tokens.cancel_token,
}

_KNOWN = {operation for _, operation in (*_BLOCKING, *_ASYNC)}
# Operations that HDFS has and this storage does not support.
_UNSUPPORTED = re.compile(r"\w*(SNAPSHOT|ACL|XATTR|POLICY|QUOTA|LINK|TRASHROOTS|GETSTATUS)\w*")


class _AnyPath(PathConvertor):
    """Path that may contain line breaks, at which Starlette's path convertor stops."""

    regex = "(?s:.*)"


register_url_convertor("names", _AnyPath())

route = Routes(other_methods=405)


def _targets(methods: str) -> list[str]:
    return [f"{methods} {prefix}{below}" for prefix in PREFIXES for below in ("", "/{path:names}")]


@route(*_targets("GET|DELETE"), authority=FILES)
@route(*_targets("PUT|POST"), authority=FILES, body=Body(limit=Bound.STREAMED))
async def webhdfs(request: Request) -> Response:
    try:
        return await _handle(await parse_request(request))
    except PaiError as error:
        if error.code == NOT_A_FOLDER and request.method in ("GET", "HEAD"):
            # A path below a file cannot exist: for read operations it is just not found.
            error = no_file(path_of_not_a_folder(error))
        return remote_exception(error)
    except ClientDisconnect:
        raise
    except asyncio.CancelledError:
        # The server is shutting down and does not wait longer for slow clients.
        return remote_exception(Unavailable("The cluster is stopping: try again in a moment."))
    except Exception as error:
        # The path alone: tickets and tokens are in the query.
        log.exception("%s %s failed", request.method, request.url.path)
        return remote_exception(PaiError(f"Internal error of the cluster: {type(error).__name__}."))


async def _handle(call: WebHdfsRequest) -> Response:
    if not call.storage.has_provisioned(call.user):
        await call.files.run(call.storage.provision, call.user)
    method = "GET" if call.request.method == "HEAD" else call.request.method
    operation = _ASYNC.get((method, call.operation))
    if operation is not None:
        return await operation(call)
    blocking = _BLOCKING.get((method, call.operation))
    if blocking is None and (call.operation in _KNOWN or _UNSUPPORTED.fullmatch(call.operation)):
        raise UnsupportedOperation(f"{call.operation} by {method} is not supported")
    if blocking is None:
        raise InvalidParameters(
            f'Invalid value for webhdfs parameter "op": No enum constant {method}.{call.operation}'
        )
    value = await call.files.run(blocking, call)
    return Response(None, 200) if value is None else json_response(value)
