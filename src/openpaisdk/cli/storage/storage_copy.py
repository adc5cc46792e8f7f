"""``pai copy`` and ``pai sync``: transfer files, with a progress bar."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import Parser, command_parser
from openpaisdk.output import print_notice, show
from openpaisdk.output.progress import Progress
from openpaisdk.storage.location import STREAM, parse_location
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.transfer.copy import CopyOperation
    from openpaisdk.storage.transfer.executor import TransferProgress

RESUME_HINT = "Transferred data is kept: run the same command again to resume."
MAX_PREVIEW_LINES = 20


def copy(argv: list[str]) -> int:
    """``pai copy source ... target``"""
    parser = _parser(
        "copy",
        "pai copy data pai://team/0/alice/              a folder into a folder\n"
        "pai copy pai://team/0/alice/model.pt .          and back\n"
        "pai copy pai://team/0/alice pai://other/0/alice from one cluster to another\n"
        "gzip -c log | pai copy - pai://team/0/alice/log.gz",
        "Like cp -r: a target that does not exist becomes the copy; into an existing folder, or a target\n"
        "that ends in /, the source is copied; d/. means the contents of d. Files that are unchanged at\n"
        "the target (same size and time) are not sent again.\n"
        "Uploads of folders respect .paiignore, or else .gitignore. - is standard input or output.",
    )
    parser.add_argument("sources", nargs="+", metavar="source", help="the file or folder to copy")
    parser.add_argument("target", help="the target file or folder")
    args = parser.parse(argv)
    sources, target = args.sources, args.target
    opener = _opener(args)
    if STREAM in sources or target == STREAM:
        return _stream(opener, sources, target, args)
    _run([_plan(opener, source, target, args, multiple_sources=len(sources) > 1) for source in sources], args)
    return 0


def sync(argv: list[str]) -> int:
    """``pai sync source target``"""
    parser = _parser(
        "sync",
        "pai sync data pai://team/0/alice/data\npai sync --delete --dry-run pai://team/0/alice/data data",
        "Makes the target folder equal to the source folder; only differences are transferred. Nothing is\n"
        "removed from the target without --delete; with it, files ignored at the source are removed, too.",
    )
    parser.add_argument("--delete", action="store_true", help="remove files that the source does not have")
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="print what would be done, and do nothing"
    )
    parser.add_argument("source", help="the source folder")
    parser.add_argument("target", help="the target folder")
    args = parser.parse(argv)
    if STREAM in (args.source, args.target):
        raise UsageError("pai sync works on folders; '-' is not a folder.", hint="Use pai copy.")
    operation = _plan(_opener(args), args.source, args.target, args, sync=True)
    if args.dry_run:
        return _preview(operation, args)
    _run([operation], args)
    return 0


def _parser(name: str, example: str, details: str) -> Parser:
    parser = command_parser(name, example, details, cluster=False)
    parser.add_argument("--no-ignore", action="store_true", help="do not apply ignore files")
    parser.add_argument(
        "--force", action="store_true", help="also send files that are unchanged at the target"
    )
    parser.add_argument("--http", action="store_true", help="use HTTP, even on the cluster's own machine")
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="accepted for compatibility; folders are always copied"
    )
    return parser


def _opener(args: argparse.Namespace) -> StorageOpener:
    from openpaisdk.storage.catalog import StorageOpener

    return StorageOpener(print_notice, over_http=args.http)


def _plan(
    opener: StorageOpener,
    source: str,
    target: str,
    args: argparse.Namespace,
    *,
    multiple_sources: bool = False,
    sync: bool = False,
) -> CopyOperation:
    from openpaisdk.storage.transfer.copy import CopyOperation

    return CopyOperation.plan(
        opener,
        parse_location(source),
        parse_location(target),
        sync=sync,
        delete=sync and args.delete,
        use_ignore_files=False if args.no_ignore else None,
        force=args.force,
        multiple_sources=multiple_sources,
    )


def _run(operations: list[CopyOperation], args: argparse.Namespace) -> None:
    done = []
    for operation in operations:
        summary = str(operation.transfer_plan)
        if operation.is_resumed:
            summary = f"Resuming an interrupted copy: {summary}"
        try:
            if args.output != "table":
                operation.run(None)
            elif sys.stderr.isatty():
                _run_with_bar(operation, summary)
            else:
                operation.run(None)
                print_notice(summary)
        except KeyboardInterrupt:
            print_notice(RESUME_HINT)
            raise
        done.append(
            {
                "source": operation.transfer_plan.source,
                "target": operation.transfer_plan.target,
                **operation.transfer_plan.as_mapping(),
            }
        )
    show(done[0] if len(done) == 1 else done, args.output, lambda: "")


def _run_with_bar(operation: CopyOperation, summary: str) -> None:
    """Run a copy with a progress bar. The summary is printed once the target has accepted something."""
    is_announced = False

    def show_progress(progress: TransferProgress) -> None:
        nonlocal is_announced
        if not is_announced and (progress.files or progress.bytes > 0):
            is_announced = True
            print_notice(summary)
        if is_announced:
            bar.update(progress)

    with Progress(delay_s=0.0) as bar:
        operation.run(show_progress)
        bar.clear()
        if not is_announced:
            print_notice(summary)


def _preview(operation: CopyOperation, args: argparse.Namespace) -> int:
    plan = operation.transfer_plan

    def render() -> str:
        new = [f"copy    {path}" for path, _ in list(plan.new)[:MAX_PREVIEW_LINES]]
        if plan.new.count > MAX_PREVIEW_LINES:
            new.append(f"copy    ... and {plan.new.count - MAX_PREVIEW_LINES} more")
        deleted = [f"delete  {path}" for path in plan.extra[:MAX_PREVIEW_LINES]]
        if len(plan.extra) > MAX_PREVIEW_LINES:
            deleted.append(f"delete  ... and {len(plan.extra) - MAX_PREVIEW_LINES} more")
        return "\n".join([*new, *deleted])

    show({**plan.as_mapping(), "toCopy": [path for path, _ in plan.new]}, args.output, render)
    if args.output == "table":
        print_notice(f"{plan}. Nothing was done.")
    return 0


def _stream(opener: StorageOpener, sources: list[str], target: str, args: argparse.Namespace) -> int:
    from openpaisdk.storage.transfer.copy import from_stream, to_stream

    if target == STREAM:
        if len(sources) != 1 or sources[0] == STREAM:
            raise UsageError("Only one file can be copied to standard output.")
        if sys.__stdout__ is None:
            raise UsageError("Standard output is closed (>&-).")
        out = sys.stdout.buffer
        to_stream(opener, parse_location(sources[0]), out.write)
        out.flush()
        return 0
    if len(sources) != 1:
        raise UsageError("Standard input cannot be combined with other sources.")
    if sys.__stdin__ is None:
        raise UsageError("Standard input is closed (<&-).")
    size = from_stream(opener, sys.stdin.buffer, parse_location(target))
    show({"target": target, "bytes": size}, args.output, lambda: "")
    return 0
