"""Packs: what goes in comes out, the same bytes each time, resumed after an interruption."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from openpaisdk.data import open_pack
from openpaisdk.data.packer import RESUME_HINT, PackOptions
from openpaisdk.data.record_keys import KeyRule
from openpaisdk.data.unpacker import UnpackOperation
from openpaisdk.storage.backends.local import LocalBackend, LocalSource
from paiprotocol.errors import PaiError, UsageError
from support.packed_data import KINDS, contents, make_files, pack, packing
from support.small_disk import mounted


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_comes_back(tmp_path: Path, kind) -> None:
    source = make_files(tmp_path / "source")
    manifest = pack(source, tmp_path / "pack", kind)
    assert len(manifest.shards) > 2
    opened = open_pack(tmp_path / "pack")
    files = contents(source)
    assert {key: opened[key] for key in opened.iter_keys()} == files == dict(opened)
    assert [opened[i] for i in range(len(opened))] == [content for _, content in opened]
    unpacked = UnpackOperation(opened, LocalBackend(), str(tmp_path / "out"))
    unpacked.check()
    unpacked.run()
    assert contents(tmp_path / "out") == files


@pytest.mark.parametrize("kind", KINDS)
def test_same_files_give_same_bytes(tmp_path: Path, kind) -> None:
    first, second = make_files(tmp_path / "a"), make_files(tmp_path / "b")
    for path in second.rglob("*"):
        os.utime(path, (1, 1))  # when the files were written does not matter
    pack(first, tmp_path / "a.pack", kind, jobs=1)
    pack(second, tmp_path / "b.pack", kind, jobs=3)
    shards = [
        {n: c for n, c in contents(tmp_path / p).items() if not n.endswith(".index")}
        for p in ("a.pack", "b.pack")
    ]
    assert shards[0] == shards[1]


@pytest.mark.parametrize("kind", KINDS)
def test_shards_are_readable_without_their_indexes(tmp_path: Path, kind) -> None:
    source = make_files(tmp_path / "source")
    pack(source, tmp_path / "pack", kind)
    indexed = list(open_pack(tmp_path / "pack"))
    for path in (tmp_path / "pack").glob("*.index"):
        path.unlink()
    (tmp_path / "pack" / "pack.json").unlink()
    found = open_pack(tmp_path / "pack")
    assert [content for _, content in found] == [content for _, content in indexed]
    if kind[0] != "tfrecord":  # which has no keys
        assert list(found.iter_keys()) == [key for key, _ in indexed]
    assert [content for _, content in found.scan()] == [content for _, content in indexed]


def test_second_run_keeps_shards_and_packs_changes_again(tmp_path: Path) -> None:
    source = make_files(tmp_path / "source")
    pack(source, tmp_path / "pack")
    again = packing(source, tmp_path / "pack")
    manifest = again.run()
    assert again.kept_shards == len(manifest.shards)
    (source / "class2" / "sample038.bin").write_bytes(b"changed")
    again = packing(source, tmp_path / "pack")
    manifest = again.run()
    assert 0 < again.kept_shards < len(manifest.shards)
    assert dict(open_pack(tmp_path / "pack")) == contents(source)


def test_fewer_shards_leave_no_old_ones(tmp_path: Path) -> None:
    source = make_files(tmp_path / "source")
    pack(source, tmp_path / "pack", shard_bytes=5_000)
    pack(source, tmp_path / "pack", shard_bytes=1 << 30)
    names = sorted(path.name for path in (tmp_path / "pack").iterdir())
    assert names == ["pack.json", "shard-000000.tar", "shard-000000.tar.index"]


def test_interrupted_run_is_resumed(tmp_path: Path) -> None:
    """Without its index a shard counts as incomplete; the others are not written again."""
    source = make_files(tmp_path / "source")
    manifest = pack(source, tmp_path / "pack")
    (tmp_path / "pack" / "pack.json").unlink()
    (tmp_path / "pack" / "shard-000001.tar.index").unlink()
    (tmp_path / "pack" / "shard-000001.tar").write_bytes(b"half of it")
    resumed = packing(source, tmp_path / "pack")
    resumed.run()
    assert resumed.kept_shards == len(manifest.shards) - 1
    assert dict(open_pack(tmp_path / "pack")) == contents(source)


def test_file_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    source = make_files(tmp_path / "source")
    operation = packing(source, tmp_path / "pack")
    (source / "class1" / "sample001.bin").write_bytes(b"longer than it was when it was listed" * 10)
    with pytest.raises(PaiError, match=r"sample001\.bin changed while it was packed"):
        operation.run()
    assert not (tmp_path / "pack" / "pack.json").exists()
    assert not [path for path in (tmp_path / "pack").iterdir() if "part" in path.name]


def test_file_that_vanishes_meanwhile_is_an_error(tmp_path: Path) -> None:
    # The sentence has other words than those of a copy; a path that has them stays as it is.
    source = make_files(tmp_path / "copied")
    operation = packing(source, tmp_path / "pack")
    (source / "class1" / "sample001.bin").unlink()
    with pytest.raises(PaiError, match=r"/copied/class1/sample001\.bin vanished while it was packed\."):
        operation.run()
    assert not (tmp_path / "pack" / "pack.json").exists()


def test_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch) -> None:
    """A large file is read in pieces: one that is written between two of them."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "large").write_bytes(bytes(9 << 20))
    chunks = LocalSource.chunks

    def chunks_of_a_changing_file(self, offset: int, length: int):
        for number, chunk in enumerate(chunks(self, offset, length)):
            yield chunk
            if number == 0:
                (source / "large").write_bytes(b"1" * (9 << 20))

    monkeypatch.setattr(LocalSource, "chunks", chunks_of_a_changing_file)
    with pytest.raises(PaiError, match=r"large changed while it was packed\.") as caught:
        packing(source, tmp_path / "pack").run()
    assert "run the same pai pack again" in caught.value.hint
    assert not (tmp_path / "pack" / "pack.json").exists()


def test_full_target_keeps_complete_shards(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(40):
        (source / f"{number:02}").write_bytes(os.urandom(200_000))
    with mounted(tmp_path / "disk", "size=6m") as disk:
        with pytest.raises(PaiError) as full:
            pack(source, disk / "pack", shard_bytes=1_000_000, jobs=1)
        assert full.value.code == "StorageFullError", full.value
        assert full.value.hint == f"Free some space. {RESUME_HINT}"
        complete = len(list((disk / "pack").glob("*.index")))
        assert complete > 2 and not (disk / "pack/pack.json").exists()
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        resumed = packing(source, disk / "pack", shard_bytes=1_000_000, jobs=1)
        resumed.run()
        assert resumed.kept_shards == complete
        assert dict(open_pack(disk / "pack")) == contents(source)


def test_folder_with_other_files_is_no_target(tmp_path: Path) -> None:
    source = make_files(tmp_path / "source", 3)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"has other files, such as notes\.txt"):
        pack(source, tmp_path / "target")
    assert contents(tmp_path / "target") == {"notes.txt": b"mine"}


def test_empty_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with pytest.raises(UsageError, match="has no files to pack"):
        pack(tmp_path / "source", tmp_path / "pack")


def test_keys_by_template(tmp_path: Path) -> None:
    for name in ("cats/1.jpg", "dogs/1.jpg", "dogs/.hidden"):
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    pack(tmp_path / "source", tmp_path / "pack", key="{folder}-{stem}{suffix}")
    assert list(open_pack(tmp_path / "pack").iter_keys()) == ["cats-1.jpg", "dogs-.hidden", "dogs-1.jpg"]
    with pytest.raises(UsageError, match=r"dogs/1\.jpg would have the key '1\.jpg'"):
        pack(tmp_path / "source", tmp_path / "pack2", key="name")


@pytest.mark.parametrize(
    ("rule", "problem"), [("{nothing}", "unknown field"), ("x", "no field"), ("{", "not a template")]
)
def test_wrong_template_is_refused(rule: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        KeyRule(rule)


def test_files_of_a_sample_stay_in_one_shard(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for i in range(30):
        for suffix in ("cls", "json", "png"):
            (source / f"{i:03}.{suffix}").write_bytes(b"x" * 700)
    pack(source, tmp_path / "pack", shard_bytes=8_000)
    shards = sorted((tmp_path / "pack").glob("*.tar"))
    assert len(shards) > 3
    for shard in shards:
        with tarfile.open(shard) as archive:
            names = archive.getnames()
        assert len(names) % 3 == 0 and names[0].endswith(".cls")


def test_compression_of_another_format_is_refused() -> None:
    with pytest.raises(UsageError, match="The format tar has no compression 'block-deflate'"):
        PackOptions("tar", "block-deflate", KeyRule(), 1, 1)
