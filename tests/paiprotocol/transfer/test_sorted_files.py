"""Files of one folder in order, however many of them fit into memory."""

import os
import tempfile
from pathlib import Path

import pytest

from openpaisdk.storage.local_walk import walk
from paiprotocol.errors import STORAGE_FULL, PaiError
from paiprotocol.transfer.sorted_files import SortedFiles
from support.small_disk import mounted

NAMES = [f"{number * 7919 % 1000:03}" for number in range(1000)]
LATIN = os.fsdecode(b"latin\xe9")


def collect(names: list[str], max_files: int) -> list[tuple[dict[str, tuple[int, int, int]], bool]]:
    files = SortedFiles(max_files)
    for number, name in enumerate(names):
        files.add(name, (number, number << 40, 0o644))
    return list(files.blocks())


@pytest.mark.parametrize("max_files", [1, 3, 300, 999, 1000])
def test_blocks_are_sorted_and_bounded(max_files: int) -> None:
    blocks = collect(NAMES, max_files)
    assert [name for block, _ in blocks for name in block] == sorted(NAMES)
    assert [len(block) for block, _ in blocks[:-1]] == [max_files] * (len(blocks) - 1)
    assert [is_last for _, is_last in blocks] == [False] * (len(blocks) - 1) + [True]
    assert all(
        block[name] == (NAMES.index(name), NAMES.index(name) << 40, 0o644)
        for block, _ in blocks
        for name in block
    )


@pytest.mark.parametrize("max_files", [0, 1001])
def test_few_files_are_one_block(max_files: int) -> None:
    ((files, is_last),) = collect(NAMES, max_files)
    assert is_last and sorted(files) == sorted(NAMES)


def test_folder_without_files_is_one_empty_block() -> None:
    assert collect([], 0) == collect([], 5) == [({}, True)]


def test_name_that_is_listed_twice_comes_once() -> None:
    blocks = collect(["b", "a", "b", LATIN, "a"], 2)
    assert [name for block, _ in blocks for name in block] == ["a", "b", LATIN]


def test_full_temporary_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "listed"
    listed.mkdir()
    for number in range(1000):
        (listed / f"{number:0200}").touch()
    with mounted(tmp_path / "small", "size=64k") as small:
        monkeypatch.setattr(tempfile, "tempdir", str(small))
        with pytest.raises(PaiError, match=f"temporary folder {small} .TMPDIR. has no space") as caught:
            list(walk(str(listed), max_files=100))
    assert caught.value.code == STORAGE_FULL and "TMPDIR" in caught.value.hint


def test_missing_temporary_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/absent/folder")
    with pytest.raises(PaiError, match="temporary folder /absent/folder"):
        collect(NAMES, 300)
