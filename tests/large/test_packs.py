"""Packs of very many files and of very large ones: `make test-large`. Sizes are set by variables.

LARGE_FILES: number of small files. LARGE_RECORD_BYTES: size of the one large file.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from openpaisdk.data import open_pack
from support.measured_command import MeasuredRun, measured_pai, measured_run

pytestmark = pytest.mark.slow

FILES = int(os.environ.get("LARGE_FILES") or 1_000_000)
RECORD_BYTES = int(os.environ.get("LARGE_RECORD_BYTES") or (2 << 30) + (200 << 20))
FILES_PER_FOLDER = 1000
FOLDERS = -(-FILES // FILES_PER_FOLDER)
BYTES_PER_FILE = 1500
"""In a pack, with its header and its entry in the index; and its name in its folder."""
BYTES_PER_BLOCK = 4096
"""Of a small file in a file system."""
MAX_MEMORY_MB = 200
FEWER_FILES = max(FILES // 10, min(FILES, 50_000))
"""Enough that processes pack them, too: the memory of that is compared."""
MAX_GROWTH_MB = 40
LIMIT_S = 1800
"""For one command: a busy machine may take ten times as long as an idle one."""
_BLOCK_BYTES = 1 << 20

# Reads an epoch, and checks every record.
EPOCH = f"""
import sys
from openpaisdk.data import RecordStream

seen = bytearray(int(sys.argv[2]))
for key, record in RecordStream(sys.argv[1], shuffle=True, seed=1):
    folder, number = map(int, key.split("/"))
    assert record == b"%d\\n" % number * (number % 30), key
    seen[folder * {FILES_PER_FOLDER} + number] += 1
assert set(seen) == {{1}}
print("every record once")
"""


@pytest.fixture(name="scratch")
def scratch_fixture(tmp_path: Path) -> Iterator[Path]:
    """A folder whose files are removed at once: they are gigabytes, and pytest keeps those of three runs."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def require_free(folder: Path, size: int, entries: int = 100) -> None:
    """Fail before anything is written if the file system has too little space, or too few inodes."""
    found = os.statvfs(folder)
    free, inodes = found.f_bavail * found.f_frsize, found.f_favail
    if free < size:
        pytest.fail(
            f"{folder} has {free / 1e9:.1f} GB free, and {size / 1e9:.1f} GB are needed.", pytrace=False
        )
    if found.f_files and inodes < entries:
        pytest.fail(f"{folder} has {inodes} inodes free, and {entries} are needed.", pytrace=False)


def measure(title: str, *words: object) -> MeasuredRun:
    """Run `pai`, print what it took, and check its memory."""
    return check(title, measured_pai(*words, limit_s=LIMIT_S))


def check(title: str, done: MeasuredRun) -> MeasuredRun:
    print(f"\n{title}: {done.took_s:.1f} s, {done.memory_mb} MB of memory")
    assert done.memory_mb < MAX_MEMORY_MB, done
    return done


def content(number: int) -> bytes:
    """Content of a file, by its number in its folder."""
    return b"%d\n" % number * (number % 30)  # some are empty


def make_files(folder: Path, count: int) -> None:
    """Folders of files that are links to those of the first one: a link needs no inode, and no block."""
    first = folder / "00000"
    first.mkdir(parents=True)
    for number in range(min(count, FILES_PER_FOLDER)):
        (first / f"{number:03}").write_bytes(content(number))
    # Spawned: the test process may have threads.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as processes:
        folders = range(1, -(-count // FILES_PER_FOLDER))
        list(processes.map(partial(link_folder, first, count), folders, chunksize=8))


def link_folder(first: Path, count: int, number: int) -> None:
    folder = first.parent / f"{number:05}"
    folder.mkdir()
    for name in range(min(FILES_PER_FOLDER, count - number * FILES_PER_FOLDER)):
        os.link(first / f"{name:03}", folder / f"{name:03}")


def test_very_many_files(scratch: Path) -> None:
    require_free(scratch, FILES * BYTES_PER_FILE, 2 * (FOLDERS + FILES_PER_FOLDER))
    began = time.monotonic()
    make_files(scratch / "fewer", FEWER_FILES)
    make_files(scratch / "files", FILES)
    print(f"\nfiles made in {os.cpu_count()} processes: {time.monotonic() - began:.1f} s")
    fewer = measure(f"pack of {FEWER_FILES} files", "pack", scratch / "fewer", scratch / "fewer.pack")
    packed = measure(f"pack of {FILES} files", "pack", scratch / "files", scratch / "pack")
    assert packed.status == 0 and packed.out.startswith(f"{FILES} records in "), packed
    assert packed.memory_mb < fewer.memory_mb + MAX_GROWTH_MB
    again = measure("second run", "pack", scratch / "files", scratch / "pack")
    assert " unchanged, " in again.out, again
    pack = open_pack(scratch / "pack")
    for number in {0, FILES // 2, FILES - 1}:
        key = f"{number // FILES_PER_FOLDER:05}/{number % FILES_PER_FOLDER:03}"
        assert pack[key] == pack[number] == content(number % FILES_PER_FOLDER)
    epoch = measured_run(sys.executable, "-c", EPOCH, scratch / "pack", FILES, limit_s=LIMIT_S)
    assert check("epoch", epoch).out == "every record once\n", epoch


def test_very_many_files_in_one_folder(scratch: Path) -> None:
    """None of the lists of its names may be in memory: not of the files, not of their keys."""
    require_free(scratch, FILES * (BYTES_PER_FILE + BYTES_PER_BLOCK), FILES + 2 * FILES_PER_FOLDER)
    make_files(scratch / "folders", FILES_PER_FOLDER)
    (scratch / "files").mkdir()
    for number in range(FILES):
        os.link(scratch / f"folders/00000/{number % FILES_PER_FOLDER:03}", scratch / f"files/{number:07}")
    packed = measure(
        f"pack of a folder of {FILES} files", "pack", "--key", "name", scratch / "files", scratch / "pack"
    )
    assert packed.status == 0 and packed.out.startswith(f"{FILES} records in "), packed
    shutil.rmtree(scratch / "files")
    unpacked = measure("unpack", "unpack", scratch / "pack", scratch / "out")
    assert unpacked.status == 0, unpacked
    assert sum(1 for _ in os.scandir(scratch / "out")) == FILES
    for number in {0, FILES // 2, FILES - 1}:
        assert (scratch / f"out/{number:07}").read_bytes() == content(number % FILES_PER_FOLDER)


@pytest.mark.parametrize("name", ["tar", "tfrecord", "har"])
def test_very_large_record(scratch: Path, name: str) -> None:
    require_free(scratch, 2 * RECORD_BYTES + (1 << 30))
    expected = write_large_file(scratch / "files/large")
    packed = measure(
        f"pack of a large file as {name}", "pack", "--format", name, scratch / "files", scratch / "pack"
    )
    assert packed.status == 0, packed
    (scratch / "files/large").unlink()
    unpacked = measure("unpack", "unpack", scratch / "pack", scratch / "out")
    assert unpacked.status == 0, unpacked
    assert checksum(scratch / "out/large") == expected


def test_record_too_large_for_a_sequence_file_is_refused(scratch: Path) -> None:
    (scratch / "files").mkdir()
    with (scratch / "files/large").open("wb") as f:
        f.truncate((2 << 30) + (200 << 20))
    packed = measure("refused", "pack", "--format", "sequencefile", scratch / "files", scratch / "pack")
    assert packed.status != 0 and "large has 2.2 GB; a record of a SequenceFile has at most" in packed.err


def write_large_file(path: Path) -> int:
    path.parent.mkdir()
    crc = 0
    with path.open("wb") as f:
        for number in range(-(-RECORD_BYTES // _BLOCK_BYTES)):
            block = number.to_bytes(8, "big") * (_BLOCK_BYTES // 8)
            block = block[: RECORD_BYTES - number * _BLOCK_BYTES]
            crc = zlib.crc32(block, crc)
            f.write(block)
    return crc


def checksum(path: Path) -> int:
    crc = 0
    with path.open("rb") as f:
        while block := f.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc
