"""Packs that are damaged, incomplete or hostile: an error that names the shard, never wrong records."""

import errno
import json
import os
import struct
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpaisdk.data import open_pack
from openpaisdk.data.errors import DamagedShard
from openpaisdk.data.formats.hadoop_codecs import CLASS_OF_CODEC, compress
from openpaisdk.data.formats.sequence_file import MAGIC, TEXT, vint
from openpaisdk.data.shard_packer import ShardPacker
from openpaisdk.data.unpacker import UnpackOperation
from openpaisdk.storage.backends.local import LocalBackend
from paiprotocol.errors import PaiError, UsageError
from support.packed_data import KINDS, contents, make_files, pack, packing


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_byte_is_reported_with_its_record(tmp_path: Path, kind) -> None:
    source = make_files(tmp_path / "source")
    pack(source, tmp_path / "pack", kind, shard_bytes=1 << 30)
    opened = open_pack(tmp_path / "pack")
    victim = opened.number_of("class2/sample038.bin")
    shard = next(path for path in (tmp_path / "pack").iterdir() if path.name in opened.names)
    data = bytearray(shard.read_bytes())
    offset = opened._index(0).offsets[victim]
    data[offset + opened._index(0).lengths[victim] // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DamagedShard) as caught:
        open_pack(tmp_path / "pack").read(victim)
    assert shard.name in caught.value.message and f"record {victim} at byte {offset}" in caught.value.message


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_shard_is_an_error_at_any_length(tmp_path: Path, kind) -> None:
    source = make_files(tmp_path / "source", 8)
    pack(source, tmp_path / "pack", kind, shard_bytes=1 << 30)
    shard = next(
        path
        for path in (tmp_path / "pack").iterdir()
        if path.name.startswith(("shard", "part")) and path.suffix != ".index"
    )
    whole = shard.read_bytes()
    expected = [content for _, content in open_pack(tmp_path / "pack")]
    for length in {1, 5, 100, len(whole) // 2, len(whole) - 1}:
        shard.write_bytes(whole[:length])
        with pytest.raises(DamagedShard, match=f"has {length} bytes"):
            open_pack(tmp_path / "pack").read(0)
        # Without the index: an error, or fewer records, but never a wrong one.
        found = []
        try:
            for _, content in open_pack(tmp_path / "pack").scan():
                found.append(content)
        except DamagedShard as e:
            assert shard.name in e.message
        assert found == expected[: len(found)]


def test_missing_index_is_an_error_where_the_keys_were_only_there(tmp_path: Path) -> None:
    pack(make_files(tmp_path / "source"), tmp_path / "pack", ("tfrecord", "none"))
    (tmp_path / "pack" / "shard-000001.tfrecord.index").unlink()
    unpacked = UnpackOperation(open_pack(tmp_path / "pack"), LocalBackend(), str(tmp_path / "out"))
    with pytest.raises(DamagedShard, match=r"shard-000001\.tfrecord\.index: the index is missing"):
        unpacked.check()


@pytest.mark.parametrize("kind", KINDS)
def test_disk_error_names_the_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind) -> None:
    pack(make_files(tmp_path / "source"), tmp_path / "pack", kind, shard_bytes=1 << 30)
    opened = open_pack(tmp_path / "pack")
    victim = opened.number_of("class2/sample038.bin")  # the index is readable
    _fail_to_read(monkeypatch)
    message = (
        rf"/({opened.names[0]}|_index): input/output error\."  # a Hadoop archive is scanned by its _index
    )
    for read in (opened.__iter__, lambda: opened.read(victim), lambda: opened.stream(victim), opened.scan):
        with pytest.raises(PaiError, match=message):
            list(read())


def test_disk_error_names_the_file_that_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "large.bin").write_bytes(bytes(3 << 20))
    operation = packing(source, tmp_path / "pack")
    _fail_to_read(monkeypatch)
    with pytest.raises(PaiError, match=r"/source/large\.bin: input/output error\."):
        operation.run()


def _fail_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every positioned read fail as those of a broken disk do."""

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    monkeypatch.setattr(os, "preadv", fail)


# Reads a shard, and prints how much memory that took in all.
READ_SHARD = """
import re, sys
from openpaisdk.data import open_pack
from paiprotocol.errors import PaiError
try:
    pack = open_pack(sys.argv[1])
    print(sum(len(chunk) for i in range(len(pack)) for chunk in pack.stream(i)))
except PaiError as e:
    print(e.message)
# Not ru_maxrss, which counts the process that started this one.
print(int(re.search("VmHWM:[^0-9]+([0-9]+) kB", open("/proc/self/status").read())[1]) >> 10)
"""


def read_in_little_memory(shard: Path) -> str:
    command = [sys.executable, "-c", READ_SHARD, str(shard)]
    result, memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert int(memory) < 200
    return result


def foreign_shard(path: Path, codec: str, *, by_block: bool, parts: list[bytes], records: int = 1) -> Path:
    """A SequenceFile of one record or block, as another program may have written it."""
    sync = bytes(16)
    with path.open("wb") as f:
        f.write(MAGIC + b"".join(vint(len(name)) + name.encode() for name in (TEXT, TEXT)))
        name = CLASS_OF_CODEC[codec]
        f.write(bytes([1, by_block]) + vint(len(name)) + name.encode() + bytes(4) + sync)
        if by_block:
            f.write(b"\xff" * 4 + sync + vint(records))
            for part in parts:
                f.write(vint(len(part)) + part)
        else:
            key, value = parts
            f.write(struct.pack(">ii", len(key) + len(value), len(key)) + key + value)
    return path


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "zstd"])
@pytest.mark.parametrize("by_block", [False, True])
def test_data_that_decompresses_to_gigabytes_is_refused(tmp_path: Path, codec: str, by_block: bool) -> None:
    size = 100 << 20
    bomb = compress(codec, vint(size) + bytes(size))
    key = vint(1) + b"k"
    small = [compress(codec, each) for each in (vint(2), key, vint(size + 5))]
    shard = foreign_shard(
        tmp_path / "bomb.seq", codec, by_block=by_block, parts=[*small, bomb] if by_block else [key, bomb]
    )
    assert shard.stat().st_size < 1 << 20
    result = read_in_little_memory(shard)
    assert result.startswith(f"{shard}, record 0 at byte "), result
    assert result.endswith(": it becomes larger than 33 MB when it is decompressed, and is not read."), result


def test_block_without_records_is_an_error(tmp_path: Path) -> None:
    parts = [compress("deflate", b"")] * 4
    shard = foreign_shard(tmp_path / "empty.seq", "deflate", by_block=True, parts=parts, records=0)
    result = read_in_little_memory(shard)
    assert result.startswith(f"{shard}, record 0 at byte "), result
    assert result.endswith(": a block has no records."), result


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [("tar", "none"), ("tfrecord", "none"), ("har", "none"), ("sequencefile", "none")]
)
def test_large_record_of_a_shard_without_an_index_is_streamed(tmp_path: Path, kind) -> None:
    (tmp_path / "source").mkdir()
    with (tmp_path / "source/large").open("wb") as f:
        f.truncate(300 << 20)
    pack(tmp_path / "source", tmp_path / "pack", kind, shard_bytes=1 << 30)
    for path in (tmp_path / "pack").iterdir():
        if path.suffix == ".index" or path.name == "pack.json":
            path.unlink()
    assert read_in_little_memory(tmp_path / "pack") == str(300 << 20)


def test_hint_for_a_damaged_shard_repairs_it(tmp_path: Path) -> None:
    """A shard of the right size is kept by a later run: it has to be deleted."""
    source = make_files(tmp_path / "source")
    pack(source, tmp_path / "pack")
    shard = tmp_path / "pack/shard-000001.tar"
    content = bytearray(shard.read_bytes())
    content[600] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DamagedShard) as caught:
        dict(open_pack(tmp_path / "pack"))
    assert "delete it and run the same pai pack again" in caught.value.hint
    shard.unlink()
    pack(source, tmp_path / "pack")
    assert dict(open_pack(tmp_path / "pack")) == contents(source)


def test_damaged_index_is_an_error(tmp_path: Path) -> None:
    pack(make_files(tmp_path / "source", 5), tmp_path / "pack")
    index = tmp_path / "pack" / "shard-000000.tar.index"
    for data in (index.read_bytes()[:-9], b"", index.read_bytes().replace(b"class0", b"class9")):
        index.write_bytes(data)
        with pytest.raises(DamagedShard, match=r"shard-000000\.tar\.index"):
            open_pack(tmp_path / "pack").read(0)


def test_index_of_another_version_says_so_and_is_packed_again(tmp_path: Path) -> None:
    source = make_files(tmp_path / "source", 5)
    pack(source, tmp_path / "pack")
    index = tmp_path / "pack" / "shard-000000.tar.index"
    index.write_bytes(index.read_bytes().replace(b"PAI shard index 2\n", b"PAI shard index 1\n"))
    with pytest.raises(PaiError, match=r"000000\.tar\.index was written by another version .*1\)") as caught:
        open_pack(tmp_path / "pack").read(0)
    assert not isinstance(caught.value, DamagedShard) and "pai pack again" in caught.value.hint
    pack(source, tmp_path / "pack")
    assert dict(open_pack(tmp_path / "pack")) == contents(source)


def test_index_of_another_shard_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(12):
        (tmp_path / "source" / f"{number:02}").write_bytes(os.urandom(1000))
    (tmp_path / "source" / "12").write_bytes(os.urandom(2000))
    pack(tmp_path / "source", tmp_path / "pack", shard_bytes=8_000)
    first, second, *_, last = sorted((tmp_path / "pack").glob("*.index"))
    for other, said in [
        (second, r"shard-000000\.tar, record 0 at byte 512: the content does not have the CRC of the index"),
        (last, r"shard-000000\.tar\.index: it has \d records, and pack\.json has \d"),
    ]:
        before = first.read_bytes()
        first.write_bytes(other.read_bytes())
        with pytest.raises(DamagedShard, match=said):
            open_pack(tmp_path / "pack").read(0)
        first.write_bytes(before)
    first.write_bytes(last.read_bytes())
    with pytest.raises(DamagedShard, match=r"it has \d+ bytes, and its index is of \d+ bytes"):
        open_pack(tmp_path / "pack" / "shard-000000.tar").read(0)


def test_interrupted_second_run_is_an_error_where_records_differ(tmp_path: Path) -> None:
    """Its shards are new, pack.json is old."""
    source = make_files(tmp_path / "source")
    pack(source, tmp_path / "pack")
    old = (tmp_path / "pack" / "pack.json").read_bytes()
    (source / "added").write_text("new")
    pack(source, tmp_path / "pack")
    (tmp_path / "pack" / "pack.json").write_bytes(old)
    with pytest.raises(DamagedShard, match=r"and pack\.json has") as caught:
        list(open_pack(tmp_path / "pack"))
    assert "delete it and run the same pai pack again" in caught.value.hint


@pytest.mark.parametrize("kind", [("tar", "none"), ("har", "none")])
def test_interrupted_second_run_is_an_error_where_counts_agree(tmp_path: Path, monkeypatch, kind) -> None:
    """Every file moves by one place: the second shard, still old, lacks the last one of the first."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(1, 13):
        (source / f"{number:02}").write_bytes(os.urandom(1000))
    pack(source, tmp_path / "pack", kind, shard_bytes=8_000, jobs=1)
    before = contents(tmp_path / "pack")
    pack(source, tmp_path / "pack", kind, shard_bytes=8_000, jobs=1)
    assert contents(tmp_path / "pack") == before  # nothing changed, nothing is removed
    (source / "12").rename(source / "00")

    write_shard = ShardPacker.write

    def write_only_the_first(self, shard, advance):
        if shard.number:
            raise KeyboardInterrupt
        return write_shard(self, shard, advance)

    with monkeypatch.context() as patch:
        patch.setattr(ShardPacker, "write", write_only_the_first)
        with pytest.raises(KeyboardInterrupt):
            pack(source, tmp_path / "pack", kind, shard_bytes=8_000, jobs=1)
    with pytest.raises(PaiError, match="is an unfinished pack") as caught:
        open_pack(tmp_path / "pack")
    assert "pai pack" in caught.value.hint
    assert not {"pack.json", "_index", "_masterindex"} & set(contents(tmp_path / "pack"))
    resumed = packing(source, tmp_path / "pack", kind, shard_bytes=8_000, jobs=1)
    resumed.run()
    assert resumed.kept_shards == 1
    assert dict(open_pack(tmp_path / "pack")) == contents(source)


@pytest.fixture(name="listing")
def listing_fixture(monkeypatch) -> Iterator[threading.Event]:
    """The last folder of the source is listed when this is set, and then fails."""
    go_on = threading.Event()
    walk = LocalBackend.walk

    def walk_until_the_last(self, path, max_files=0):
        *folders, last = walk(self, path, max_files)
        yield from folders
        assert go_on.wait(60)
        raise PaiError(f"{last.path} cannot be read.")

    monkeypatch.setattr(LocalBackend, "walk", walk_until_the_last)
    yield go_on
    go_on.set()


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("kind", [("tar", "none"), ("har", "none")])
def test_error_of_the_listing_leaves_a_complete_pack(tmp_path: Path, request, kind, jobs: int) -> None:
    source = make_files(tmp_path / "source")
    pack(source, tmp_path / "pack", kind, shard_bytes=8_000)
    before = contents(tmp_path / "pack")
    (source / "empty").write_text("no longer empty: the first shard changes")
    listing = request.getfixturevalue("listing")
    operation = packing(source, tmp_path / "pack", kind, shard_bytes=8_000, jobs=jobs, first_files=1)
    with pytest.raises(PaiError, match="class2 cannot be read"):
        operation.run(lambda _: listing.set())
    assert contents(tmp_path / "pack") == before


def test_new_pack_is_begun_before_all_files_are_listed(tmp_path: Path, listing) -> None:
    operation = packing(make_files(tmp_path / "source"), tmp_path / "pack", shard_bytes=8_000, first_files=1)

    def go_on_after_a_shard(progress) -> None:
        if progress.files:
            listing.set()

    with pytest.raises(PaiError, match="class2 cannot be read"):
        operation.run(go_on_after_a_shard)
    assert (tmp_path / "pack" / "shard-000000.tar.index").exists()


@pytest.mark.usefixtures("listing")
def test_error_ends_threads_that_wait_for_the_listing(tmp_path: Path, monkeypatch) -> None:
    def fail(self, shard, advance):
        while not operation._shards_lock.locked():  # the other thread asks for its shard
            assert time.monotonic() - began < 30
            time.sleep(0.01)
        raise PaiError("The target failed.")

    monkeypatch.setattr(ShardPacker, "write", fail)
    monkeypatch.setattr("openpaisdk.data.shard_process._can_pack", lambda packer: False)
    # One shard for two threads, until the last folder is listed.
    operation = packing(make_files(tmp_path / "source"), tmp_path / "pack", shard_bytes=50_000, first_files=1)
    began = time.monotonic()
    with pytest.raises(PaiError, match=r"The target failed\."):
        operation.run()
    assert time.monotonic() - began < 30  # not as long as the listing takes


def test_interrupted_first_run_is_an_error(tmp_path: Path) -> None:
    source = make_files(tmp_path / "source")
    operation = packing(source, tmp_path / "pack", jobs=1)
    (source / "class2" / "sample038.bin").unlink()  # it would be in the last shard
    with pytest.raises(PaiError, match=r"sample038\.bin"):
        operation.run()
    assert (tmp_path / "pack" / "shard-000000.tar").exists()
    with pytest.raises(PaiError, match="is an unfinished pack"):
        open_pack(tmp_path / "pack")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 1}',
        '{"version": 1, "format": "tar", "compression": "none", "shards": '
        '[{"name": "../x.tar", "records": 1, "bytes": 1}]}',
    ],
)
def test_damaged_manifest_is_an_error(tmp_path: Path, text: str) -> None:
    pack(make_files(tmp_path / "source", 5), tmp_path / "pack")
    (tmp_path / "pack" / "pack.json").write_text(text)
    with pytest.raises(PaiError, match="does not describe a pack"):
        open_pack(tmp_path / "pack")


def test_pack_of_a_later_version_says_so(tmp_path: Path) -> None:
    pack(make_files(tmp_path / "source", 5), tmp_path / "pack")
    manifest = json.loads((tmp_path / "pack" / "pack.json").read_text())
    (tmp_path / "pack" / "pack.json").write_text(json.dumps({**manifest, "version": 2}))
    with pytest.raises(PaiError, match="later version"):
        open_pack(tmp_path / "pack")


@pytest.mark.parametrize("name", ["../outside", "/absolute", "a/../../b", "a//b"])
def test_keys_that_lead_out_of_the_target_are_refused(tmp_path: Path, name: str) -> None:
    """A shard of another program may hold anything."""
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        member = tarfile.TarInfo(name)
        archive.addfile(member)
    with pytest.raises(PaiError, match="cannot be unpacked"):
        UnpackOperation(open_pack(tmp_path / "evil.tar"), LocalBackend(), str(tmp_path / "out")).check()


def test_what_is_not_a_pack_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(UsageError, match="is not a pack"):
            open_pack(path)
    with pytest.raises(UsageError, match="there is no such file"):
        open_pack(tmp_path / "absent")


def test_unknown_records_are_python_errors(tmp_path: Path) -> None:
    pack(make_files(tmp_path / "source", 5), tmp_path / "pack")
    opened = open_pack(tmp_path / "pack")
    with pytest.raises(KeyError, match="no record with the key 'absent'"):
        opened["absent"]
    with pytest.raises(IndexError, match="numbered from 0"):
        opened[len(opened)]
    assert opened[-1] == opened[len(opened) - 1]
