"""Packs of small files: each file is written atomically, with and without O_TMPFILE."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpaisdk.storage.backends import local
from openpaisdk.storage.backends.local import LocalBackend
from paicluster.files import Storage, StorageUser, ownership
from paicluster.files.paths import split_path
from paicluster.files.transfer import packs
from paicluster.files.transfer.unpublished_folder import UnpublishedFolder, open_unpublished
from paiprotocol.errors import PaiError
from paiprotocol.transfer import hashing
from paiprotocol.transfer.pack_format import (
    FILE,
    MAX_PACKED_FILE_BYTES,
    PackRecord,
    end_record,
    record_header,
)
from pairuntime.local_files.syscall_lock import LOCK_TIMEOUT_S, SyscallLock
from support.cluster_storage import ALICE


@pytest.fixture(params=["with O_TMPFILE", "without O_TMPFILE"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "without" in request.param:
        monkeypatch.setattr(packs, "_UNNAMED", os.O_WRONLY)
        monkeypatch.setattr(local, "_TMPFILE_FLAGS", os.O_WRONLY)


def pack(*files: tuple[str, bytes]) -> bytes:
    data_of_pack = b""
    for name, data in files:
        digest = hashing.hash_bytes(data, hashing.XXH3)
        data_of_pack += (
            record_header(PackRecord(FILE, name, data, mode=0o640, mtime_ns=10**18 + 1, digest=digest)) + data
        )
    return data_of_pack + end_record(len(files))


def content(storage: Storage, path: str) -> bytes:
    return (storage.root / path.lstrip("/")).read_bytes()


def staging_files(storage: Storage) -> list[str]:
    return [*os.listdir(storage.root / ".pai/staged"), *storage.staging_area.active]


@pytest.mark.usefixtures("disk")
def test_pack_replaces_existing_files(storage: Storage) -> None:
    # Longer than one write call.
    long = os.urandom(300 << 10)
    assert packs.write_pack(storage, ALICE, "/user/alice", pack(("a", b"old"), ("d/e/b", long))) == []
    old_file = (storage.root / "user/alice/a").open("rb")
    assert packs.write_pack(storage, ALICE, "/user/alice", pack(("a", b"new"), ("d/e/c", b""))) == []
    with old_file:
        assert old_file.read() == b"old"
    assert content(storage, "/user/alice/a") == b"new"
    assert content(storage, "/user/alice/d/e/b") == long
    assert content(storage, "/user/alice/d/e/c") == b""
    entry = storage.status("/user/alice/a", ALICE)
    assert (entry.ownership.owner, entry.ownership.mode) == ("alice", 0o640)
    assert (storage.root / "user/alice/a").stat().st_mtime_ns == 10**18 + 1
    assert staging_files(storage) == []


@pytest.mark.usefixtures("disk")
def test_pack_without_overwrite_keeps_files_of_others_and_finds_its_own(storage: Storage) -> None:
    def write(*files: tuple[str, bytes]) -> list[dict[str, Any]]:
        return packs.write_pack(storage, ALICE, "/user/alice", pack(*files), overwrite=False)

    (storage.root / "user/alice/theirs").write_bytes(b"not mine")
    before = storage.usage.used_by(["alice"])
    [problem] = write(("theirs", b"mine"), ("own", b"1234"))
    assert problem["name"] == "theirs" and "already exists" in problem["message"]
    assert content(storage, "/user/alice/theirs") == b"not mine"
    # As after a response that was lost.
    assert write(("own", b"1234")) == []
    assert content(storage, "/user/alice/own") == b"1234"
    assert storage.usage.used_by(["alice"]) == before + 4
    assert staging_files(storage) == []


@pytest.mark.usefixtures("disk")
def test_pack_file_does_not_replace_a_folder(storage: Storage) -> None:
    packs.write_pack(storage, ALICE, "/user/alice", pack(("d/f", b"1")))
    before = storage.usage.used_by(["alice"])
    [problem] = packs.write_pack(storage, ALICE, "/user/alice", pack(("d", b"2")))
    assert problem["code"] == "ConflictFileError"
    assert storage.usage.used_by(["alice"]) == before
    assert staging_files(storage) == []


def test_new_folder_appears_with_all_its_files(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    publish = UnpublishedFolder.publish

    def list_then_publish(folder: UnpublishedFolder) -> None:
        seen.append(sorted(os.listdir(storage.root / "user/alice/old")))
        publish(folder)
        seen.append(sorted(os.listdir(storage.root / "user/alice/old/new")))

    packs.write_pack(storage, ALICE, "/user/alice", pack(("old/f", b"")))
    monkeypatch.setattr(UnpublishedFolder, "publish", list_then_publish)
    problems = packs.write_pack(
        storage, ALICE, "/user/alice/old", pack(("new/a", b"1"), ("new/b", b"2"), ("c", b"3"))
    )
    assert problems == []
    assert seen == [["f"], ["a", "b"]]
    assert (
        storage.status("/user/alice/old/new", ALICE).ownership
        == storage.status("/user/alice/old", ALICE).ownership
    )
    entry = storage.status("/user/alice/old/new/a", ALICE)
    assert (entry.ownership, entry.modified_ms) == (ownership.Ownership("alice", "alice", 0o640), 10**12)
    assert staging_files(storage) == []


def test_folder_created_concurrently_gets_the_files_of_both(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = UnpublishedFolder.publish

    def publish_too_late(folder: UnpublishedFolder) -> None:
        monkeypatch.setattr(UnpublishedFolder, "publish", publish)
        packs.write_pack(storage, ALICE, "/user/alice", pack(("new/a", b"theirs"), ("new/b", b"theirs")))
        publish(folder)

    monkeypatch.setattr(UnpublishedFolder, "publish", publish_too_late)
    assert packs.write_pack(storage, ALICE, "/user/alice", pack(("new/b", b"ours"), ("new/c", b"ours"))) == []
    contents = {name: content(storage, f"/user/alice/new/{name}") for name in "abc"}
    assert contents == {"a": b"theirs", "b": b"ours", "c": b"ours"}
    assert staging_files(storage) == []


def test_unpublished_folder_of_a_crashed_server_is_deleted(tmp_path: Path) -> None:
    before = Storage(tmp_path / "storage")
    before.provision(ALICE)
    packs.write_pack(before, ALICE, "/user/alice", pack(("old/f", b"")))
    folder = open_unpublished(before, ALICE, ("user", "alice", "old", "new"))
    assert folder is not None
    folder.create_file("a", lambda fd: None)
    after = Storage(tmp_path / "storage")
    try:
        assert os.listdir(after.root / "user/alice/old") == ["f"]
        assert staging_files(after) == []
    finally:
        after.close()
        folder.close()
        before.close()


def test_later_duplicate_in_a_pack_wins(storage: Storage) -> None:
    twice = pack(("new/a", b"1"), ("new/a", b"2"), ("new/b/c", b"3"), ("new/d", b"4"))
    assert packs.write_pack(storage, ALICE, "/user/alice", twice) == []
    assert [content(storage, f"/user/alice/new/{name}") for name in ("a", "b/c", "d")] == [b"2", b"3", b"4"]


def test_full_disk_leaves_only_complete_files_in_a_new_folder(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = packs.append

    def full(fd: int, data: bytes | memoryview) -> None:
        append(fd, data[:1])
        if len(data) > 1:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(packs, "append", full)
    problems = packs.write_pack(
        storage, ALICE, "/user/alice", pack(("n/a", b"1"), ("n/b", b"22"), ("n/c", b"3"))
    )
    assert [problem["code"] for problem in problems] == ["StorageFullError"]
    assert os.listdir(storage.root / "user/alice/n") == ["a"]
    assert staging_files(storage) == []


def test_pack_creates_no_folder_without_permission(storage: Storage) -> None:
    bob = StorageUser("bob")
    storage.provision(bob)
    packs.write_pack(storage, ALICE, "/user/alice", pack(("open/f", b"")))
    storage.set_mode("/user/alice", ALICE, 0o755)
    [problem] = packs.write_pack(storage, bob, "/user/alice/open", pack(("new/f", b"bob's")))
    assert problem["code"] == "ForbiddenFileError"
    assert os.listdir(storage.root / "user/alice/open") == ["f"]


def test_new_folder_in_a_team_folder_belongs_to_the_team(storage: Storage) -> None:
    member = StorageUser("alice", frozenset(["team"]))
    storage.provision(member)
    packs.write_pack(storage, member, "/shared/team", pack(("old/f", b"")))
    packs.write_pack(storage, member, "/shared/team", pack(("new/f", b"")))
    for name in ("", "/f"):
        new, old = (
            storage.status(f"/shared/team/{folder}{name}", member).ownership for folder in ("new", "old")
        )
        assert new == old and new.group == "team"


def test_cleanup_keeps_pack_files_with_old_mtime(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = packs.rename_noreplace
    cleaned = []

    def clean_first(*args: Any) -> None:
        storage.clean()
        cleaned.append(args)
        rename(*args)

    monkeypatch.setattr(packs, "_UNNAMED", os.O_WRONLY)
    monkeypatch.setattr(packs, "rename_noreplace", clean_first)
    assert packs.write_pack(storage, ALICE, "/user/alice", pack(("f", b"old"))) == []
    assert cleaned and content(storage, "/user/alice/f") == b"old"
    assert storage.staging_area.active == set()


_names = st.sampled_from(["a", "b", ".", "..", "", ".pai", "x:y", "n\0", "ü" * 130, "l" * 256, "\udc80"])
_deep = st.integers(245, 252).map(lambda depth: "/".join("d" * depth))
_long = st.integers(7990, 8005).map(lambda length: "/".join(["d" * 250] * 40)[:length])
_paths = st.one_of(st.lists(_names, max_size=5).map("/".join), _deep, _long)


@given(base=st.sampled_from(["/", "/user/alice"]), paths=st.lists(_paths, min_size=1, max_size=6))
def test_path_cache_splits_like_split_path(base: str, paths: list[str]) -> None:
    cache = packs.PathCache(base)
    for path in paths:
        assert _result(lambda path=path: cache.split(path)) == _result(
            lambda path=path: (*split_path(base), *split_path("/" + path))
        )


def _result(call: Any) -> object:
    try:
        return call()
    except PaiError as error:
        return error.code


def test_file_changed_since_the_plan_is_read_as_it_is(tmp_path: Path) -> None:
    here = LocalBackend()
    file = tmp_path / "f"
    file.write_bytes(b"planned")
    found = file.stat()
    facts = (found.st_size, found.st_mtime_ns, 0o644)
    assert here.read_small(str(file), facts)[:2] == (b"planned", found.st_mtime_ns)
    for now in (b"another", b"short", b"a longer one"):
        file.write_bytes(now)
        os.utime(file, ns=(5 * 10**17, 5 * 10**17))
        assert here.read_small(str(file), facts)[:2] == (now, 5 * 10**17)
    file.write_bytes(bytes(MAX_PACKED_FILE_BYTES + 1))
    with pytest.raises(PaiError, match="grew while it was copied"):
        here.read_small(str(file), facts)
    file.unlink()
    with pytest.raises(PaiError, match="vanished while it was copied"):
        here.read_small(str(file), facts)
    file.mkdir()
    with pytest.raises(PaiError, match="is not a file"):
        here.read_small(str(file), facts)


def test_small_local_file_is_written_atomically(tmp_path: Path, disk: None) -> None:
    here, target = LocalBackend(), tmp_path / "new/f"
    for content in (b"first", b"and second", b""):
        here.write_bytes(str(target), content, 10**18 + 1, 0o754)
        found = target.stat()
        assert target.read_bytes() == content and found.st_mtime_ns == 10**18 + 1
        assert found.st_mode & 0o777 == 0o754 & ~here.umask
        assert os.listdir(target.parent) == ["f"]
    (tmp_path / "link").symlink_to("new/f")
    here.write_bytes(
        str(tmp_path / "link"), b"its own", 1, 0o644
    )  # the link is replaced, and its target stays
    assert (target.read_bytes(), (tmp_path / "link").read_bytes()) == (b"", b"its own")


def test_interrupted_small_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(*args: Any, **more: Any) -> None:
        raise Killed

    monkeypatch.setattr("os.utime", killed)
    with pytest.raises(Killed):
        LocalBackend().write_bytes(str(tmp_path / "f"), b"half", 1, 0o644)
    assert os.listdir(tmp_path) == []


def test_syscall_lock_wait_is_bounded() -> None:
    turns, leave = SyscallLock(), threading.Event()
    inside = threading.Event()

    def stay() -> None:
        with turns.held():
            inside.set()
            leave.wait(90)

    slow = threading.Thread(target=stay)
    slow.start()
    assert inside.wait(90)
    started = time.monotonic()
    with turns.held():
        assert time.monotonic() - started >= LOCK_TIMEOUT_S
    with turns.held():  # a timed-out wait does not release the lock
        assert slow.is_alive()
    leave.set()
    slow.join(90)
    with turns.held():
        pass
