"""Paths of ``hdfs dfs``: the storage that an address names, what wildcards match, permissions as letters."""

import fnmatch
import os
import posixpath
import sys
from urllib.parse import quote, urlsplit

from pairuntime.task.webhdfs import Storage
from pairuntime.transport.webhdfs import WEB_PORT

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

# Of addresses that name no WebHDFS port, but the RPC port of a NameNode or none.
_RPC_PORTS = (None, 8020, 9000)
_MAGIC = "*?["
# In ``pai://here/0/path``: the cluster of this task, and its own storage.
_OWN_CLUSTER = "here"
_DEFAULT_STORAGE = "0"
# Another host is reported as unreachable after this time; the cluster's own server may be restarting.
_UNREACHABLE_AFTER_S = 15.0


class HdfsCommandError(Exception):
    """A command that failed, with its message for the user."""


class UsageError(HdfsCommandError):
    """A command with wrong arguments."""


_storages = {}  # type: dict[str, Storage]


def resolve(path: "str") -> "tuple[Storage, str]":
    """Storage and path that an address names; without a host, the cluster's own storage."""
    rest = os.environ.get("PAI_REST_SERVER_URI", "").rstrip("/")
    own = urlsplit(rest).netloc
    default = urlsplit(os.environ.get("PAI_DEFAULT_FS_URI", "")).netloc
    try:
        parts = urlsplit(path)
        port = parts.port
    except ValueError:
        raise HdfsCommandError("`%s' is not an address: hdfs://HOST:PORT/PATH" % path)
    user = os.environ.get("PAI_USER_NAME", "")
    if parts.scheme == "pai" and parts.netloc == _OWN_CLUSTER and rest:
        return _own_storage(rest, user), _own_path(rest, user, path)
    if parts.scheme == "pai" and rest and parts.netloc not in (own, default) and not port:
        raise HdfsCommandError(
            "`%s': a task knows only its own cluster, which is called %s: pai://%s/STORAGE/path"
            % (path, _OWN_CLUSTER, _OWN_CLUSTER)
        )
    if parts.scheme in ("hdfs", "webhdfs", "pai") and parts.netloc and parts.netloc not in (own, default):
        port = port if port not in _RPC_PORTS or parts.scheme == "webhdfs" else WEB_PORT
        address = "http://%s:%d/webhdfs/v1" % (parts.hostname, port or WEB_PORT)
        if address not in _storages:
            _storages[address] = Storage(
                address, user=user, unreachable_after_s=_UNREACHABLE_AFTER_S, notify=_print_notice
            )
        return _storages[address], parts.path or "/"
    if not rest:
        raise HdfsCommandError("There is no cluster storage: PAI_REST_SERVER_URI is not set.")
    where = parts.path if parts.scheme else path
    if not where.startswith("/"):
        where = posixpath.join("/user", user, where)
    return _own_storage(rest, user), where


def _own_storage(rest: "str", user: "str") -> "Storage":
    address = rest + "/webhdfs/v1"
    token = os.environ.get("PAI_USER_TOKEN", "")
    return _storages.setdefault(address, Storage(address, token, user, notify=_print_notice))


def _print_notice(text: "str") -> "None":
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _own_path(rest: "str", user: "str", address: "str") -> "str":
    """Path of ``pai://here/STORAGE/path`` or ``pai://here/jobs/JOB/path`` on the cluster's own storage."""
    where = address[len("pai://") + len(_OWN_CLUSTER) :].strip("/").replace("${PAI_USER_NAME}", user)
    storage, _, path = where.partition("/")
    server = Storage(rest, os.environ.get("PAI_USER_TOKEN", ""), user)
    if storage == "jobs":
        job, _, path = path.partition("/")
        if not job:
            raise HdfsCommandError("`%s': name a job: pai://%s/jobs/JOB/" % (address, _OWN_CLUSTER))
        return posixpath.join(_job_folder(server, user, job), path).rstrip("/") or "/"
    if storage and storage != _DEFAULT_STORAGE:
        own = server.get_json("/api/v2/transfer").get("url")
        servers = server.get_json("/api/v2/storage/server?names=" + quote(storage, safe=""))
        if own not in [one.get("data", {}).get("webhdfs") for one in servers]:
            raise HdfsCommandError(
                "`%s': %s is no storage that the cluster serves itself" % (address, storage)
            )
    return "/" + path


def _job_folder(server: "Storage", user: "str", job: "str") -> "str":
    name = job if "~" in job else "%s~%s" % (user, job)
    owner, _, bare = name.partition("~")
    config = server.get_json("/api/v2/jobs/%s/config" % quote(name, safe=""))
    return job_folder(config, owner, bare)


def job_folder(config: "dict[str, Any]", owner: "str", name: "str") -> "str":
    """Folder of a job's files; the same rule as in ``paiprotocol.jobs.storage_layout``."""
    folder = (config.get("parameters") or {}).get("work_directory")
    if not isinstance(folder, str) or not folder.strip("/"):
        return "/user/%s/jobs/%s" % (owner, name)
    return posixpath.join("/user", owner, folder.rstrip("/").replace("${PAI_USER_NAME}", owner))


def expand(path: "str") -> "list[tuple[Storage, str, dict[str, Any]]]":
    """The path itself, or what its wildcards match. No match is an error."""
    storage, where = resolve(path)
    if not any(letter in where for letter in _MAGIC):
        status = storage.status(where)
        if status is None:
            raise HdfsCommandError("`%s': No such file or directory" % path)
        return [(storage, where, status)]
    matches = [("/", {"type": "DIRECTORY"})]  # type: list[tuple[str, dict[str, Any]]]
    for part in [part for part in where.split("/") if part]:
        matches = [
            (posixpath.join(folder, entry["pathSuffix"]), entry)
            for folder, status in matches
            if status["type"] == "DIRECTORY"
            for entry in _matching(storage, folder, part)
        ]
    if not matches:
        raise HdfsCommandError("`%s': No such file or directory" % path)
    return [(storage, name, status) for name, status in matches]


def _matching(storage: "Storage", folder: "str", pattern: "str") -> "list[dict[str, Any]]":
    if not any(letter in pattern for letter in _MAGIC):
        status = storage.status(posixpath.join(folder, pattern))
        return [] if status is None else [dict(status, pathSuffix=pattern)]
    entries = storage.entries(folder)
    return [entry for entry in entries if fnmatch.fnmatchcase(entry["pathSuffix"], pattern)]


def mode_letters(mode: "int") -> "str":
    """Permissions as letters: ``rwxr-xr-x``; ``t`` at the end of a sticky folder."""
    letters = "".join(
        letter if mode >> shift & bit else "-"
        for shift in (6, 3, 0)
        for letter, bit in (("r", 4), ("w", 2), ("x", 1))
    )
    return letters[:-1] + ("t" if mode & 1 else "T") if mode & 0o1000 else letters
