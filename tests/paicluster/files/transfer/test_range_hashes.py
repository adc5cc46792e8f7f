"""Range hash cache: a cached hash matches the bytes or is recomputed."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

from openpaisdk.storage.backends.base import PART_BYTES
from openpaisdk.storage.backends.cluster import ClusterBackend
from paicluster.files.transfer.range_hashes import RangeHash, RangeHashCache
from paiprotocol.errors import ConnectionFailed
from paiprotocol.transfer import hashing
from support.cli_user import until
from support.cluster_storage import storage_of
from support.team_cluster import TeamCluster

CONTENT = os.urandom(1 << 20) * 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "f").write_bytes(b"content")
    return tmp_path / "f"


def cache_of_any_age(max_entries: int = 10) -> RangeHashCache:
    """A cache for which the file just written is old enough."""
    return RangeHashCache(max_entries, min_file_age_ns=-(10**9))


def send(cache: RangeHashCache, path: Path, *, recompute: bool = False) -> tuple[bool, bytes]:
    """Whether the bytes had to be hashed, and the hash that was sent."""
    with path.open("rb") as f:
        range_hash = RangeHash(cache, f.fileno(), 0, 7, hashing.XXH3, recompute=recompute)
        if range_hash.hasher is not None:
            range_hash.hasher.update(f.read(7))
        return range_hash.hasher is not None, range_hash.digest(f.fileno())


def test_second_send_uses_the_cached_hash(path: Path) -> None:
    cache, right = cache_of_any_age(), hashing.hash_bytes(b"content", hashing.XXH3)
    assert [send(cache, path) for _ in range(2)] == [(True, right), (False, right)]
    assert send(cache, path, recompute=True) == (True, right)


def test_new_content_with_old_mtime_is_hashed_again(path: Path) -> None:
    cache = cache_of_any_age()
    send(cache, path)
    before = path.stat()
    path.write_bytes(b"CONTENT")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert send(cache, path) == (True, hashing.hash_bytes(b"CONTENT", hashing.XXH3))


def test_recently_written_file_is_not_cached(path: Path) -> None:
    cache = RangeHashCache(min_file_age_ns=60 * 10**9)
    assert [send(cache, path)[0] for _ in range(2)] == [True, True]


def test_file_changed_while_sent_is_not_cached(path: Path) -> None:
    cache = cache_of_any_age()
    with path.open("r+b") as f:
        range_hash = RangeHash(cache, f.fileno(), 0, 7, hashing.XXH3)
        f.write(b"C")
        f.flush()
        range_hash.digest(f.fileno())
    assert send(cache, path)[0]


def test_cache_evicts_the_least_recently_used(path: Path) -> None:
    cache = cache_of_any_age(2)
    for name in "abc":
        path.with_name(name).write_bytes(b"content")
    assert [send(cache, path.with_name(name))[0] for name in "abacab"] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("method", ["copy", "stream"])
def test_stale_cached_hash_is_detected_and_recomputed(team: TeamCluster, tmp_path: Path, method: str) -> None:
    """A process that has mapped a file can write to it without changing its timestamps."""
    alice = storage_of(team, "alice", over_http=True)
    (tmp_path / "f").write_bytes(CONTENT)
    alice.upload(str(tmp_path / "f"), "/user/alice/mapped")
    on_disk = team.home / "storage/user/alice/mapped"
    with on_disk.open("r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
        mapped[0] ^= 1
        until(lambda: time.time_ns() > os.fstat(f.fileno()).st_ctime_ns + 1.1e9)
        alice.download("/user/alice/mapped", str(tmp_path / "back"))
        before = os.fstat(f.fileno()).st_ctime_ns
        mapped[1] ^= 1
        is_silent = os.fstat(f.fileno()).st_ctime_ns == before
        now = bytes(mapped[:])
        if method == "copy":
            (tmp_path / "back").unlink()
            alice.download("/user/alice/mapped", str(tmp_path / "back"))
            assert (tmp_path / "back").read_bytes() == now
            return
        backend = alice.backend
        assert isinstance(backend, ClusterBackend)
        if is_silent:  # else the kernel wrote it back meanwhile and changed the ctime
            with pytest.raises(ConnectionFailed):
                first_part(backend)
        assert first_part(backend) == now[:PART_BYTES]


def first_part(backend: ClusterBackend) -> bytes:
    return b"".join(map(bytes, backend.read("/user/alice/mapped", 0, PART_BYTES)))
