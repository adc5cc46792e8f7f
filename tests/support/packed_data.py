"""Folders of small files, and packs of them."""

import os
from pathlib import Path

from openpaisdk.data.formats.sequence_file import SequenceFileWriter
from openpaisdk.data.packer import PackOperation, PackOptions
from openpaisdk.data.record_keys import KeyRule
from openpaisdk.storage.backends.local import LocalBackend

KINDS = [
    ("tar", "none"),
    ("tfrecord", "none"),
    ("har", "none"),
    *(("sequencefile", name) for name in SequenceFileWriter.compressions),
]


def make_files(folder: Path, count: int = 40) -> Path:
    """Files of all sizes, in folders, with names that are hard for some formats."""
    for i in range(count):
        path = folder / f"class{i % 3}" / f"sample{i:03}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([i % 256]) * (i * 97))
    (folder / "empty").touch()
    (folder / ("x" * 120 + ".txt")).write_text("a long name")
    (folder / "ünïcode 名.txt").write_text("a name in another script")
    (Path(os.fsdecode(os.fsencode(folder) + b"/latin\xe9"))).write_text("a name that is not UTF-8")
    return folder


def packing(
    source: Path,
    target: Path,
    kind=("tar", "none"),
    shard_bytes=20_000,
    key="path",
    jobs=2,
    **listing: int,
):
    """``listing``: `first_files` and `early_files`, with which a small folder is packed as a large one."""
    options = PackOptions(*kind, KeyRule(key), shard_bytes, jobs, **listing)
    operation = PackOperation(LocalBackend(), str(source), LocalBackend(), str(target), options)
    operation.scan()
    return operation


def pack(source: Path, target: Path, *values, **options):
    return packing(source, target, *values, **options).run()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
