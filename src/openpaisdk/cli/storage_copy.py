"""``pai copy`` and ``pai sync``: files move, and a person sees how far they are."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import Parser, command_parser
from openpaisdk.errors import PaiError, UsageError
from openpaisdk.output import print_notice, show
from openpaisdk.storage.file_info import format_size
from openpaisdk.storage.location import STREAM, parse_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.transfer.copy import CopyOperation
    from openpaisdk.storage.transfer.executor import TransferProgress

AGAIN = "What has arrived is kept: run the same command again, and it continues where it was."
MANY = 20


def copy(argv: list[str]) -> int:
    """``pai copy source ... target``"""
    parser = _parser(
        "copy",
        "pai copy data pai://team/0/alice/              a folder into a folder\n"
        "pai copy pai://team/0/alice/model.pt .          and back\n"
        "pai copy pai://team/0/alice pai://other/0/alice from one cluster to another\n"
        "gzip -c log | pai copy - pai://team/0/alice/log.gz",
        "Like cp -r: a target that does not exist becomes the copy; a folder that exists, or a target that\n"
        "ends in /, receives it; d/. is what d holds, without its name. What is there unchanged (same size\n"
        "and time) is not sent again.\n"
        "Folders that leave this machine heed .paiignore, or else .gitignore. - is standard input or output.",
    )
    parser.add_argument("sources", nargs="+", metavar="source", help="where from")
    parser.add_argument("target", help="where to")
    args = parser.parse(argv)
    sources, target = args.sources, args.target
    opener = _opener(args)
    if STREAM in sources or target == STREAM:
        return _stream(opener, sources, target, args)
    _move([_planned(opener, source, target, args, several=len(sources) > 1) for source in sources], args)
    return 0


def sync(argv: list[str]) -> int:
    """``pai sync source target``"""
    parser = _parser(
        "sync",
        "pai sync data pai://team/0/alice/data\npai sync --delete --dry-run pai://team/0/alice/data data",
        "Makes the target folder like the source folder: only what differs moves. Nothing is removed from\n"
        "the target unless you say --delete; then what ignore files keep back here goes there, too.",
    )
    parser.add_argument("--delete", action="store_true", help="remove what the source does not have")
    parser.add_argument("-n", "--dry-run", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("source", help="the folder to take from")
    parser.add_argument("target", help="the folder to make like it")
    args = parser.parse(argv)
    if STREAM in (args.source, args.target):
        raise UsageError("pai sync is for folders; '-' is none.", hint="Use pai copy.")
    plan = _planned(_opener(args), args.source, args.target, args, synchronising=True)
    if args.dry_run:
        return _say_what(plan, args)
    _move([plan], args)
    return 0


def _parser(name: str, example: str, about: str) -> Parser:
    parser = command_parser(name, example, about, cluster=False)
    parser.add_argument("--no-ignore", action="store_true", help="take everything, whatever ignore files say")
    parser.add_argument("--force", action="store_true", help="send also what is there unchanged")
    parser.add_argument("--http", action="store_true", help="go over HTTP, also on the cluster's own machine")
    parser.add_argument("-r", "--recursive", action="store_true", help="folders are copied in any case")
    return parser


def _opener(args: argparse.Namespace) -> StorageOpener:
    from openpaisdk.storage.catalog import StorageOpener

    return StorageOpener(print_notice, over_http=args.http)


def _planned(
    opener: StorageOpener,
    source: str,
    target: str,
    args: argparse.Namespace,
    *,
    several: bool = False,
    synchronising: bool = False,
) -> CopyOperation:
    from openpaisdk.storage.transfer.copy import CopyOperation

    return CopyOperation.plan(
        opener,
        parse_location(source),
        parse_location(target),
        sync=synchronising,
        delete=synchronising and args.delete,
        use_ignore_files=False if args.no_ignore else None,
        force=args.force,
        multiple_sources=several,
    )


def _move(copies: list[CopyOperation], args: argparse.Namespace) -> None:
    done = []
    for each in copies:
        if args.output == "table":
            print_notice(
                f"Continuing a copy that was interrupted: {each.transfer_plan}"
                if each.is_resumed
                else str(each.transfer_plan)
            )
        bar = Bar() if sys.stderr.isatty() and args.output == "table" else None
        try:
            each.run(bar.draw if bar else None)
        except KeyboardInterrupt:
            if bar:
                bar.end()
            print_notice(AGAIN)
            raise
        except PaiError:
            if bar:
                bar.end()
            raise
        if bar:
            bar.end()
        done.append(
            {
                "source": each.transfer_plan.source,
                "target": each.transfer_plan.target,
                **each.transfer_plan.as_mapping(),
            }
        )
    show(done[0] if len(done) == 1 else done, args.output, lambda: "")


def _say_what(plan: CopyOperation, args: argparse.Namespace) -> int:
    work = plan.transfer_plan

    def people() -> str:
        new = [f"copy    {path}" for path, _ in list(work.new)[:MANY]]
        if work.new.count > MANY:
            new.append(f"copy    ... and {work.new.count - MANY} more")
        gone = [f"delete  {path}" for path in work.extra[:MANY]]
        if len(work.extra) > MANY:
            gone.append(f"delete  ... and {len(work.extra) - MANY} more")
        return "\n".join([*new, *gone])

    show({**work.as_mapping(), "toCopy": [path for path, _ in work.new]}, args.output, people)
    if args.output == "table":
        print_notice(f"{work}. Nothing was done.")
    return 0


def _stream(opener: StorageOpener, sources: list[str], target: str, args: argparse.Namespace) -> int:
    from openpaisdk.storage.transfer.copy import from_stream, to_stream

    if target == STREAM:
        if len(sources) != 1 or sources[0] == STREAM:
            raise UsageError("Only one file goes to standard output.")
        if sys.__stdout__ is None:
            raise UsageError("Standard output is closed (>&-), so nothing can go there.")
        out = sys.stdout.buffer
        to_stream(opener, parse_location(sources[0]), out.write)
        out.flush()
        return 0
    if len(sources) != 1:
        raise UsageError("Standard input is copied alone.")
    if sys.__stdin__ is None:
        raise UsageError("Standard input is closed (<&-), so nothing can come from there.")
    size = from_stream(opener, sys.stdin.buffer, parse_location(target))
    show({"target": target, "bytes": size}, args.output, lambda: "")
    return 0


class Bar:
    """One line at a terminal: how far, how fast, how long it will take yet."""

    WIDTH = 24

    def __init__(self) -> None:
        import time

        self._clock = time.monotonic
        self._began = self._clock()
        self._drawn = 0.0
        self._length = 0

    def draw(self, progress: TransferProgress) -> None:
        now = self._clock()
        if now - self._drawn < 0.1:
            return
        self._drawn = now
        took = max(now - self._began, 0.001)
        whole = progress.total_bytes or progress.total_files or 1
        done = progress.bytes if progress.total_bytes else progress.files
        part = min(1.0, max(0.0, done / whole))
        rate = progress.bytes / took
        left = f"{_clock((whole - done) / (done / took))} left" if done > 0 and took > 0.5 else ""
        filled = int(part * self.WIDTH)
        line = (
            f"[{'#' * filled}{'.' * (self.WIDTH - filled)}] {part * 100:3.0f}%  "
            f"{format_size(max(0, progress.bytes))} of {format_size(progress.total_bytes)}  "
            f"{format_size(rate)}/s  {left}"
        )
        self._write("\r" + line.ljust(self._length))
        self._length = len(line)

    def end(self) -> None:
        if self._length:
            self._write("\r" + " " * self._length + "\r")
            self._length = 0

    @staticmethod
    def _write(text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            pass


def _clock(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
