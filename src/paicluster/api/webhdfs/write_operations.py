"""Write operations. Each blocks on the disk and returns the JSON value of the response, or None."""

from __future__ import annotations

from typing import Any

from paicluster.api.webhdfs.exceptions import JavaException
from paicluster.api.webhdfs.parameters import bad_value
from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.files.directories import FOLDER_MODE
from paiprotocol.errors import InvalidParameters

_RENAME_OPTIONS = ("OVERWRITE", "NONE")
_MAX_TIME_MS = 1 << 43


def make_dirs(call: WebHdfsRequest) -> Any:
    mode = call.parameters.mode()
    call.storage.make_dirs(call.path, call.user, FOLDER_MODE if mode is None else mode)
    return {"boolean": True}


def rename(call: WebHdfsRequest) -> Any:
    target = call.parameters.text("destination")
    if not target:
        raise InvalidParameters('Required param "destination" for op: RENAME is null or empty')
    options = [option for option in call.parameters.text("renameoptions").upper().split(",") if option]
    for option in options:
        if option not in _RENAME_OPTIONS:
            raise bad_value("renameoptions", option, f"is none of {', '.join(_RENAME_OPTIONS)}")
    if not options:
        return {"boolean": call.storage.rename(call.path, target, call.user)}
    call.storage.move(call.path, target, call.user, overwrite="OVERWRITE" in options)
    return None


def delete(call: WebHdfsRequest) -> Any:
    recursive = call.parameters.flag("recursive")
    return {"boolean": call.storage.delete(call.path, call.user, recursive=recursive)}


def concat(call: WebHdfsRequest) -> Any:
    sources = [source for source in call.parameters.text("sources").split(",") if source]
    if not sources:
        raise InvalidParameters('Required param "sources" for op: CONCAT is null or empty')
    call.storage.concat(call.path, sources, call.user)
    return None


def truncate(call: WebHdfsRequest) -> Any:
    length = call.parameters.number("newlength")
    if length is None:
        raise InvalidParameters('Required param "newlength" for op: TRUNCATE is null or empty')
    call.storage.truncate(call.path, call.user, length)
    return {"boolean": True}


def set_permission(call: WebHdfsRequest) -> Any:
    mode = call.parameters.mode()
    call.storage.set_mode(call.path, call.user, FOLDER_MODE if mode is None else mode)
    return None


def set_owner(call: WebHdfsRequest) -> Any:
    owner, group = call.parameters.text("owner"), call.parameters.text("group")
    if not owner and not group:
        raise InvalidParameters("Both owner and group are empty.")
    call.storage.set_owner(call.path, call.user, owner=owner, group=group)
    return None


def set_times(call: WebHdfsRequest) -> Any:
    modified = call.parameters.number("modificationtime", -1, minimum=-1)
    accessed = call.parameters.number("accesstime", -1, minimum=-1)
    if max(modified or 0, accessed or 0) > _MAX_TIME_MS:
        raise InvalidParameters("A time is out of range.")
    call.storage.set_times(
        call.path,
        call.user,
        modified_ms=None if modified == -1 else modified,
        accessed_ms=None if accessed == -1 else accessed,
    )
    return None


def set_replication(call: WebHdfsRequest) -> Any:
    """Has no effect: there is one copy of a file. Any user who may see the file may call it."""
    if (call.parameters.number("replication", 1) or 0) < 1:
        raise JavaException("java.io.IOException", 403, "The replication of a file is at least 1.")
    return {"boolean": not call.storage.status(call.path, call.user).is_folder}
