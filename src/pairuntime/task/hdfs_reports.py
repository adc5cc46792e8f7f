"""``hdfs dfs -du``, ``-count``, ``-stat``, ``-tail`` and ``-getmerge``, with the output of Hadoop's own."""

import posixpath
import sys
import time
from urllib.parse import urlsplit

from pairuntime.task import hdfs_paths
from pairuntime.task.webhdfs import WebHdfsError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any, Callable

    from pairuntime.task.webhdfs import Storage

    Found = tuple[Storage, str, dict[str, Any]]

_TAIL_BYTES = 1024
_FOLLOW_INTERVAL_MS = 5000
_CHUNK_BYTES = 1 << 20
_UNITS = "KMGTPE"
_SUMMARY = "%12s %12s %18s "
_QUOTAS = "%12s %15s %15s %15s "


class _Arguments:
    """Paths and options of a command."""

    def __init__(self, command: "str", argv: "list[str]", options: "tuple[str, ...]", least: "int") -> "None":
        self.options = set()  # type: set[str]
        self.paths = []  # type: list[str]
        for at, word in enumerate(argv):
            if word == "-" or not word.startswith("-"):
                self.paths = argv[at:]
                break
            if word[1:] not in options:
                raise hdfs_paths.UsageError("Illegal option %s" % word)
            self.options.add(word[1:])
        if len(self.paths) < least:
            raise hdfs_paths.UsageError(
                "Not enough arguments: expected %d but got %d" % (least, len(self.paths))
            )
        self._command = command
        self.status = 0

    def each(self, paths: "list[str]") -> "list[tuple[str, Found]]":
        """What each path stands for, with the path; a missing one is reported, and the rest goes on."""
        matches = []  # type: list[tuple[str, Found]]
        for path in paths:
            try:
                matches += [(path, match) for match in hdfs_paths.expand(path)]
            except (hdfs_paths.HdfsCommandError, WebHdfsError) as e:
                self.report(e)
                if getattr(e, "is_unreachable", False):
                    break
        return matches

    def report(self, error: "Exception | str") -> "None":
        sys.stdout.flush()
        sys.stderr.write("%s: %s\n" % (self._command, error))
        self.status = 1


def du(argv: "list[str]") -> "int":
    arguments = _Arguments("du", argv, ("s", "h", "v", "x"), 0)
    rows = []  # type: list[tuple[str, str, str]]
    size = _human if "h" in arguments.options else str
    if "v" in arguments.options:
        rows.append(("SIZE", "DISK_SPACE_CONSUMED_WITH_ALL_REPLICAS", "FULL_PATH_NAME"))
    head = len(rows)
    for path, (storage, where, status) in arguments.each(arguments.paths or ["."]):
        entries = [(where, status)]
        if status["type"] == "DIRECTORY" and "s" not in arguments.options:
            entries = [(posixpath.join(where, each["pathSuffix"]), each) for each in storage.entries(where)]
        for name, each in entries:
            length, space = _size(storage, name, each)
            rows.append((size(length), size(space), _shown(path, name)))
    if len(rows) > head:
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        for row in rows:
            print("%s  %s  %s" % (row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2]))
    return arguments.status


def _size(storage: "Storage", where: "str", status: "dict[str, Any]") -> "tuple[int, int]":
    """Bytes of a file, or of all in a folder; once, and with all replicas."""
    if status["type"] != "DIRECTORY":
        length = int(status.get("length", 0))
        return length, length * int(status.get("replication", 1) or 1)
    summary = storage.content_summary(where)
    return int(summary["length"]), int(summary.get("spaceConsumed", summary["length"]))


def count(argv: "list[str]") -> "int":
    arguments = _Arguments("count", argv, ("q", "u", "h", "v", "x"), 1)
    size = _human if "h" in arguments.options else str
    only_quotas = "u" in arguments.options
    quotas = only_quotas or "q" in arguments.options
    if "v" in arguments.options:
        head = _QUOTAS % ("QUOTA", "REM_QUOTA", "SPACE_QUOTA", "REM_SPACE_QUOTA") if quotas else ""
        head += "" if only_quotas else _SUMMARY % ("DIR_COUNT", "FILE_COUNT", "CONTENT_SIZE")
        print(head + "PATHNAME")
    for path, (storage, where, _) in arguments.each(arguments.paths):
        summary = storage.content_summary(where)
        line = _quota_columns(summary, size) if quotas else ""
        if not only_quotas:
            line += _SUMMARY % tuple(
                size(int(summary[key])) for key in ("directoryCount", "fileCount", "length")
            )
        print(line + _shown(path, where))
    return arguments.status


def _quota_columns(summary: "dict[str, Any]", size: "Callable[[int], str]") -> "str":
    names = int(summary.get("directoryCount", 0)) + int(summary.get("fileCount", 0))
    columns = []  # type: list[str]
    for key, used in (("quota", names), ("spaceQuota", int(summary.get("spaceConsumed", 0)))):
        quota = int(summary.get(key, -1))
        columns += [size(quota), size(quota - used)] if quota > 0 else ["none", "inf"]
    return _QUOTAS % tuple(columns)


def stat(argv: "list[str]") -> "int":
    arguments = _Arguments("stat", argv, (), 1)
    paths = arguments.paths
    layout = "%y"
    if "%" in paths[0]:
        layout, paths = paths[0], paths[1:]
    if not paths:
        raise hdfs_paths.UsageError("Not enough arguments: expected 1 but got 0")
    for _, (_, where, status) in arguments.each(paths):
        print(_formatted(layout, where, status))
    return arguments.status


def _formatted(layout: "str", where: "str", status: "dict[str, Any]") -> "str":
    mode = int(str(status.get("permission", "755")), 8)
    folder = status["type"] == "DIRECTORY"
    changed, read = int(status.get("modificationTime", 0)), int(status.get("accessTime", 0))
    values = {
        "a": "%o" % mode,
        "A": hdfs_paths.mode_letters(mode),
        "b": str(int(status.get("length", 0))),
        "F": "directory" if folder else "symlink" if status["type"] == "SYMLINK" else "regular file",
        "g": str(status.get("group", "")),
        "n": posixpath.basename(where),
        "o": str(status.get("blockSize", 0)),
        "r": str(status.get("replication", 0)),
        "u": str(status.get("owner", "")),
        "x": _utc(read),
        "X": str(read),
        "y": _utc(changed),
        "Y": str(changed),
    }
    out, rest = "", layout
    while rest:
        before, percent, rest = rest.partition("%")
        out += before
        if percent:
            # As FsShell: any other letter stands for itself, and so does the sign at the end.
            out += values.get(rest[:1], rest[:1]) if rest else percent
            rest = rest[1:]
    return out


def _utc(time_ms: "int") -> "str":
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_ms / 1000))


def tail(argv: "list[str]") -> "int":
    interval_ms = _FOLLOW_INTERVAL_MS
    argv = list(argv)
    if "-s" in argv[:-1]:
        at = argv.index("-s")
        if not argv[at + 1].isdigit():
            raise hdfs_paths.UsageError("-s needs a number of milliseconds")
        interval_ms = int(argv[at + 1])
        del argv[at : at + 2]
    arguments = _Arguments("tail", argv, ("f",), 1)
    if len(arguments.paths) > 1:
        raise hdfs_paths.UsageError("Too many arguments: expected 1 but got %d" % len(arguments.paths))
    # As FsShell, without wildcards: it prints one file.
    storage, where = hdfs_paths.resolve(arguments.paths[0])
    status = storage.status(where)
    if status is None:
        raise hdfs_paths.HdfsCommandError("`%s': No such file or directory" % arguments.paths[0])
    if status["type"] == "DIRECTORY":
        raise hdfs_paths.HdfsCommandError("`%s': Is a directory" % arguments.paths[0])
    offset = max(0, int(status["length"]) - _TAIL_BYTES)
    sys.stdout.flush()
    while True:
        size = int((storage.status(where) or status)["length"])
        offset = _copy(storage, where, min(offset, size), size)
        if "f" not in arguments.options:
            return 0
        time.sleep(interval_ms / 1000)


def _copy(storage: "Storage", where: "str", offset: "int", size: "int") -> "int":
    """Print a file from an offset to its end; returns its end."""
    while offset < size:
        data = storage.read_range(where, offset, min(_CHUNK_BYTES, size - offset))
        if not data:
            break
        sys.stdout.buffer.write(data)
        offset += len(data)
    sys.stdout.buffer.flush()
    return offset


def getmerge(argv: "list[str]") -> "int":
    arguments = _Arguments("getmerge", argv, ("nl", "skip-empty-file"), 2)
    matches = [match for _, match in arguments.each(arguments.paths[:-1])]
    if arguments.status:
        return arguments.status
    files = []  # type: list[tuple[Storage, str, dict[str, Any]]]
    for storage, where, status in matches:
        if status["type"] != "DIRECTORY":
            files.append((storage, where, status))
            continue
        inside = [
            (storage, posixpath.join(where, each["pathSuffix"]), each) for each in storage.entries(where)
        ]
        files += [each for each in inside if each[2]["type"] != "DIRECTORY"]
    with open(arguments.paths[-1], "wb") as merged:
        for storage, where, status in files:
            if int(status.get("length", 0)) or "skip-empty-file" not in arguments.options:
                storage.get(where, merged)
                merged.write(b"\n" if "nl" in arguments.options else b"")
    return 0


def _shown(argument: "str", where: "str") -> "str":
    """A path as FsShell shows it: in the form in which it was given."""
    parts = urlsplit(argument)
    if parts.scheme:
        return "%s://%s%s" % (parts.scheme, parts.netloc, where) if parts.scheme != "pai" else where
    if argument.startswith("/"):
        return where
    home = hdfs_paths.resolve("")[1].rstrip("/")
    return posixpath.relpath(where, home) if (where + "/").startswith(home + "/") else where


def _human(size: "int") -> "str":
    """A size as Hadoop writes it: ``512``, ``2 K``, ``1.3 M``."""
    if abs(size) < 1024:
        return str(size)
    power = 1
    while power < len(_UNITS) and abs(size) >= 1024 ** (power + 1):
        power += 1
    if size % 1024**power == 0:
        return "%d %s" % (size // 1024**power, _UNITS[power - 1])
    text = "%.1f" % (size / 1024**power)
    if text.startswith("1024") and power < len(_UNITS):
        text, power = "1.0", power + 1
    return "%s %s" % (text, _UNITS[power - 1])


COMMANDS = {"du": du, "count": count, "stat": stat, "tail": tail, "getmerge": getmerge}
