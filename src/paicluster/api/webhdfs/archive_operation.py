"""GETARCHIVE, our addition: a folder as one tar file, for browsers, which save files and not folders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from paicluster.api.transfer.transfer_rights import TransferRights
from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.files.transfer.folder_archive import archive_blocks, check_folder

_TAR = "application/x-tar"
# The archive of the root has no folder's name.
_ROOT_NAME = "files"


async def get_archive(call: WebHdfsRequest) -> Response:
    """Redirect to the URL of the archive, or stream it. Its length is not known in advance."""
    await call.files.run(check_folder, call.storage, call.path, call.user)
    if not call.is_second_step:
        return call.redirect()
    name = call.path.rstrip("/").rpartition("/")[2] or _ROOT_NAME
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name + '.tar', safe='')}"}
    blocks = TransferRights.of(call.request).while_kept(_blocks(call, name))
    return StreamingResponse(blocks, headers=headers, media_type=_TAR)


async def _blocks(call: WebHdfsRequest, name: str) -> AsyncIterator[bytes]:
    blocks = archive_blocks(call.storage, call.path, call.user, name)
    # An error breaks the connection off: a client takes no part of an archive for the whole.
    while block := await call.files.run(next, blocks, b""):
        yield block
