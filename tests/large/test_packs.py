"""Packs of very many files and of very large ones: `make test-large`. Sizes are set by variables.

LARGE_FILES: number of small files. LARGE_RECORD_BYTES: size of the one large file.
"""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

import pytest

from openpaisdk.data import RecordStream, open_pack
from support.measured_command import MeasuredRun, measured_pai

pytestmark = pytest.mark.slow

FILES = int(os.environ.get("LARGE_FILES") or 1_000_000)
RECORD_BYTES = int(os.environ.get("LARGE_RECORD_BYTES") or (2 << 30) + (200 << 20))
FILES_PER_FOLDER = 1000
MAX_MEMORY_MB = 200
_BLOCK_BYTES = 1 << 20


def measure(title: str, *words: object) -> MeasuredRun:
    """Run `pai`, print what it took, and check its memory."""
    done = measured_pai(*words)
    print(f"\n{title}: {done.took_s:.1f} s, {done.memory_mb} MB of memory")
    assert done.memory_mb < MAX_MEMORY_MB
    return done


def content(number: int) -> bytes:
    return b"%d\n" % number * (number % 30)  # some are empty


def test_very_many_files(tmp_path: Path) -> None:
    for first in range(0, FILES, FILES_PER_FOLDER):
        folder = tmp_path / "files" / f"{first // FILES_PER_FOLDER:05}"
        folder.mkdir(parents=True)
        for number in range(first, min(FILES, first + FILES_PER_FOLDER)):
            (folder / f"{number % FILES_PER_FOLDER:03}").write_bytes(content(number))
    packed = measure(f"pack of {FILES} files", "pack", tmp_path / "files", tmp_path / "pack")
    assert packed.status == 0 and packed.out.startswith(f"{FILES} records in "), packed
    again = measure("second run", "pack", tmp_path / "files", tmp_path / "pack")
    assert " unchanged, " in again.out, again
    pack = open_pack(tmp_path / "pack")
    for number in {0, FILES // 2, FILES - 1}:
        key = f"{number // FILES_PER_FOLDER:05}/{number % FILES_PER_FOLDER:03}"
        assert pack[key] == pack[number] == content(number)
    began = time.monotonic()
    stream = RecordStream(tmp_path / "pack", shuffle=True, seed=1)
    seen = set()
    for key, record in stream:
        folder, _, name = key.partition("/")
        number = int(folder) * FILES_PER_FOLDER + int(name)
        assert record == content(number)
        seen.add(number)
    assert len(seen) == FILES
    print(f"\nepoch: {time.monotonic() - began:.1f} s")


@pytest.mark.parametrize("name", ["tar", "tfrecord", "har"])
def test_very_large_record(tmp_path: Path, name: str) -> None:
    expected = write_large_file(tmp_path / "files/large")
    packed = measure(
        f"pack of a large file as {name}", "pack", "--format", name, tmp_path / "files", tmp_path / "pack"
    )
    assert packed.status == 0, packed
    (tmp_path / "files/large").unlink()
    unpacked = measure("unpack", "unpack", tmp_path / "pack", tmp_path / "out")
    assert unpacked.status == 0, unpacked
    assert checksum(tmp_path / "out/large") == expected


def test_record_too_large_for_a_sequence_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    with (tmp_path / "files/large").open("wb") as f:
        f.truncate((2 << 30) + (200 << 20))
    packed = measure("refused", "pack", "--format", "sequencefile", tmp_path / "files", tmp_path / "pack")
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
