"""``pai listdir``, ``getinfo``, ``makedir``, ``remove``, ``disk-usage``: looking at files and tidying up."""

from __future__ import annotations

import os
import sys

from openpaisdk.cli.parser import Parser, command_parser, on_terminal
from openpaisdk.errors import NotFound, UsageError
from openpaisdk.output import moment, print_notice, show, show_all, table
from openpaisdk.storage.backends.base import not_found_error
from openpaisdk.storage.file_info import contains_path, format_size, join
from openpaisdk.storage.location import PAI, parse_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.file_info import FileInfo
    from openpaisdk.storage.location import Location

PATH = "pai://<cluster>/<storage>/<path>, hdfs://HOST[:PORT]/path, or a path on this machine"


def listdir(argv: list[str]) -> int:
    """``pai listdir [-l] [-R] [-H] path``"""
    parser = _parser(
        "listdir", "pai listdir pai://team/0/alice\npai list-dir -l -H pai://team/hdfs/alice/data"
    )
    parser.add_argument("-l", "--long", action="store_true", help="with mode, owner, size and time")
    parser.add_argument("-R", "--recursive", action="store_true", help="with all that is below")
    parser.add_argument("-H", "--human", action="store_true", help="sizes as people read them: 1.2 GB")
    args = parser.parse(argv)
    if alias := _cluster_alone(args.path):
        return _list_storages(alias, args.output)
    place = parse_location(args.path)
    backend, path = _opened(place)
    found = backend.status(path)
    if found is None:
        raise not_found_error(place.text)
    rows: list[tuple[str, FileInfo]]
    if not found.is_folder:
        rows = [(found.name, found)]
    elif args.recursive:
        rows = _below(backend, path)
    else:
        rows = [(entry.name, entry) for entry in backend.list_folder(path)]
    base = path if found.is_folder else path.rpartition("/")[0]
    shown = (entry.as_mapping(f"{base.rstrip('/')}/{name}") for name, entry in rows)
    show_all(shown, args.output, lambda: _lines(rows, args.long, args.human))
    return 0


def _cluster_alone(text: str) -> str:
    """The alias in ``pai://<cluster>``, which names no storage yet."""
    scheme, _, rest = text.partition("://")
    return rest.rstrip("/") if scheme.lower() == PAI and "/" not in rest.rstrip("/") else ""


def _list_storages(alias: str, output: str) -> int:
    from openpaisdk.storage.catalog import StorageOpener

    names = [entry.name for entry in StorageOpener(print_notice).entries(alias)]
    shown = [{"name": name, "path": f"{PAI}://{alias}/{name}", "type": "directory"} for name in names]
    show(shown, output, lambda: "\n".join(f"{name}/" for name in names))
    return 0


def _below(backend: Backend, path: str) -> list[tuple[str, FileInfo]]:
    rows = []
    waiting = [(entry.name, entry) for entry in reversed(backend.list_folder(path))]
    while waiting:
        name, entry = waiting.pop()
        rows.append((name, entry))
        below_it = f"{path.rstrip('/')}/{name}"
        if entry.is_folder and not backend.is_link(below_it):  # which may lead back to where we come from
            found = backend.list_folder(below_it)
            waiting += [(join(name, below.name), below) for below in reversed(found)]
    return rows


def _lines(rows: list[tuple[str, FileInfo]], is_long: bool, human: bool) -> Iterable[str]:
    from openpaisdk.output.table import printable

    if not is_long:
        return (printable(name) + ("/" if entry.is_folder else "") for name, entry in rows)
    cells = [
        [
            _mode(entry),
            entry.owner or "-",
            entry.group or "-",
            "-" if entry.is_folder else format_size(entry.size) if human else str(entry.size),
            moment(entry.mtime_ns // 1_000_000),
            name + ("/" if entry.is_folder else ""),
        ]
        for name, entry in rows
    ]
    headers = ["MODE", "OWNER", "GROUP", "SIZE", "MODIFIED", "NAME"]
    return [table(headers, cells, right=frozenset({3}))] if cells else []


def _mode(entry: FileInfo) -> str:
    bits = "".join(letter if entry.mode >> 8 - i & 1 else "-" for i, letter in enumerate("rwxrwxrwx"))
    return ("d" if entry.is_folder else "-") + bits


def getinfo(argv: list[str]) -> int:
    """``pai getinfo path``"""
    parser = _parser("getinfo", "pai getinfo pai://team/0/alice/model.pt")
    args = parser.parse(argv)
    place = parse_location(args.path)
    backend, path = _opened(place)
    found = backend.status(path)
    if found is None:
        raise not_found_error(place.text)
    shown = {**found.as_mapping(path), "name": found.name or "/"}

    def people() -> str:
        lines = [
            ("name", shown["name"]),
            ("type", shown["type"]),
            ("size", f"{found.size} bytes" + (f" ({format_size(found.size)})" if found.size >= 1024 else "")),
            ("modified", moment(found.mtime_ns // 1_000_000)),
            ("mode", _mode(found)),
            ("owner", found.owner or "-"),
            ("group", found.group or "-"),
            ("address", backend.display_path(path)),
        ]
        return "\n".join(f"{key + ':':<10} {value}" for key, value in lines)

    show(shown, args.output, people)
    return 0


def makedir(argv: list[str]) -> int:
    """``pai makedir path ...``"""
    parser = command_parser(
        "makedir",
        "pai makedir pai://team/0/alice/results",
        "Folders on the way to it are made too; one that is there already does no harm.",
        cluster=False,
    )
    parser.add_argument("paths", nargs="+", metavar="path", help=PATH)
    args = parser.parse(argv)
    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.location import invalid_name_reason
    from openpaisdk.storage.transfer.copy_markers import remove_markers_below

    opener = StorageOpener(print_notice)
    places = [parse_location(text) for text in args.paths]
    for place in places:
        if place.is_remote and (why := invalid_name_reason(place.path)):
            raise UsageError(f"{place.text!r} cannot be the name of a folder: {why}.")
    shown = []
    for place in places:
        backend, path = opener.open(place)
        found = backend.status(path)
        if found is not None and not found.is_folder:
            raise UsageError(f"{place.text} is there already, and it is a file.")
        if found is None:
            remove_markers_below(backend, path)
        backend.make_folder(path)
        shown.append({"path": path, "made": found is None})
    show(shown, args.output, lambda: "")
    return 0


def remove(argv: list[str]) -> int:
    """``pai remove [-y] path ...``"""
    parser = command_parser(
        "remove",
        "pai remove pai://team/0/alice/old.bin\npai delete -y pai://team/0/alice/results",
        "A folder goes with all that is in it. At a terminal you are asked before, unless it is empty; in a\n"
        "script you are not.",
        cluster=False,
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("paths", nargs="+", metavar="path", help=PATH)
    args = parser.parse(argv)
    from openpaisdk.storage.backends.local import LocalBackend
    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.transfer.copy_markers import remove_markers_below

    opener = StorageOpener(print_notice)
    going = []
    for text in dict.fromkeys(args.paths):
        place = parse_location(text)
        backend, path = opener.open(place)
        if place.is_remote and path == "/":
            raise UsageError(f"{text} is the root of a storage, which is never removed.")
        found = backend.status(path)
        if found is None:
            raise not_found_error(text)
        # A storage that is mounted lies on this machine as well, and may reach as far.
        if (
            found.is_folder
            and isinstance(backend, LocalBackend)
            and (why := _needed(backend.full_path(path)))
        ):
            raise UsageError(f"{text} {why}, and is not removed.", hint="If you mean it, use rm.")
        going.append((text, backend, path, found))
    asks = not args.yes and on_terminal()
    full = [
        text
        for text, backend, path, found in going
        if asks and found.is_folder and not backend.is_empty(path)
    ]
    if full:
        sys.stderr.write(
            f"Remove {', '.join(full)} with all that is in {'it' if len(full) == 1 else 'them'}? [y/N] "
        )
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print_notice("Nothing was removed.")
            return 1
    for _, backend, path, _ in going:
        remove_markers_below(backend, path)
        try:
            backend.delete(path)
        except NotFound:
            pass  # somebody was faster
    show([found.as_mapping(path) for _, _, path, found in going], args.output, lambda: "")
    return 0


def _needed(path: str) -> str:
    """Why a folder of this machine stays: what is below ``/`` is the machine's, not somebody's data."""
    if os.path.islink(path):
        return ""
    if os.path.dirname(os.path.realpath(path)) == os.sep:
        return "belongs to the machine"
    if contains_path(path, os.path.expanduser("~")):
        return "is your home folder or holds it"
    return "is the folder you are in or holds it" if contains_path(path, os.getcwd()) else ""


def disk_usage(argv: list[str]) -> int:
    """``pai disk-usage path``"""
    parser = _parser("disk-usage", "pai disk-usage pai://team/0/alice")
    parser.add_argument(
        "-H", "--human", action="store_true", help="sizes as people read them, as they are anyway"
    )
    args = parser.parse(argv)
    place = parse_location(args.path)
    backend, path = _opened(place)
    found = backend.status(path)
    if found is None:
        raise not_found_error(place.text)
    parts: dict[str, list[int]] = {}
    if found.is_folder:
        for folder in backend.walk(path):
            first = folder.path.partition("/")[0]
            for name, facts in folder.files.items():
                part = parts.setdefault(first or name, [0, 0])
                part[0] += 1
                part[1] += facts[0]
            for name in folder.folders if not folder.path else ():
                parts.setdefault(name, [0, 0])
    else:
        parts[found.name] = [1, found.size]
    rows = sorted(parts.items(), key=lambda item: -item[1][1])
    files, size = sum(part[0] for _, part in rows), sum(part[1] for _, part in rows)
    shown = {
        "path": path,
        "files": files,
        "bytes": size,
        "parts": [{"name": name, "files": part[0], "bytes": part[1]} for name, part in rows],
    }

    def people() -> str:
        cells = [[format_size(part[1]), str(part[0]), name] for name, part in rows]
        cells.append([format_size(size), str(files), "in all"])
        return table(["SIZE", "FILES", "NAME"], cells, right=frozenset({0, 1}))

    show(shown, args.output, people)
    return 0


def _parser(name: str, example: str, about: str = "") -> Parser:
    parser = command_parser(name, example, about, cluster=False)
    parser.add_argument("path", help=PATH)
    return parser


def _opened(place: Location) -> tuple[Backend, str]:
    from openpaisdk.storage.catalog import StorageOpener

    return StorageOpener(print_notice).open(place)
