"""Packs of 20 000 files, in little memory. `make test-large` has a million."""

from __future__ import annotations

from pathlib import Path

import pytest

from openpaisdk.data import open_pack
from support.measured_command import measured_pai

pytestmark = pytest.mark.slow

FILES = 20_000
MAX_MEMORY_MB = 200


@pytest.fixture(scope="module", name="files")
def files_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half of them in one folder, the others in folders of ten."""
    folder = tmp_path_factory.mktemp("many") / "files"
    for number in range(FILES):
        path = folder / name(number)
        if number % 10 == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(number))
    return folder


def name(number: int) -> str:
    return f"flat/{number:05}" if number < FILES // 2 else f"deep/{number // 10:05}/{number % 10}"


def content(number: int) -> bytes:
    return b"%d\n" % number * (number % 7)  # some are empty


@pytest.mark.parametrize("options", [["tar", "path"], ["har", "path"], ["tfrecord", "{path}"]])
def test_many_files_are_packed_and_unpacked(files: Path, tmp_path: Path, options: list[str]) -> None:
    kind, key = options
    packed = measured_pai("pack", "--format", kind, "--key", key, files, tmp_path / "pack")
    assert packed.status == 0 and packed.out.startswith(f"{FILES} records in "), packed
    pack = open_pack(tmp_path / "pack")
    for number in (0, FILES // 2, FILES - 1):
        assert pack[name(number)] == content(number)
    unpacked = measured_pai("unpack", tmp_path / "pack", tmp_path / "back")
    assert unpacked.status == 0, unpacked
    assert all((tmp_path / "back" / name(n)).read_bytes() == content(n) for n in range(0, FILES, 37))
    assert max(packed.memory_mb, unpacked.memory_mb) < MAX_MEMORY_MB
