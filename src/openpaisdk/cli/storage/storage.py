"""``pai listdir``, ``getinfo``, ``makedir``, ``remove``, ``disk-usage``: inspect and remove files."""

from __future__ import annotations

import os
import sys

from openpaisdk.cli.parser import Parser, command_parser, is_interactive
from openpaisdk.output import format_time, print_notice, show, show_all, table
from openpaisdk.output.untrusted_text import printable, visible
from openpaisdk.storage.backends.base import not_found_error
from openpaisdk.storage.file_info import contains_path, format_size, join
from openpaisdk.storage.location import PAI, parse_location
from paiprotocol.errors import NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.file_info import FileInfo
    from openpaisdk.storage.location import Location

PATH = (
    "pai://<cluster>/<storage>/<path>, hdfs://HOST[:PORT]/path, s3://BUCKET/path, az://CONTAINER/path, "
    "or a path on this machine"
)


def listdir(argv: list[str]) -> int:
    """``pai listdir [-l] [-R] [-H] path``"""
    parser = _parser(
        "listdir", "pai listdir pai://team/0/alice\npai list-dir -l -H pai://team/hdfs/alice/data"
    )
    parser.add_argument("-l", "--long", action="store_true", help="show mode, owner, size and time")
    parser.add_argument("-R", "--recursive", action="store_true", help="include subfolders")
    parser.add_argument("-H", "--human", action="store_true", help="print sizes with units, like 1.2 GB")
    parser.add_argument(
        "--records", action="store_true", help="list the records of a pack (pai pack) like files"
    )
    args = parser.parse(argv)
    if alias := _bare_cluster(args.path):
        return _list_storages(alias, args.output)
    location = parse_location(args.path)
    opener = _opener()
    if (names := opener.job_names(location)) is not None:
        _show_folders(names, location.text, args.output)
        return 0
    backend, path = opener.open(location)
    info = backend.status(path)
    rows: list[tuple[str, FileInfo]]
    if info is None or args.records:
        from openpaisdk.cli.storage.pack_contents import list_path_in_pack, list_records

        listed = (
            list_path_in_pack(backend, path, location.text, is_recursive=args.recursive)
            if info is None
            else list_records(location.text, is_recursive=args.recursive)
        )
        if listed is None:
            raise opener.not_found(location)
        rows = listed
        entries = (entry.as_mapping(f"{path.rstrip('/')}/{name}") for name, entry in rows)
        show_all(entries, args.output, lambda: _lines(rows, args.long, args.human))
        return 0
    if not info.is_folder:
        rows = [(info.name, info)]
    elif args.recursive:
        rows = _walk(backend, path)
    else:
        rows = [(entry.name, entry) for entry in backend.list_folder(path)]
    base = path if info.is_folder else path.rpartition("/")[0]
    entries = (entry.as_mapping(f"{base.rstrip('/')}/{name}") for name, entry in rows)
    show_all(entries, args.output, lambda: _lines(rows, args.long, args.human))
    return 0


def _bare_cluster(text: str) -> str:
    """The alias in ``pai://<cluster>``, without a storage; else empty."""
    scheme, _, rest = text.partition("://")
    return rest.rstrip("/") if scheme.lower() == PAI and "/" not in rest.rstrip("/") else ""


def _list_storages(alias: str, output: str) -> int:
    names = [entry.name for entry in _opener().entries(alias)]
    _show_folders(names, f"{PAI}://{alias}", output)
    return 0


def _show_folders(names: list[str], address: str, output: str) -> None:
    """Print what is listed like folders, but is on no storage: storages and jobs."""
    base = address.rstrip("/")
    folders = [{"name": name, "path": f"{base}/{name}", "type": "directory"} for name in names]
    show(folders, output, lambda: "\n".join(f"{name}/" for name in names))


def _walk(backend: Backend, path: str) -> list[tuple[str, FileInfo]]:
    rows = []
    pending = [(entry.name, entry) for entry in reversed(backend.list_folder(path))]
    while pending:
        name, entry = pending.pop()
        rows.append((name, entry))
        entry_path = f"{path.rstrip('/')}/{name}"
        if entry.is_folder and not backend.is_link(entry_path):  # a link may form a cycle
            children = backend.list_folder(entry_path)
            pending += [(join(name, child.name), child) for child in reversed(children)]
    return rows


def _lines(rows: list[tuple[str, FileInfo]], is_long: bool, human: bool) -> Iterable[str]:
    if not is_long:
        return (printable(name) + ("/" if entry.is_folder else "") for name, entry in rows)
    cells = [
        [
            _mode(entry),
            entry.owner or "-",
            entry.group or "-",
            "-" if entry.is_folder else format_size(entry.size) if human else str(entry.size),
            _modified(entry),
            name + ("/" if entry.is_folder else ""),
        ]
        for name, entry in rows
    ]
    headers = ["MODE", "OWNER", "GROUP", "SIZE", "MODIFIED", "NAME"]
    return [table(headers, cells, right=frozenset({3}))] if cells else []


def _mode(entry: FileInfo) -> str:
    bits = "".join(letter if entry.mode >> 8 - i & 1 else "-" for i, letter in enumerate("rwxrwxrwx"))
    return ("d" if entry.is_folder else "-") + bits


def _modified(entry: FileInfo) -> str:
    """Time of a change. Folders of a bucket and records of a pack have none, and no owner either."""
    return format_time(entry.mtime_ns // 1_000_000 if entry.mtime_ns or entry.owner else None)


def getinfo(argv: list[str]) -> int:
    """``pai getinfo path``"""
    parser = _parser("getinfo", "pai getinfo pai://team/0/alice/model.pt")
    args = parser.parse(argv)
    backend, path, entry = _find(_opener(), parse_location(args.path))
    info = {**entry.as_mapping(path), "name": entry.name or "/"}

    def render() -> str:
        lines = [
            ("name", info["name"]),
            ("type", info["type"]),
            ("size", f"{entry.size} bytes" + (f" ({format_size(entry.size)})" if entry.size >= 1024 else "")),
            ("modified", _modified(entry)),
            ("mode", _mode(entry)),
            ("owner", entry.owner or "-"),
            ("group", entry.group or "-"),
            ("address", backend.display_path(path)),
        ]
        return "\n".join(f"{key + ':':<10} {value}" for key, value in lines)

    show(info, args.output, render)
    return 0


def makedir(argv: list[str]) -> int:
    """``pai makedir path ...``"""
    parser = command_parser(
        "makedir",
        "pai makedir pai://team/0/alice/results",
        "Missing parent folders are created too; an existing folder is not an error.",
        cluster=False,
    )
    parser.add_argument("paths", nargs="+", metavar="path", help=PATH)
    args = parser.parse(argv)
    from openpaisdk.storage.backends.base import WriteAccess
    from openpaisdk.storage.transfer.copy_markers import remove_markers_below

    opener = _opener()
    locations = [parse_location(text) for text in args.paths]
    targets = [(location, *opener.open_for_writing(location)) for location in locations]
    for location, backend, path in targets:
        if problem := backend.invalid_name_reason(path):
            raise UsageError(f"{location.text!r} cannot be the name of a folder: {problem}.")
    results = []
    for location, backend, path in targets:
        info = backend.status(path)
        if info is not None and not info.is_folder:
            raise UsageError(f"{location.text} already exists and is a file.")
        with WriteAccess(backend, path):
            if info is None:
                remove_markers_below(backend, path)
            backend.make_folder(path)
        results.append({"path": path, "made": info is None})
    show(results, args.output, lambda: "")
    return 0


def remove(argv: list[str]) -> int:
    """``pai remove [-y] path ...``"""
    parser = command_parser(
        "remove",
        "pai remove pai://team/0/alice/old.bin\npai delete -y pai://team/0/alice/results",
        "A folder is removed with its contents. On a terminal you are asked for confirmation, unless the\n"
        "folder is empty; in a script you are not.",
        cluster=False,
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "-r",
        "--recursive",
        action="store_true",
        help="accepted for compatibility; folders are always removed",
    )
    parser.add_argument("paths", nargs="+", metavar="path", help=PATH)
    args = parser.parse(argv)
    from openpaisdk.storage.backends.local import LocalBackend
    from openpaisdk.storage.transfer.copy_markers import remove_markers_below

    opener = _opener()
    targets = []
    for text in dict.fromkeys(args.paths):
        location = parse_location(text)
        backend, path = opener.open_for_writing(location)
        if location.is_remote and path == "/":
            raise UsageError(f"{text} is the root of a storage, which cannot be removed.")
        info = backend.status(path)
        if info is None:
            raise _nothing_to_remove(text)
        # A mounted storage is also a path of this machine, so the same folders are protected.
        if (
            info.is_folder
            and isinstance(backend, LocalBackend)
            and (reason := _protected_reason(backend.full_path(path)))
        ):
            raise UsageError(f"{text} {reason}, and is not removed.", hint="To remove it anyway, use rm.")
        targets.append((text, backend, path, info))
    asks = not args.yes and is_interactive()
    non_empty = [
        text
        for text, backend, path, info in targets
        if asks and info.is_folder and not backend.is_empty(path)
    ]
    if non_empty:
        sys.stderr.write(visible(f"Remove {', '.join(non_empty)} with all contents? [y/N] "))
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print_notice("Nothing was removed.")
            return 1
    for _, backend, path, _ in targets:
        remove_markers_below(backend, path)
        try:
            backend.delete(path)
        except NotFound:
            pass  # another process removed it first
    show([info.as_mapping(path) for _, _, path, info in targets], args.output, lambda: "")
    return 0


def _nothing_to_remove(text: str) -> UsageError:
    """The error for a path that does not exist; it may be the name of a job, which files never are."""
    from openpaisdk.jobs.job_names import is_valid_name

    error = not_found_error(text)
    if is_valid_name(text):
        return UsageError(error.message, hint=f"If it is a job: pai delete-job {text}")
    return error


def _protected_reason(path: str) -> str:
    """Why a local folder must not be removed; else empty. Folders directly below ``/`` are the system's."""
    if os.path.islink(path):
        return ""
    if os.path.dirname(os.path.realpath(path)) == os.sep:
        return "is a system folder"
    if contains_path(path, os.path.expanduser("~")):
        return "is your home folder or contains it"
    return "is the current folder or contains it" if contains_path(path, os.getcwd()) else ""


def disk_usage(argv: list[str]) -> int:
    """``pai disk-usage path``"""
    parser = _parser("disk-usage", "pai disk-usage pai://team/0/alice")
    parser.add_argument(
        "-H",
        "--human",
        action="store_true",
        help="print sizes with units; accepted for compatibility, always on",
    )
    args = parser.parse(argv)
    backend, path, info = _find(_opener(), parse_location(args.path))
    parts: dict[str, list[int]] = {}
    if info.is_folder:
        for folder in backend.walk(path):
            first = folder.path.partition("/")[0]
            for name, facts in folder.files.items():
                part = parts.setdefault(first or name, [0, 0])
                part[0] += 1
                part[1] += facts[0]
            for name in folder.folders if not folder.path else ():
                parts.setdefault(name, [0, 0])
    else:
        parts[info.name] = [1, info.size]
    rows = sorted(parts.items(), key=lambda item: -item[1][1])
    files, size = sum(part[0] for _, part in rows), sum(part[1] for _, part in rows)
    usage = {
        "path": path,
        "files": files,
        "bytes": size,
        "parts": [{"name": name, "files": part[0], "bytes": part[1]} for name, part in rows],
    }

    def render() -> str:
        cells = [[format_size(part[1]), str(part[0]), name] for name, part in rows]
        cells.append([format_size(size), str(files), "total"])
        return table(["SIZE", "FILES", "NAME"], cells, right=frozenset({0, 1}))

    show(usage, args.output, render)
    return 0


def _parser(name: str, example: str, details: str = "") -> Parser:
    parser = command_parser(name, example, details, cluster=False)
    parser.add_argument("path", help=PATH)
    return parser


def _opener() -> StorageOpener:
    from openpaisdk.storage.catalog import StorageOpener

    return StorageOpener(print_notice)


def _find(opener: StorageOpener, location: Location) -> tuple[Backend, str, FileInfo]:
    """Backend, path and status of a file or folder that must exist."""
    backend, path = opener.open(location)
    info = backend.status(path)
    if info is None:
        raise opener.not_found(location)
    return backend, path, info
