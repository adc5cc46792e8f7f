"""Packs of small files: packing against tar, an epoch against plain reads, access to single records."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.cli import Machine
from bench.table import Row, alternate, limit_row, ms, ratio_row, sized
from openpaisdk.data import open_pack

FILES = sized(100_000, 200)
FILE_BYTES = 4096
FILES_PER_FOLDER = 1000
PLAIN_FILES = sized(10_000, 100)
ACCESSES = sized(5_000, 50)
LARGE_BYTES = sized(1 << 30, 4 << 20)
LISTED_FILES = sized(10_000, 100)
WORKERS = 2
HOW = (
    f"data: {FILES} files of {FILE_BYTES} bytes. {WORKERS} processes with the pack open read an epoch; "
    "its reference reads the shards in pieces of 1 MiB from the page cache. "
    f"The mount reads {LARGE_BYTES >> 20} MiB and lists {LISTED_FILES} files of a cluster on this machine; "
    "pai copy and pai listdir start a process, which is part of their time."
)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        machine = Machine(Path(folder))
        try:
            files = Path(folder) / "files"
            make_files(files, FILES)
            packed = Path(folder) / "packed"
            return [
                packing(machine, files, packed),
                epoch(packed),
                against_files(machine, Path(folder), packed),
                single_records(packed),
                *mounted_storage(machine, Path(folder)),
            ]
        finally:
            machine.close()


def make_files(folder: Path, count: int) -> None:
    content = random.Random(1).randbytes(FILE_BYTES)
    for i in range(count):
        path = folder / f"{i // FILES_PER_FOLDER:03}" / f"{i % FILES_PER_FOLDER:04}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def packing(machine: Machine, files: Path, packed: Path) -> Row:
    def ours() -> float:
        shutil.rmtree(packed, ignore_errors=True)
        return FILES / machine.timed("pai", "pack", str(files), str(packed))

    def tar() -> float:
        target = packed.with_suffix(".tar")
        target.unlink(missing_ok=True)
        began = time.perf_counter()
        subprocess.run(["tar", "cf", target, "-C", files, "."], check=True)
        return FILES / (time.perf_counter() - began)

    ours()
    tar()
    speeds = alternate(ours, tar, 5)
    return ratio_row("pai pack to tar shards / tar cf", *speeds, at_least=0.7, show=files_per_s)


READER = """
import sys
from openpaisdk.data import RecordStream
stream = RecordStream(sys.argv[1], shuffle=True, rank=int(sys.argv[2]), world_size=int(sys.argv[3]))
len(stream)
print("ready", flush=True)
for line in sys.stdin:
    print(sum(len(content) for _, content in stream), flush=True)
"""


def epoch_s(address: str) -> float:
    """Seconds of an epoch by processes that are ready to read."""
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, address, str(rank), str(WORKERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORKERS)
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
        began = time.perf_counter()
        for reader in readers:
            assert reader.stdin is not None
            reader.stdin.write("go\n")
            reader.stdin.flush()
        total = sum(int(reader.stdout.readline()) for reader in readers if reader.stdout is not None)
        took = time.perf_counter() - began
        assert total % FILE_BYTES == 0 and total > 0
        return took
    finally:
        for reader in readers:
            reader.communicate()


def epoch(packed: Path) -> Row:
    def plain() -> float:
        began = time.perf_counter()
        for shard in packed.glob("*.tar"):
            with shard.open("rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass
        return FILES / (time.perf_counter() - began)

    speeds = alternate(lambda: FILES / epoch_s(str(packed)), plain, 5)
    return ratio_row("epoch through RecordStream / plain read", *speeds, at_least=0.5, show=files_per_s)


def against_files(machine: Machine, folder: Path, packed: Path) -> Row:
    """The same records, from a pack and as single files, both over the cluster's HTTP."""
    plain = folder / "plain"
    make_files(plain, PLAIN_FILES)
    machine.timed("pai", "copy", str(plain), "pai://local/0/plain")
    machine.timed("pai", "pack", str(plain), "pai://local/0/packed")
    os.environ["PAI_STORAGE_HTTP"] = "1"
    before = os.environ["HOME"]
    os.environ["HOME"] = str(machine.home)
    try:

        def one_by_one() -> float:
            from openpaisdk.storage import Storage

            storage = Storage.open("pai://local/0/")
            names = [f"/plain/{path.relative_to(plain)}" for path in sorted(plain.rglob("*.bin"))]
            names = names[: sized(1000, 20)]
            began = time.perf_counter()
            for name in names:
                source = storage.backend.open(name)
                assert sum(map(len, source.chunks(0, source.size))) == FILE_BYTES
                source.close()
            return len(names) / (time.perf_counter() - began)

        def from_pack() -> float:
            return PLAIN_FILES / epoch_s("pai://local/0/packed")

        speeds = alternate(from_pack, one_by_one, 5)
    finally:
        del os.environ["PAI_STORAGE_HTTP"]
        os.environ["HOME"] = before
    return ratio_row("epoch of a pack / files one by one, pai://", *speeds, at_least=20, show=files_per_s)


def single_records(packed: Path) -> Row:
    pack = open_pack(packed)
    order = random.Random(2)
    runs = []
    for _ in range(sized(5, 1)):
        took = []
        for _ in range(ACCESSES):
            number = order.randrange(len(pack))
            began = time.perf_counter()
            pack[number]
            took.append(time.perf_counter() - began)
        runs.append(sorted(took)[int(len(took) * 0.99)])
    return limit_row("access to a record by its number, p99", runs, at_most=0.001, show=ms)


@contextmanager
def mounted(machine: Machine, address: str, folder: Path) -> Iterator[None]:
    folder.mkdir()
    machine.timed("pai", "mount", "--background", address, str(folder))
    try:
        yield
    finally:
        machine.timed("pai", "unmount", str(folder))


def mounted_storage(machine: Machine, folder: Path) -> list[Row]:
    """Reads and listings through a mount. Its storage is on this machine, where copies are quickest."""
    if not Path("/dev/fuse").exists():
        return []
    large = folder / "large"
    with large.open("wb") as file:
        for _ in range(LARGE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
    machine.timed("pai", "copy", str(large), "pai://local/0/mounted/large")
    make_files(folder / "listed", LISTED_FILES)
    machine.timed("pai", "copy", str(folder / "listed"), "pai://local/0/mounted/listed")

    def through_mount() -> float:
        # Mounted again: the kernel keeps what was read before.
        there = folder / f"mount{time.monotonic_ns()}"
        with mounted(machine, "pai://local/0/mounted", there):
            began = time.perf_counter()
            subprocess.run(["cat", there / "large"], check=True, stdout=subprocess.DEVNULL)
            return LARGE_BYTES / (time.perf_counter() - began)

    def by_copy() -> float:
        target = folder / "copied"
        target.unlink(missing_ok=True)
        return LARGE_BYTES / machine.timed("pai", "copy", "pai://local/0/mounted/large", str(target))

    def list_mount() -> float:
        there = folder / f"mount{time.monotonic_ns()}"
        with mounted(machine, "pai://local/0/mounted/listed", there):
            began = time.perf_counter()
            subprocess.run(["ls", "-R", there], check=True, stdout=subprocess.DEVNULL)
            return LISTED_FILES / (time.perf_counter() - began)

    def by_listdir() -> float:
        return LISTED_FILES / machine.timed("pai", "listdir", "-R", "pai://local/0/mounted/listed")

    reads, listings = alternate(through_mount, by_copy, 5), alternate(list_mount, by_listdir, 5)
    return [
        ratio_row("sequential read through the mount / pai copy", *reads, at_least=0.5, show=mb_per_s),
        ratio_row("ls -R of the mount / pai listdir -R", *listings, at_least=0.5, show=files_per_s),
    ]


def mb_per_s(speed: float) -> str:
    return f"{speed / 1e6:,.0f} MB/s"


def files_per_s(speed: float) -> str:
    return f"{speed:,.0f}/s"
