"""``pai pack`` and ``pai unpack``: many small files in few large ones, and back."""

from __future__ import annotations

import os
import re
import sys

from openpaisdk.cli.parser import command_parser
from openpaisdk.cli.storage.storage import PATH
from openpaisdk.output import print_notice, show
from openpaisdk.output.progress import Progress
from openpaisdk.storage.file_info import format_size
from openpaisdk.storage.location import parse_location
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.transfer.executor import TransferProgress

    T = TypeVar("T")

MAX_JOBS = 64
_SIZE = re.compile(r"(\d{1,12})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def pack(argv: list[str]) -> int:
    """``pai pack source target``"""
    from openpaisdk.data.formats.registry import COMPRESSIONS, FORMATS

    parser = command_parser(
        "pack",
        "pai pack images pai://team/0/alice/images.pack\n"
        "pai pack --format tfrecord --shard-size 1g pai://team/0/alice/raw pai://team/0/alice/packed\n"
        "pai pack --format sequencefile --compression block-deflate logs hdfs://namenode:9870/logs.pack",
        "The target is a folder of shards, each with an index, and pack.json. The same files give the same\n"
        "bytes. An interrupted run is resumed by the same command; files that changed are packed again.\n"
        "Read it with openpaisdk.data, with any program that reads the format, or with pai unpack.",
        cluster=False,
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="tar", help="format of the shards (default: tar)"
    )
    parser.add_argument(
        "--compression", choices=COMPRESSIONS, default="none", help="of SequenceFiles only (default: none)"
    )
    parser.add_argument(
        "--shard-size", default="256m", metavar="SIZE", help="about how large a shard is (default: 256m)"
    )
    parser.add_argument(
        "--key",
        default="path",
        metavar="RULE",
        help="key of a record: path (default), name, or a template such as {folder}_{stem}{suffix}; "
        "{index} counts",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="shards written at the same time (default: one per processor, at most 4; 2 with a cloud)",
    )
    parser.add_argument("source", help=f"the folder to pack: {PATH}")
    parser.add_argument("target", help="the folder of the pack")
    args = parser.parse(argv)
    from openpaisdk.data.packer import RESUME_HINT, PackOperation, PackOptions
    from openpaisdk.data.record_keys import KeyRule
    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.transfer.plan import count_of, list_names

    jobs = 1 if args.jobs is None else args.jobs
    if not 1 <= jobs <= MAX_JOBS:
        raise UsageError(f"--jobs must be between 1 and {MAX_JOBS}, not {jobs}.")
    options = PackOptions(
        args.format, args.compression, KeyRule(args.key), _parse_size(args.shard_size), jobs
    )
    opener = StorageOpener(print_notice)
    source = parse_location(args.source)
    backend, path = opener.open(source)
    info = backend.status(path)
    if info is None:
        raise opener.not_found(source)
    if not info.is_folder:
        raise UsageError(f"{source.text} is a file; pai pack packs the files of a folder.")
    target, target_path = opener.open_for_writing(parse_location(args.target))
    name, target_name = backend.canonical(path).rstrip("/"), target.canonical(target_path).rstrip("/")
    if name == target_name:
        raise UsageError(
            f"{args.target} and {args.source} are the same folder.", hint="Give a new folder as the target."
        )
    if target_name.startswith(name + "/"):
        raise UsageError(f"{args.target} lies inside {args.source}: the pack would be packed, too.")
    if args.jobs is None:
        options.jobs = _default_jobs(backend, target)
    operation = PackOperation(backend, path, target, target_path, options)
    operation.scan()
    manifest = _with_bar(operation.run, RESUME_HINT)
    if skipped := operation.files.skipped:
        print_notice(f"Not packed, because they are links or special files: {list_names(skipped)}.")
    result = {
        "target": target.display_path(target_path),
        "format": manifest.format,
        "records": manifest.records,
        "bytes": manifest.size,
        "shards": len(manifest.shards),
        "keptShards": operation.kept_shards,
    }

    def render() -> str:
        kept = f", {operation.kept_shards} of them unchanged" if operation.kept_shards else ""
        return (
            f"{count_of(manifest.records, 'record')} in {count_of(len(manifest.shards), 'shard')}{kept}, "
            f"{format_size(manifest.size)}: {result['target']}"
        )

    show(result, args.output, render)
    return 0


def unpack(argv: list[str]) -> int:
    """``pai unpack pack target``"""
    parser = command_parser(
        "unpack",
        "pai unpack pai://team/0/alice/images.pack images\npai unpack shard-000000.tar part",
        "The key of a record is the path of its file below the target; files that exist are replaced.\n"
        "Shards that other programs wrote can be unpacked, too.",
        cluster=False,
    )
    parser.add_argument("pack", help=f"a pack, a folder of shards, or one shard: {PATH}")
    parser.add_argument("target", help="the folder to write to")
    args = parser.parse(argv)
    from openpaisdk.data.pack_reader import open_pack
    from openpaisdk.data.unpacker import UnpackOperation
    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.transfer.plan import count_of

    opened = open_pack(args.pack)
    target, path = StorageOpener(print_notice).open_for_writing(parse_location(args.target))
    existing = target.status(path)
    if existing is not None and not existing.is_folder:
        raise UsageError(f"{args.target} is a file, and a folder is needed there.")
    operation = UnpackOperation(opened, target, path)
    operation.check()
    _with_bar(operation.run, "Run the same command again: files that were written are replaced.")
    result = {"target": target.display_path(path), "files": len(opened), "bytes": operation.progress.bytes}
    show(
        result,
        args.output,
        lambda: f"{count_of(len(opened))}, {format_size(operation.progress.bytes)}: {result['target']}",
    )
    return 0


def _default_jobs(source: Backend, target: Backend) -> int:
    return min(source.default_streams, target.default_streams, os.cpu_count() or 1)


def _with_bar(run: Callable[[Callable[[TransferProgress], None] | None], T], hint: str) -> T:
    try:
        if not sys.stderr.isatty():
            return run(None)
        with Progress() as bar:
            return run(bar.update)
    except KeyboardInterrupt:
        print_notice(hint)
        raise


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << _UNITS[match[2].lower()] if match else 0
    if size < 1:
        raise UsageError(f"--shard-size {text!r} is not a size.", hint="Write a number and a unit: 256m, 1g.")
    return size
