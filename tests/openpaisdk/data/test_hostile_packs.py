"""Packs that were made to harm their reader: an error in bounded memory, never a traceback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openpaisdk.data import open_pack
from openpaisdk.data.unpacker import UnpackOperation
from openpaisdk.storage.backends.local import LocalBackend
from paiprotocol.errors import PaiError
from support.hostile_tar import MEMBER_KINDS, block, write_endless_header
from support.packed_data import KINDS, make_files, pack

# Unpacks a pack, and prints what was wrong with it and how much memory that took.
UNPACK = """
import re, sys
from openpaisdk.cli.storage.pack import unpack
from paiprotocol.errors import PaiError
try:
    unpack(sys.argv[1:])
except PaiError as e:
    print(e.message)
# Not ru_maxrss, which counts the process that started this one.
print(int(re.search("VmHWM:[^0-9]+([0-9]+) kB", open("/proc/self/status").read())[1]) >> 10)
"""


def unpack(source: Path, target: Path) -> None:
    operation = UnpackOperation(open_pack(source), LocalBackend(), str(target))
    operation.check()
    operation.run()


@pytest.mark.parametrize("kind", MEMBER_KINDS)
def test_header_of_gigabytes_is_an_error_in_little_memory(tmp_path: Path, kind: bytes) -> None:
    shard = write_endless_header(tmp_path / "evil.tar", kind)
    command = [sys.executable, "-c", UNPACK, str(shard), str(tmp_path / "out")]
    message, memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert int(memory) < 200
    assert message.startswith(f"{shard}: this is not a whole tar file (the headers of a member have more")
    assert not (tmp_path / "out").exists()


def test_negative_size_is_an_error(tmp_path: Path) -> None:
    shard = tmp_path / "evil.tar"
    shard.write_bytes(block(b"a", tarfile.REGTYPE, -512) + bytes(1024))
    with pytest.raises(PaiError, match="a member has a negative size"):
        unpack(shard, tmp_path / "out")


def test_sparse_file_is_an_error(tmp_path: Path) -> None:
    """Its stored bytes are not its content."""
    shard = tmp_path / "evil.tar"
    shard.write_bytes(block(b"a", tarfile.GNUTYPE_SPARSE, 512) + bytes(512 + 1024))
    with pytest.raises(PaiError, match="'a' is a sparse file"):
        unpack(shard, tmp_path / "out")


def test_key_of_thousands_of_folders_is_unpacked(tmp_path: Path) -> None:
    shard = make_shard(tmp_path / "deep.tar", "d/" * 1500 + "x")
    target = tmp_path / "out"
    unpack(shard, target)
    assert Path(f"{target}/{'d/' * 1500}x").is_file()
    LocalBackend().delete(str(target))


def test_key_that_no_file_system_has_is_an_error(tmp_path: Path) -> None:
    shard = make_shard(tmp_path / "deep.tar", "d/" * 20_000 + "x")
    with pytest.raises(PaiError, match="file name too long"):
        unpack(shard, tmp_path / "out")


def make_shard(path: Path, name: str) -> Path:
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return path


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"version": ' + "9" * 5000 + "}",
        '{"version": 1e999}',
        '{"version": 1, "format": "tar", "compression": "none", "shards": '
        '[{"name": "shard-000000.tar", "records": -5, "bytes": 1}]}',
        '{"version": 1, "format": "tar", "compression": "none", "shards": '
        '[{"name": "shard-000000.tar", "records": 1e30, "bytes": 1}]}',
    ],
)
def test_hostile_manifest_is_an_error(tmp_path: Path, text: str) -> None:
    pack(make_files(tmp_path / "source", 5), tmp_path / "pack")
    (tmp_path / "pack" / "pack.json").write_text(text)
    with pytest.raises(PaiError, match="pack"):
        unpack(tmp_path / "pack", tmp_path / "out")


NUMBERS = st.sampled_from([-1, 0, 1, 7, 2**31, 2**62, 10**30, 1e30, None, "x", True, [], {}])
HEADER_CHANGES = st.dictionaries(
    st.sampled_from(["records", "compressed", "shardBytes"]), NUMBERS, max_size=2
)
BYTE_CHANGES = st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), max_size=5)


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """A pack of each kind."""
    folder = tmp_path_factory.mktemp("packs")
    source = make_files(folder / "source", 8)
    made = {}
    for number, kind in enumerate(KINDS):
        made[kind] = folder / str(number)
        pack(source, made[kind], kind, shard_bytes=1 << 30)
    return made


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(KINDS),
    which=st.integers(0, 9),
    with_indexes=st.booleans(),
    changes=BYTE_CHANGES,
    header=HEADER_CHANGES,
)
def test_any_change_of_a_pack_is_an_error_or_harmless(
    packs, tmp_path: Path, kind, which: int, with_indexes: bool, changes, header
) -> None:
    target = tmp_path / "pack"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(packs[kind], target)
    if not with_indexes:
        for path in target.iterdir():
            if path.suffix == ".index" or path.name == "pack.json":
                path.unlink()
    files = sorted(target.iterdir())
    file = files[which % len(files)]
    data = bytearray(file.read_bytes())
    if file.suffix == ".index":
        data = bytearray(with_header(bytes(data), header))
    for at, value in changes:
        data[at % len(data)] = value
    if file.suffix == ".index":
        # The checksum is right: a program that makes such an index computes it.
        data[-4:] = zlib.crc32(data[:-4]).to_bytes(4, "little")
    file.write_bytes(data)
    try:
        unpack(target, tmp_path / "out")
    except PaiError as e:
        assert e.message
    finally:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


def with_header(index: bytes, changes: dict[str, object]) -> bytes:
    """The index with other values in its header."""
    magic, line, rest = index.split(b"\n", 2)
    return b"\n".join((magic, json.dumps({**json.loads(line), **changes}).encode(), rest))
