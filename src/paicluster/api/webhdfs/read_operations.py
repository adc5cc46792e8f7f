"""Read operations. All but GETFILECHECKSUM block on the disk and return the JSON value of the response."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response

from paicluster.api.transfer.file_response import wait_for_disconnect
from paicluster.api.webhdfs import hdfs_types, serializers
from paicluster.api.webhdfs.open_operation import check_readable
from paicluster.api.webhdfs.parameters import bad_value
from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.api.wire.responses import json_response
from paicluster.files import Access, Entry
from paicluster.files.ownership import HOMES
from paicluster.files.paths import split_path
from paicluster.files.reads import Summary
from paiprotocol.errors import InvalidParameters

_PAGE_SIZE = 1000
# A response in one piece takes a kilobyte of memory for each entry while it is made.
_MAX_LISTED = 50_000


def file_status(call: WebHdfsRequest) -> Any:
    entry = call.storage.status(call.path, call.user)
    children = call.storage.count_children(call.path, call.user) if entry.is_folder else None
    return serializers.file_status(entry, children)


def list_status(call: WebHdfsRequest) -> Any:
    listing = call.storage.list_batch(call.path, call.user, after="", limit=_MAX_LISTED)
    if listing.remaining:
        raise InvalidParameters(
            f"{call.path} has more than {_MAX_LISTED} entries: list it in pages, with LISTSTATUS_BATCH."
        )
    return serializers.file_statuses(listing)


def list_status_batch(call: WebHdfsRequest) -> Any:
    after = call.parameters.text("startafter")
    return serializers.directory_listing(
        call.storage.list_batch(call.path, call.user, after=after, limit=_PAGE_SIZE)
    )


def content_summary(call: WebHdfsRequest) -> Any:
    summary = call.storage.summary(call.path, call.user)
    return serializers.content_summary(summary, _space_quota(call, summary))


def quota_usage(call: WebHdfsRequest) -> Any:
    summary = call.storage.summary(call.path, call.user)
    return serializers.quota_usage(summary, _space_quota(call, summary))


def _space_quota(call: WebHdfsRequest, summary: Summary) -> serializers.SpaceQuota:
    """The quota of a user is that of the user's home folder, and so is what counts against it: all files of
    the user, unfinished uploads and source archives."""
    names = split_path(call.path)
    if len(names) == 2 and names[0] == HOMES:
        usage = call.storage.usage
        for owner, limit in usage.limits_of(names[1]):
            if owner == f"user {names[1]}":
                return serializers.SpaceQuota(usage.used_by([names[1]]), limit)
    return serializers.SpaceQuota(summary.size)


def home_directory(call: WebHdfsRequest) -> Any:
    return hdfs_types.Path(call.storage.home_of(call.user))


def trash_root(call: WebHdfsRequest) -> Any:
    return hdfs_types.Path(call.storage.home_of(call.user) + "/.Trash")


def server_defaults(call: WebHdfsRequest) -> Any:
    return serializers.server_defaults()


def no_attributes(call: WebHdfsRequest) -> Any:
    """Clients cannot set extended attributes here."""
    call.storage.status(call.path, call.user)
    return hdfs_types.ExtendedAttributes()


def no_attribute_names(call: WebHdfsRequest) -> Any:
    call.storage.status(call.path, call.user)
    return hdfs_types.ExtendedAttributeNames()


def block_locations(call: WebHdfsRequest) -> Any:
    entry, offset, length = _blocks(call)
    url = urlsplit(call.files.external_url)
    return serializers.block_locations(entry, offset, length, url.hostname or "", url.netloc)


def located_blocks(call: WebHdfsRequest) -> Any:
    entry, offset, length = _blocks(call)
    url = urlsplit(call.files.external_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    return serializers.located_blocks(entry, offset, length, url.hostname or "", port)


def _blocks(call: WebHdfsRequest) -> tuple[Entry, int, int]:
    entry = call.storage.status(call.path, call.user)
    offset = call.parameters.number("offset", 0) or 0
    return entry, offset, call.parameters.number("length", entry.size) or 0


def check_access(call: WebHdfsRequest) -> Any:
    action = call.parameters.text("fsaction")
    letters = dict(zip("rwx", (Access.READ, Access.WRITE, Access.EXECUTE), strict=True))
    if len(action) != 3 or any(char not in (letter, "-") for letter, char in zip("rwx", action, strict=True)):
        raise bad_value("fsaction", action, "is not of the form [r-][w-][x-]")
    access = Access.NONE
    for letter in action.replace("-", ""):
        access |= letters[letter]
    call.storage.check_access(call.path, call.user, access)
    return None


async def file_checksum(call: WebHdfsRequest) -> Response:
    """GETFILECHECKSUM: redirects, as HDFS does; then reads the whole file in a checksum thread, while the
    client is connected."""
    # Checked first: a request that will be rejected need not wait for other checksums.
    await call.files.run(check_readable, call)
    if not call.is_second_step:
        return call.redirect()
    stop = threading.Event()
    disconnect = asyncio.ensure_future(wait_for_disconnect(call.request.receive))
    disconnect.add_done_callback(lambda _: stop.set())
    try:
        checksum = await asyncio.get_running_loop().run_in_executor(
            call.files.checksum_threads, call.storage.checksum, call.path, call.user, stop.is_set
        )
    finally:
        # Also at shutdown: the running thread would delay it.
        disconnect.cancel()
        stop.set()
    return json_response(serializers.file_checksum(*checksum))
