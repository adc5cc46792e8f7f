"""``hdfs dfs`` for tasks whose image has none: the commands that scripts use, over WebHDFS."""

import fnmatch
import os
import posixpath
import sys
import time
from urllib.parse import quote, urlsplit

from pairuntime.task.webhdfs import Storage, WebHdfsError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

# WebHDFS port of a NameNode, for an address with its RPC port or without one.
_WEB_PORT = 50070
_RPC_PORTS = (None, 8020, 9000)
_MAGIC = "*?["
# In ``pai://here/0/path``: the cluster of this task, and its own storage.
_OWN_CLUSTER = "here"
_DEFAULT_STORAGE = "0"


class HdfsCommandError(Exception):
    """A command that failed, with its message for the user."""


def main(argv: "list[str]") -> "int":
    if len(argv) < 2 or argv[0] not in ("dfs", "fs") or argv[1].lstrip("-") not in _COMMANDS:
        names = " ".join("-" + name for name in sorted(_COMMANDS))
        sys.stderr.write("usage: hdfs dfs COMMAND [options] PATH...\nCommands: %s.\n" % names)
        return 255
    name = argv[1].lstrip("-")
    flags = [argument for argument in argv[2:] if argument.startswith("-") and argument != "-"]
    paths = [argument for argument in argv[2:] if not argument.startswith("-") or argument == "-"]
    try:
        return _COMMANDS[name](flags, paths)
    except (HdfsCommandError, WebHdfsError) as e:
        sys.stderr.write("%s: %s\n" % (name, e))
    except OSError as e:
        sys.stderr.write("%s: %s%s\n" % (name, (e.filename or "") and "%s: " % e.filename, e.strerror or e))
    return 1


# -- path resolution ---------------------------------------------------------------------------------

_storages = {}  # type: dict[str, Storage]


def resolve(path: "str") -> "tuple[Storage, str]":
    """Storage and path that an address names; without a host, the cluster's own storage."""
    rest = os.environ.get("PAI_REST_SERVER_URI", "").rstrip("/")
    own = urlsplit(rest).netloc
    default = urlsplit(os.environ.get("PAI_DEFAULT_FS_URI", "")).netloc
    parts = urlsplit(path)
    user = os.environ.get("PAI_USER_NAME", "")
    if parts.scheme == "pai" and parts.netloc == _OWN_CLUSTER and rest:
        return _own_storage(rest, user), _own_path(rest, user, path)
    if parts.scheme == "pai" and rest and parts.netloc not in (own, default) and not parts.port:
        raise HdfsCommandError(
            "`%s': a task knows only its own cluster, which is called %s: pai://%s/STORAGE/path"
            % (path, _OWN_CLUSTER, _OWN_CLUSTER)
        )
    if parts.scheme in ("hdfs", "webhdfs", "pai") and parts.netloc and parts.netloc not in (own, default):
        port = parts.port if parts.port not in _RPC_PORTS or parts.scheme == "webhdfs" else _WEB_PORT
        address = "http://%s:%d/webhdfs/v1" % (parts.hostname, port or _WEB_PORT)
        return _storages.setdefault(address, Storage(address, user=user)), parts.path or "/"
    if not rest:
        raise HdfsCommandError("There is no cluster storage: PAI_REST_SERVER_URI is not set.")
    where = parts.path if parts.scheme else path
    if not where.startswith("/"):
        where = posixpath.join("/user", user, where)
    return _own_storage(rest, user), where


def _own_storage(rest: "str", user: "str") -> "Storage":
    address = rest + "/webhdfs/v1"
    return _storages.setdefault(address, Storage(address, os.environ.get("PAI_USER_TOKEN", ""), user))


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
    """Folder of a job's files; the same rule as in ``openpaisdk.protocol.storage_layout``."""
    name = job if "~" in job else "%s~%s" % (user, job)
    owner, _, bare = name.partition("~")
    config = server.get_json("/api/v2/jobs/%s/config" % quote(name, safe=""))
    folder = (config.get("parameters") or {}).get("work_directory")
    if not isinstance(folder, str) or not folder.strip("/"):
        return "/user/%s/jobs/%s" % (owner, bare)
    return posixpath.join("/user", owner, folder.rstrip("/").replace("${PAI_USER_NAME}", owner))


def expand(path: "str") -> "list[tuple[Storage, str, dict[str, Any]]]":
    """The path itself, or what its wildcards match. No match is an error."""
    storage, where = resolve(path)
    if not any(letter in where for letter in _MAGIC):
        status = storage.status(where)
        if status is None:
            raise HdfsCommandError("`%s': No such file or directory" % path)
        return [(storage, where, status)]
    found = [("/", {"type": "DIRECTORY"})]  # type: list[tuple[str, dict[str, Any]]]
    for part in [part for part in where.split("/") if part]:
        found = [
            (posixpath.join(folder, entry["pathSuffix"]), entry)
            for folder, status in found
            if status["type"] == "DIRECTORY"
            for entry in _matching(storage, folder, part)
        ]
    if not found:
        raise HdfsCommandError("`%s': No such file or directory" % path)
    return [(storage, name, status) for name, status in found]


def _matching(storage: "Storage", folder: "str", pattern: "str") -> "list[dict[str, Any]]":
    if not any(letter in pattern for letter in _MAGIC):
        status = storage.status(posixpath.join(folder, pattern))
        return [] if status is None else [dict(status, pathSuffix=pattern)]
    entries = storage.entries(folder)
    return [entry for entry in entries if fnmatch.fnmatchcase(entry["pathSuffix"], pattern)]


# -- commands ----------------------------------------------------------------------------------------


def _ls(flags: "list[str]", paths: "list[str]") -> "int":
    for path in paths or [""]:
        for storage, where, status in expand(path or "."):
            if status["type"] != "DIRECTORY" or "-d" in flags:
                _show(where, status)
                continue
            _list(storage, where, "-R" in flags)
    return 0


def _list(storage: "Storage", folder: "str", deep: "bool") -> "None":
    found = list(storage.entries(folder))
    if found and not deep:  # as Hadoop prints it; scripts skip this line
        print("Found %d items" % len(found))
    for entry in found:
        where = posixpath.join(folder, entry["pathSuffix"])
        _show(where, entry)
        if deep and entry["type"] == "DIRECTORY":
            _list(storage, where, deep)


def _show(where: "str", status: "dict[str, Any]") -> "None":
    folder = status["type"] == "DIRECTORY"
    mode = int(str(status.get("permission", "755")), 8)
    letters = "".join(
        letter if mode >> shift & bit else "-"
        for shift in (6, 3, 0)
        for letter, bit in (("r", 4), ("w", 2), ("x", 1))
    )
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(int(status.get("modificationTime", 0)) / 1000))
    fields = (
        ("d" if folder else "-") + letters,
        "-" if folder else str(status.get("replication", 1)),
        status.get("owner", ""),
        status.get("group", ""),
        int(status.get("length", 0)),
        when,
        where,
    )
    print("%s %3s %-8s %-8s %10d %s %s" % fields)


def _mkdir(flags: "list[str]", paths: "list[str]") -> "int":
    for path in _require_paths(paths):
        storage, where = resolve(path)
        if "-p" not in flags:
            if storage.status(where) is not None:
                raise HdfsCommandError("`%s': File exists" % path)
            if storage.status(posixpath.dirname(where) or "/") is None:
                raise HdfsCommandError("`%s': No such file or directory" % posixpath.dirname(where))
        storage.make_folder(where)
    return 0


def _cat(flags: "list[str]", paths: "list[str]") -> "int":
    sys.stdout.flush()
    for path in _require_paths(paths):
        for storage, where, status in expand(path):
            if status["type"] == "DIRECTORY":
                raise HdfsCommandError("`%s': Is a directory" % where)
            storage.get(where, sys.stdout.buffer)
    sys.stdout.buffer.flush()
    return 0


def _rm(flags: "list[str]", paths: "list[str]") -> "int":
    recursive = any(flag in ("-r", "-R", "-rf", "-fr") for flag in flags)
    for path in _require_paths(paths):
        try:
            found = expand(path)
        except HdfsCommandError:
            if "-f" in flags or "-rf" in flags or "-fr" in flags:
                continue
            raise
        for storage, where, status in found:
            if status["type"] == "DIRECTORY" and not recursive:
                raise HdfsCommandError("`%s': Is a directory" % where)
            storage.delete(where, recursive)
            print("Deleted %s" % where)
    return 0


def _test(flags: "list[str]", paths: "list[str]") -> "int":
    storage, where = resolve(_require_paths(paths)[0])
    status = storage.status(where)
    if status is None:
        return 1
    folder = status["type"] == "DIRECTORY"
    size = int(status.get("length", 0))
    tests = {
        "-e": True,
        "-d": folder,
        "-f": not folder,
        "-z": not folder and size == 0,
        "-s": folder or size > 0,
    }
    return 0 if all(tests.get(flag, False) for flag in flags) else 1


def _put(flags: "list[str]", paths: "list[str]") -> "int":
    sources, target = _sources_and_target(paths)
    storage, where = resolve(target)
    into = storage.status(where)
    folder = into is not None and into["type"] == "DIRECTORY"
    if len(sources) > 1 and not folder:
        raise HdfsCommandError("`%s': No such file or directory" % target)
    for source in sources:
        name = posixpath.join(where, os.path.basename(source.rstrip("/"))) if folder else where
        if "-f" not in flags and storage.status(name) is not None:
            raise HdfsCommandError("`%s': File exists" % name)
        _put_one(storage, source, name)
    return 0


def _put_one(storage: "Storage", source: "str", where: "str") -> "None":
    if not os.path.isdir(source):
        storage.put(source, where)
        return
    storage.make_folder(where)
    for name in sorted(os.listdir(source)):
        _put_one(storage, os.path.join(source, name), posixpath.join(where, name))


def _get(flags: "list[str]", paths: "list[str]") -> "int":
    sources, target = _sources_and_target(paths if len(paths) > 1 else paths + ["."])
    found = [one for source in sources for one in expand(source)]
    if len(found) > 1 and not os.path.isdir(target):
        raise HdfsCommandError("`%s': No such file or directory" % target)
    for storage, where, status in found:
        name = os.path.join(target, posixpath.basename(where)) if os.path.isdir(target) else target
        if "-f" not in flags and os.path.exists(name):
            raise HdfsCommandError("`%s': File exists" % name)
        get_one(storage, where, status, name)
    return 0


def get_one(storage: "Storage", where: "str", status: "dict[str, Any]", name: "str") -> "None":
    if status["type"] == "DIRECTORY":
        os.makedirs(name, exist_ok=True)
        for entry in storage.entries(where):
            suffix = entry["pathSuffix"]
            get_one(storage, posixpath.join(where, suffix), entry, os.path.join(name, suffix))
        return
    # Written under a temporary name first: a file under its own name is complete.
    partial = name + "._COPYING_"
    try:
        with open(partial, "wb") as f:
            storage.get(where, f)
        os.rename(partial, name)
    except BaseException:
        try:
            os.unlink(partial)
        except OSError:
            pass
        raise


def _mv(flags: "list[str]", paths: "list[str]") -> "int":
    sources, target = _sources_and_target(paths)
    storage, where = resolve(target)
    for source in sources:
        for _, name, _ in expand(source):
            if not storage.rename(name, where):
                raise HdfsCommandError("`%s' cannot be moved to `%s'" % (name, where))
    return 0


def _require_paths(paths: "list[str]") -> "list[str]":
    if not paths:
        raise HdfsCommandError("a path is missing")
    return paths


def _sources_and_target(paths: "list[str]") -> "tuple[list[str], str]":
    if len(paths) < 2:
        raise HdfsCommandError("a source and a target are needed")
    return paths[:-1], paths[-1]


_COMMANDS = {
    "ls": _ls,
    "mkdir": _mkdir,
    "cat": _cat,
    "text": _cat,
    "rm": _rm,
    "test": _test,
    "put": _put,
    "copyFromLocal": _put,
    "get": _get,
    "copyToLocal": _get,
    "mv": _mv,
}
