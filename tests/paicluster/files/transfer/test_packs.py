"""Many small files as one: each comes whole, at its own place, whatever disk and names there are."""

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

from openpaisdk.errors import PaiError
from openpaisdk.fileio import hashing
from openpaisdk.fileio.pack_format import FILE, MAX_PACKED_FILE_BYTES, PackRecord, end_record, record_header
from openpaisdk.fileio.syscall_lock import LOCK_TIMEOUT_S, SyscallLock
from openpaisdk.storage.backends import local
from openpaisdk.storage.backends.local import LocalBackend
from paicluster.files import Storage, StorageUser, ownership
from paicluster.files.paths import split_path
from paicluster.files.transfer import packs
from paicluster.files.transfer.unpublished_folder import UnpublishedFolder, open_unpublished
from support.cluster_storage import ALICE


@pytest.fixture(params=["a disk with files that have no name", "a disk without"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "without" in request.param:
        monkeypatch.setattr(packs, "_UNNAMED", os.O_WRONLY)
        monkeypatch.setattr(local, "_TMPFILE_FLAGS", os.O_WRONLY)


def pack(*files: tuple[str, bytes]) -> bytes:
    made = b""
    for name, data in files:
        digest = hashing.hash_bytes(data, hashing.XXH3)
        made += (
            record_header(PackRecord(FILE, name, data, mode=0o640, mtime_ns=10**18 + 1, digest=digest)) + data
        )
    return made + end_record(len(files))


def content(storage: Storage, path: str) -> bytes:
    return (storage.root / path.lstrip("/")).read_bytes()


def left_aside(storage: Storage) -> list[str]:
    return [*os.listdir(storage.root / ".pai/staged"), *storage.staging_area.active]


@pytest.mark.usefixtures("disk")
def test_files_take_their_places_and_replace_what_was_there(storage: Storage) -> None:
    # Longer than the kernel is given at once.
    long = os.urandom(300 << 10)
    assert packs.write_pack(storage, ALICE, "/user/alice", pack(("a", b"old"), ("d/e/b", long))) == []
    held = (storage.root / "user/alice/a").open("rb")
    assert packs.write_pack(storage, ALICE, "/user/alice", pack(("a", b"new"), ("d/e/c", b""))) == []
    with held:
        assert held.read() == b"old"
    assert content(storage, "/user/alice/a") == b"new"
    assert content(storage, "/user/alice/d/e/b") == long
    assert content(storage, "/user/alice/d/e/c") == b""
    told = storage.status("/user/alice/a", ALICE)
    assert (told.ownership.owner, told.ownership.mode) == ("alice", 0o640)
    assert (storage.root / "user/alice/a").stat().st_mtime_ns == 10**18 + 1
    assert left_aside(storage) == []


@pytest.mark.usefixtures("disk")
def test_a_file_does_not_take_the_place_of_a_folder(storage: Storage) -> None:
    packs.write_pack(storage, ALICE, "/user/alice", pack(("d/f", b"1")))
    [problem] = packs.write_pack(storage, ALICE, "/user/alice", pack(("d", b"2")))
    assert problem["code"] == "ConflictFileError"
    assert left_aside(storage) == []


def test_a_new_folder_appears_with_all_its_files(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    place = UnpublishedFolder.publish

    def look_first(folder: UnpublishedFolder) -> None:
        seen.append(sorted(os.listdir(storage.root / "user/alice/old")))
        place(folder)
        seen.append(sorted(os.listdir(storage.root / "user/alice/old/new")))

    packs.write_pack(storage, ALICE, "/user/alice", pack(("old/f", b"")))
    monkeypatch.setattr(UnpublishedFolder, "publish", look_first)
    told = packs.write_pack(
        storage, ALICE, "/user/alice/old", pack(("new/a", b"1"), ("new/b", b"2"), ("c", b"3"))
    )
    assert told == []
    assert seen == [["f"], ["a", "b"]]
    assert (
        storage.status("/user/alice/old/new", ALICE).ownership
        == storage.status("/user/alice/old", ALICE).ownership
    )
    told_of = storage.status("/user/alice/old/new/a", ALICE)
    assert (told_of.ownership, told_of.modified_ms) == (ownership.Ownership("alice", "alice", 0o640), 10**12)
    assert left_aside(storage) == []


def test_whoever_makes_the_folder_first_the_files_of_both_are_in_it(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = UnpublishedFolder.publish

    def too_late(folder: UnpublishedFolder) -> None:
        monkeypatch.setattr(UnpublishedFolder, "publish", place)
        packs.write_pack(storage, ALICE, "/user/alice", pack(("new/a", b"theirs"), ("new/b", b"theirs")))
        place(folder)

    monkeypatch.setattr(UnpublishedFolder, "publish", too_late)
    assert packs.write_pack(storage, ALICE, "/user/alice", pack(("new/b", b"ours"), ("new/c", b"ours"))) == []
    found = {name: content(storage, f"/user/alice/new/{name}") for name in "abc"}
    assert found == {"a": b"theirs", "b": b"ours", "c": b"ours"}
    assert left_aside(storage) == []


def test_of_a_new_folder_that_a_dying_server_left_nothing_is_seen(tmp_path: Path) -> None:
    before = Storage(tmp_path / "storage")
    before.provision(ALICE)
    packs.write_pack(before, ALICE, "/user/alice", pack(("old/f", b"")))
    folder = open_unpublished(before, ALICE, ("user", "alice", "old", "new"))
    assert folder is not None
    folder.create_file("a", lambda fd: None)
    after = Storage(tmp_path / "storage")
    try:
        assert os.listdir(after.root / "user/alice/old") == ["f"]
        assert left_aside(after) == []
    finally:
        after.close()
        folder.close()
        before.close()


def test_a_name_that_comes_twice_in_a_new_folder_is_the_later_file(storage: Storage) -> None:
    twice = pack(("new/a", b"1"), ("new/a", b"2"), ("new/b/c", b"3"), ("new/d", b"4"))
    assert packs.write_pack(storage, ALICE, "/user/alice", twice) == []
    assert [content(storage, f"/user/alice/new/{name}") for name in ("a", "b/c", "d")] == [b"2", b"3", b"4"]


def test_where_the_disk_is_full_a_new_folder_has_only_whole_files(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = packs.append

    def full(fd: int, data: bytes | memoryview) -> None:
        append(fd, data[:1])
        if len(data) > 1:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(packs, "append", full)
    told = packs.write_pack(storage, ALICE, "/user/alice", pack(("n/a", b"1"), ("n/b", b"22"), ("n/c", b"3")))
    assert [problem["code"] for problem in told] == ["StorageFullError"]
    assert os.listdir(storage.root / "user/alice/n") == ["a"]
    assert left_aside(storage) == []


def test_in_a_folder_of_others_no_folder_is_made(storage: Storage) -> None:
    bob = StorageUser("bob")
    storage.provision(bob)
    packs.write_pack(storage, ALICE, "/user/alice", pack(("open/f", b"")))
    storage.set_mode("/user/alice", ALICE, 0o755)
    [problem] = packs.write_pack(storage, bob, "/user/alice/open", pack(("new/f", b"bob's")))
    assert problem["code"] == "ForbiddenFileError"
    assert os.listdir(storage.root / "user/alice/open") == ["f"]


def test_in_a_teams_folder_new_folders_are_the_teams(storage: Storage) -> None:
    member = StorageUser("alice", frozenset(["team"]))
    storage.provision(member)
    packs.write_pack(storage, member, "/shared/team", pack(("old/f", b"")))
    packs.write_pack(storage, member, "/shared/team", pack(("new/f", b"")))
    for name in ("", "/f"):
        new, old = (storage.status(f"/shared/team/{way}{name}", member).ownership for way in ("new", "old"))
        assert new == old and new.group == "team"


def test_files_of_a_pack_are_not_cleaned_away_for_being_old(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = packs.rename_noreplace
    cleaned = []

    def clean_first(*where: Any) -> None:
        storage.clean()
        cleaned.append(where)
        place(*where)

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
def test_paths_of_a_pack_are_taken_apart_as_any(base: str, paths: list[str]) -> None:
    ways = packs.PathCache(base)
    for path in paths:
        assert _told(lambda path=path: ways.split(path)) == _told(
            lambda path=path: (*split_path(base), *split_path("/" + path))
        )


def _told(ask: Any) -> object:
    try:
        return ask()
    except PaiError as error:
        return error.code


def test_a_file_that_is_another_than_planned_is_taken_as_it_is_now(tmp_path: Path) -> None:
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


def test_a_small_file_appears_here_whole_with_its_mode_and_time(tmp_path: Path, disk: None) -> None:
    here, target = LocalBackend(), tmp_path / "new/f"
    for content in (b"first", b"and second", b""):
        here.write_small(str(target), content, 10**18 + 1, 0o754)
        found = target.stat()
        assert target.read_bytes() == content and found.st_mtime_ns == 10**18 + 1
        assert found.st_mode & 0o777 == 0o754 & ~here.umask
        assert os.listdir(target.parent) == ["f"]
    (tmp_path / "link").symlink_to("new/f")
    here.write_small(
        str(tmp_path / "link"), b"its own", 1, 0o644
    )  # a link is replaced, and what it led to stays
    assert (target.read_bytes(), (tmp_path / "link").read_bytes()) == (b"", b"its own")


def test_nothing_is_left_of_a_small_file_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*args: Any, **more: Any) -> None:
        raise Killed

    monkeypatch.setattr("os.utime", killed)
    with pytest.raises(Killed):
        LocalBackend().write_small(str(tmp_path / "f"), b"half", 1, 0o644)
    assert os.listdir(tmp_path) == []


def test_nobody_waits_long_for_his_turn() -> None:
    turns, leave = SyscallLock(), threading.Event()
    inside = threading.Event()

    def stay() -> None:
        with turns.held():
            inside.set()
            leave.wait(30)

    slow = threading.Thread(target=stay)
    slow.start()
    assert inside.wait(10)
    began = time.monotonic()
    with turns.held():
        assert time.monotonic() - began >= LOCK_TIMEOUT_S
    with turns.held():  # whoever did not wait to the end took nothing away with him
        assert slow.is_alive()
    leave.set()
    slow.join(10)
    with turns.held():
        pass
