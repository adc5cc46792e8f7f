"""Hashes of what was sent are remembered: they belong to the bytes, or are made anew."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

from openpaisdk.errors import ConnectionFailed
from openpaisdk.fileio import hashing
from openpaisdk.storage.backends.base import PART_BYTES
from openpaisdk.storage.backends.cluster import ClusterBackend
from paicluster.files.transfer import range_hashes
from paicluster.files.transfer.range_hashes import RangeHash, RangeHashCache
from support.cli_user import until
from support.cluster_storage import storage_of
from support.team_cluster import TeamCluster

CONTENT = os.urandom(1 << 20) * 20


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that was written some time ago."""
    monkeypatch.setattr(range_hashes, "_MIN_FILE_AGE_NS", -(10**9))
    (tmp_path / "f").write_bytes(b"content")
    return tmp_path / "f"


def sent(known: RangeHashCache, path: Path, *, fresh: bool = False) -> tuple[bool, bytes]:
    """Whether its bytes had to be looked at, and the hash that went after them."""
    with path.open("rb") as f:
        proof = RangeHash(known, f.fileno(), 0, 7, hashing.XXH3, recompute=fresh)
        if proof.hasher is not None:
            proof.hasher.update(f.read(7))
        return proof.hasher is not None, proof.digest(f.fileno())


def test_what_is_sent_again_is_not_looked_at_again(path: Path) -> None:
    known, right = RangeHashCache(), hashing.hash_bytes(b"content", hashing.XXH3)
    assert [sent(known, path) for _ in range(2)] == [(True, right), (False, right)]
    assert sent(known, path, fresh=True) == (True, right)


def test_another_content_has_another_hash_even_with_the_time_of_the_old_one(path: Path) -> None:
    known = RangeHashCache()
    sent(known, path)
    before = path.stat()
    path.write_bytes(b"CONTENT")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sent(known, path) == (True, hashing.hash_bytes(b"CONTENT", hashing.XXH3))


def test_what_was_written_a_moment_ago_is_looked_at_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_hashes, "_MIN_FILE_AGE_NS", 60 * 10**9)
    known = RangeHashCache()
    assert [sent(known, path)[0] for _ in range(2)] == [True, True]


def test_what_changes_while_it_is_sent_is_not_remembered(path: Path) -> None:
    known = RangeHashCache()
    with path.open("r+b") as f:
        proof = RangeHash(known, f.fileno(), 0, 7, hashing.XXH3)
        f.write(b"C")
        f.flush()
        proof.digest(f.fileno())
    assert sent(known, path)[0]


def test_only_the_last_ones_are_kept(path: Path) -> None:
    known = RangeHashCache(2)
    for name in "abc":
        path.with_name(name).write_bytes(b"content")
    assert [sent(known, path.with_name(name))[0] for name in "abacab"] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("way", ["a copy", "a stream"])
def test_a_hash_that_is_not_right_any_more_is_noticed_and_made_anew(
    team: TeamCluster, tmp_path: Path, way: str
) -> None:
    """Whoever has mapped a file of the storage can write to it without the file having another time."""
    alice = storage_of(team, "alice", over_http=True)
    (tmp_path / "f").write_bytes(CONTENT)
    alice.upload(str(tmp_path / "f"), "/user/alice/mapped")
    there = team.home / "storage/user/alice/mapped"
    with there.open("r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
        mapped[0] ^= 1
        until(lambda: time.time_ns() > os.fstat(f.fileno()).st_ctime_ns + 1.1e9)
        alice.download("/user/alice/mapped", str(tmp_path / "back"))
        before = os.fstat(f.fileno()).st_ctime_ns
        mapped[1] ^= 1
        is_silent = os.fstat(f.fileno()).st_ctime_ns == before
        now = bytes(mapped[:])
        if way == "a copy":
            (tmp_path / "back").unlink()
            alice.download("/user/alice/mapped", str(tmp_path / "back"))
            assert (tmp_path / "back").read_bytes() == now
            return
        backend = alice.backend
        assert isinstance(backend, ClusterBackend)
        if is_silent:  # else the kernel wrote it to the disk meanwhile, and noticed
            with pytest.raises(ConnectionFailed):
                first_part(backend)
        assert first_part(backend) == now[:PART_BYTES]


def first_part(backend: ClusterBackend) -> bytes:
    return b"".join(map(bytes, backend.read("/user/alice/mapped", 0, PART_BYTES)))
