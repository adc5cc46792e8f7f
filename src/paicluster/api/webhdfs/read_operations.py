"""Operations that look: each blocks on the disk, and gives what is to be answered as JSON."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from paicluster.api.webhdfs import serializers
from paicluster.api.webhdfs.parameters import bad_value
from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.files import Access, Entry

_BATCH = 1000


def file_status(call: WebHdfsRequest) -> Any:
    entry = call.storage.status(call.path, call.who)
    children = call.storage.count_children(call.path, call.who) if entry.folder else None
    return {"FileStatus": serializers.file_status(entry, children)}


def list_status(call: WebHdfsRequest) -> Any:
    return serializers.file_statuses(call.storage.list(call.path, call.who))


def list_status_batch(call: WebHdfsRequest) -> Any:
    after = call.parameters.text("startafter")
    return serializers.directory_listing(
        call.storage.list_batch(call.path, call.who, after=after, limit=_BATCH)
    )


def content_summary(call: WebHdfsRequest) -> Any:
    return serializers.content_summary(call.storage.summary(call.path, call.who))


def quota_usage(call: WebHdfsRequest) -> Any:
    return serializers.quota_usage(call.storage.summary(call.path, call.who))


def home_directory(call: WebHdfsRequest) -> Any:
    return {"Path": call.storage.home_of(call.who)}


def trash_root(call: WebHdfsRequest) -> Any:
    return {"Path": call.storage.home_of(call.who) + "/.Trash"}


def server_defaults(call: WebHdfsRequest) -> Any:
    return serializers.server_defaults()


def acl_status(call: WebHdfsRequest) -> Any:
    return serializers.acl_status(call.storage.status(call.path, call.who))


def no_attributes(call: WebHdfsRequest) -> Any:
    """Files here have no attributes of their own that clients could set."""
    call.storage.status(call.path, call.who)
    return {"XAttrs": []}


def no_attribute_names(call: WebHdfsRequest) -> Any:
    call.storage.status(call.path, call.who)
    return {"XAttrNames": "[]"}


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
    entry = call.storage.status(call.path, call.who)
    offset = call.parameters.number("offset", 0) or 0
    return entry, offset, call.parameters.number("length", entry.size) or 0


def check_access(call: WebHdfsRequest) -> Any:
    wanted = call.parameters.text("fsaction")
    letters = dict(zip("rwx", (Access.READ, Access.WRITE, Access.EXECUTE), strict=True))
    if len(wanted) != 3 or any(
        given not in (letter, "-") for letter, given in zip("rwx", wanted, strict=True)
    ):
        raise bad_value("fsaction", wanted, "is not of the form [r-][w-][x-]")
    need = Access.NOTHING
    for letter in wanted.replace("-", ""):
        need |= letters[letter]
    call.storage.check(call.path, call.who, need)
    return None
