"""``hdfs dfs`` for tasks whose image has none: the commands that scripts use, over WebHDFS."""

import os
import posixpath
import sys
import time

from pairuntime.task.hdfs_paths import HdfsCommandError, UsageError, expand, mode_letters, resolve
from pairuntime.task.webhdfs import WebHdfsError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

    from pairuntime.task.webhdfs import Storage

# In `hdfs_reports`.
_REPORTS = ("du", "count", "stat", "tail", "getmerge")


def main(argv: "list[str]") -> "int":
    if len(argv) < 2 or argv[0] not in ("dfs", "fs") or argv[1].lstrip("-") not in COMMANDS:
        names = " ".join("-" + name for name in COMMANDS)
        sys.stderr.write("usage: hdfs dfs COMMAND [options] PATH...\nCommands: %s.\n" % names)
        return 255
    name = argv[1].lstrip("-")
    flags = [argument for argument in argv[2:] if argument.startswith("-") and argument != "-"]
    paths = [argument for argument in argv[2:] if not argument.startswith("-") or argument == "-"]
    try:
        if name in _REPORTS:
            from pairuntime.task import hdfs_reports

            return hdfs_reports.COMMANDS[name](argv[2:])
        return _COMMANDS[name](flags, paths)
    except UsageError as e:
        sys.stderr.write("-%s: %s\n" % (name, e))
        return 255
    except KeyboardInterrupt:
        return 130
    except (HdfsCommandError, WebHdfsError) as e:
        sys.stderr.write("%s: %s\n" % (name, e))
    except OSError as e:
        sys.stderr.write("%s: %s%s\n" % (name, (e.filename or "") and "%s: " % e.filename, e.strerror or e))
    return 1


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
    entries = list(storage.entries(folder))
    if entries and not deep:  # as Hadoop prints it; scripts skip this line
        print("Found %d items" % len(entries))
    for entry in entries:
        where = posixpath.join(folder, entry["pathSuffix"])
        _show(where, entry)
        if deep and entry["type"] == "DIRECTORY":
            _list(storage, where, deep)


def _show(where: "str", status: "dict[str, Any]") -> "None":
    folder = status["type"] == "DIRECTORY"
    mode = int(str(status.get("permission", "755")), 8)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(int(status.get("modificationTime", 0)) / 1000))
    fields = (
        ("d" if folder else "-") + mode_letters(mode),
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
            storage.get(where, sys.stdout.buffer, is_file=False)
    sys.stdout.buffer.flush()
    return 0


def _rm(flags: "list[str]", paths: "list[str]") -> "int":
    recursive = any(flag in ("-r", "-R", "-rf", "-fr") for flag in flags)
    for path in _require_paths(paths):
        try:
            matches = expand(path)
        except HdfsCommandError:
            if "-f" in flags or "-rf" in flags or "-fr" in flags:
                continue
            raise
        for storage, where, status in matches:
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
    storage, where, folder = _resolve_target(target, len(sources))
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
    matches = [match for source in sources for match in expand(source)]
    _check_target(target, len(matches), os.path.exists(target), os.path.isdir(target))
    for storage, where, status in matches:
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
    matches = [match for source in sources for match in expand(source)]
    storage, where, _ = _resolve_target(target, len(matches))
    for _, name, _ in matches:
        if not storage.rename(name, where):
            raise HdfsCommandError("`%s' cannot be moved to `%s'" % (name, where))
    return 0


def _resolve_target(target: "str", sources: "int") -> "tuple[Storage, str, bool]":
    """Storage and path of the target of so many sources, and whether it is a folder that exists."""
    storage, where = resolve(target)
    status = storage.status(where)
    folder = status is not None and status["type"] == "DIRECTORY"
    _check_target(target, sources, status is not None, folder)
    return storage, where.rstrip("/") or "/", folder


def _check_target(target: "str", sources: "int", exists: "bool", folder: "bool") -> "None":
    """Several sources, or a slash at the end, need a folder that exists, as in Hadoop."""
    if folder or (sources < 2 and not target.endswith("/")):
        return
    reason = "Is not a directory" if exists else "No such file or directory"
    raise HdfsCommandError("`%s': %s" % (target, reason))


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

COMMANDS = tuple(sorted(list(_COMMANDS) + list(_REPORTS)))
