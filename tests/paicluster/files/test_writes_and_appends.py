"""Writes are atomic: create, append, concat, truncate, rename, delete, listing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from paicluster.files import Storage, StorageUser, listing_cache
from paicluster.files.listing_cache import ListingCache
from paicluster.files.namespace import Inode, names_in
from paiprotocol.errors import PaiError
from support.storage_files import internal_files, names, put, raises_code, read


def test_file_is_visible_only_after_commit(storage: Storage, alice: StorageUser) -> None:
    staged = storage.stage("/user/alice/a/b/file", alice, overwrite=False)
    staged.write(b"first ")
    assert names(storage, "/user/alice", alice) == []
    staged.write(b"second")
    staged.commit()
    assert read(storage, "/user/alice/a/b/file", alice) == b"first second"
    assert internal_files(storage) == []


def test_abandoned_write_keeps_the_old_file(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/file", b"old", alice)
    staged = storage.stage("/user/alice/file", alice, overwrite=True)
    staged.write(b"new")
    staged.abandon()
    staged.abandon()
    assert read(storage, "/user/alice/file", alice) == b"old"
    assert internal_files(storage) == []


def test_reader_keeps_the_old_file(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/file", b"old", alice)
    opened = storage.open_read("/user/alice/file", alice)
    put(storage, "/user/alice/file", b"newer", alice, overwrite=True)
    with os.fdopen(opened.fd, "rb") as file:
        assert file.read() == b"old"
    assert read(storage, "/user/alice/file", alice) == b"newer"


def test_second_create_of_the_same_file_fails(storage: Storage, alice: StorageUser) -> None:
    first = storage.stage("/user/alice/file", alice, overwrite=False)
    second = storage.stage("/user/alice/file", alice, overwrite=False)
    first.write(b"first")
    second.write(b"second")
    second.commit()
    with raises_code("ConflictFileError"):
        first.commit()
    assert read(storage, "/user/alice/file", alice) == b"second"
    assert internal_files(storage) == []


def test_file_does_not_replace_a_folder(storage: Storage, alice: StorageUser) -> None:
    storage.make_dirs("/user/alice/folder", alice)
    with raises_code("ConflictFileError"):
        storage.stage("/user/alice/folder", alice, overwrite=True)
    put(storage, "/user/alice/file", b"", alice)
    with raises_code("NotAFolderError"):
        storage.stage("/user/alice/file/below", alice, overwrite=True)
    with raises_code("ConflictFileError"):
        storage.make_dirs("/user/alice/file", alice)


def test_append_is_visible_only_after_commit(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/log", b"one\n", alice)
    staged = storage.stage_append("/user/alice/log", alice)
    staged.write(b"two\n")
    assert read(storage, "/user/alice/log", alice) == b"one\n"
    staged.commit()
    assert read(storage, "/user/alice/log", alice) == b"one\ntwo\n"
    with raises_code("NoFileError"):
        storage.stage_append("/user/alice/none", alice)


def test_append_interrupted_by_a_crash_is_undone(tmp_path: Path, alice: StorageUser) -> None:
    storage = Storage(tmp_path)
    storage.provision(alice)
    put(storage, "/user/alice/log", b"one\n", alice)
    file = tmp_path / "user/alice/log"
    entry = f'{{"path": "/user/alice/log", "inode": {file.stat().st_ino}, "length": 4}}'
    (tmp_path / ".pai/journal/entry").write_text(entry)
    (tmp_path / ".pai/journal/torn").write_text(entry[:20])
    with file.open("ab") as log_file:
        log_file.write(b"tw")
    storage.close()
    storage = Storage(tmp_path)
    assert read(storage, "/user/alice/log", alice) == b"one\n"
    assert internal_files(storage) == []
    storage.close()


def test_concat_appends_in_order_and_deletes_sources(storage: Storage, alice: StorageUser) -> None:
    for name in ("a", "b", "c"):
        put(storage, f"/user/alice/{name}", name.encode() * 3, alice)
    storage.set_mode("/user/alice/a", alice, 0o600)
    storage.concat("/user/alice/a", ["/user/alice/c", "/user/alice/b"], alice)
    assert read(storage, "/user/alice/a", alice) == b"aaacccbbb"
    assert names(storage, "/user/alice", alice) == ["a"]
    assert storage.status("/user/alice/a", alice).ownership.mode == 0o600


def test_invalid_concat_changes_nothing(storage: Storage, alice: StorageUser) -> None:
    for name in ("a", "b"):
        put(storage, f"/user/alice/{name}", name.encode(), alice)
    for sources in (
        ["/user/alice/b", "/user/alice/none"],
        ["/user/alice/b", "/user/alice/b"],
        [],
        ["/user/alice/a"],
    ):
        with pytest.raises(PaiError):
            storage.concat("/user/alice/a", sources, alice)
    assert read(storage, "/user/alice/a", alice) == b"a"
    assert names(storage, "/user/alice", alice) == ["a", "b"]
    assert internal_files(storage) == []


def test_truncate_never_extends_a_file(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/file", b"0123456789", alice)
    storage.truncate("/user/alice/file", alice, 4)
    assert read(storage, "/user/alice/file", alice) == b"0123"
    with pytest.raises(PaiError, match="larger"):
        storage.truncate("/user/alice/file", alice, 5)


def test_upload_larger_than_free_space_is_rejected_at_once(storage: Storage, alice: StorageUser) -> None:
    staged = storage.stage("/user/alice/huge", alice, overwrite=False)
    with raises_code("StorageFullError"):
        staged.reserve(1 << 60)
    staged.abandon()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_the_old_file(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/file", b"old", alice)
    staged = storage.stage("/user/alice/file", alice, overwrite=True)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, staged.fd)
    os.close(full)
    with raises_code("StorageFullError"):
        staged.write(b"new")
    staged.abandon()
    assert read(storage, "/user/alice/file", alice) == b"old"
    assert internal_files(storage) == []


def test_suspended_upload_is_resumed_after_restart(tmp_path: Path, alice: StorageUser) -> None:
    storage = Storage(tmp_path)
    storage.provision(alice)
    staged = storage.stage("/user/alice/file", alice, overwrite=True, key="alice-1")
    staged.write(b"first ")
    staged.suspend()
    storage.close()
    storage = Storage(tmp_path)
    staged = storage.stage("/user/alice/file", alice, overwrite=True, key="alice-1")
    assert staged.size == 6
    os.lseek(staged.fd, 0, os.SEEK_END)
    staged.write(b"second")
    staged.commit()
    assert read(storage, "/user/alice/file", alice) == b"first second"
    assert internal_files(storage) == []
    storage.close()


def test_expired_uploads_are_deleted(tmp_path: Path, alice: StorageUser) -> None:
    storage = Storage(tmp_path)
    storage.provision(alice)
    lost = storage.stage("/user/alice/lost", alice, overwrite=True)
    kept = storage.stage("/user/alice/kept", alice, overwrite=True, key="kept")
    kept.suspend()
    old = storage.stage("/user/alice/old", alice, overwrite=True, key="old")
    long_ago = time.time() - 30 * 24 * 3600
    os.utime(old.fd, (long_ago, long_ago))
    old.suspend()
    os.utime(lost.fd, (long_ago, long_ago))
    storage.clean()
    # A file being written stays, however slow its client.
    assert sorted(internal_files(storage)) == sorted([lost.name, "kept"])
    storage.close()
    storage = Storage(tmp_path)
    assert internal_files(storage) == ["kept"]
    storage.drop_suspended("kept")
    assert internal_files(storage) == []
    storage.close()
    os.close(lost.fd)


def test_rename_moves_into_folders_and_never_replaces_files(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/a", b"a", alice)
    put(storage, "/user/alice/b", b"b", alice)
    storage.make_dirs("/user/alice/folder/deep", alice)
    assert not storage.rename("/user/alice/a", "/user/alice/b", alice)
    assert not storage.rename("/user/alice/none", "/user/alice/c", alice)
    assert not storage.rename("/user/alice/a", "/user/alice/none/a", alice)
    assert not storage.rename("/user/alice/folder", "/user/alice/folder/deep", alice)
    assert not storage.rename("/", "/user/alice/root", alice)
    assert storage.rename("/user/alice/a", "/user/alice/folder", alice)
    assert storage.rename("/user/alice/folder", "/user/alice/moved", alice)
    assert read(storage, "/user/alice/moved/a", alice) == b"a"
    assert read(storage, "/user/alice/b", alice) == b"b"


def test_move_replaces_only_with_overwrite(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/a", b"a", alice)
    put(storage, "/user/alice/b", b"b", alice)
    storage.make_dirs("/user/alice/full/deep", alice)
    with raises_code("ConflictFileError"):
        storage.move("/user/alice/a", "/user/alice/b", alice, overwrite=False)
    with raises_code("ConflictFileError"):
        storage.move("/user/alice/a", "/user/alice/full", alice, overwrite=True)
    storage.make_dirs("/user/alice/other", alice)
    with raises_code("NotEmptyError"):
        storage.move("/user/alice/other", "/user/alice/full", alice, overwrite=True)
    storage.move("/user/alice/a", "/user/alice/b", alice, overwrite=True)
    assert read(storage, "/user/alice/b", alice) == b"a"
    assert "a" not in names(storage, "/user/alice", alice)


def test_delete_of_non_empty_folder_needs_recursive(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/folder/deep/file", b"x", alice)
    with raises_code("NotEmptyError"):
        storage.delete("/user/alice/folder", alice, recursive=False)
    assert storage.delete("/user/alice/folder", alice, recursive=True)
    assert not storage.delete("/user/alice/folder", alice, recursive=True)
    assert not storage.delete("/", alice, recursive=True)
    assert list((storage.root / ".pai/gone").iterdir()) == []


def record_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the folders that are read, not taken from a cache."""
    reads: list[str] = []

    def names_of_folder(inode: Inode) -> list[str]:
        reads.append(inode.path)
        return names_in(inode)

    monkeypatch.setattr(listing_cache, "names_in", names_of_folder)
    return reads


def test_folder_is_read_once_for_all_pages_of_a_listing(
    storage: Storage, alice: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = record_reads(monkeypatch)

    def page(after: str) -> tuple[list[str], int]:
        listing = storage.list_batch("/user/alice", alice, after=after, limit=2)
        return [entry.name for entry in listing.entries], listing.remaining

    for i in range(7):
        put(storage, f"/user/alice/f{i}", b"", alice)
    assert [page(after) for after in ("", "f1", "f3", "f5")] == [
        (["f0", "f1"], 5),
        (["f2", "f3"], 3),
        (["f4", "f5"], 1),
        (["f6"], 0),
    ]
    assert len(reads) == 1
    # Created and deleted files are seen, and a new listing reads the folder again.
    assert page("")[1] == 5 and len(reads) == 2
    storage.delete("/user/alice/f2", alice, recursive=False)
    put(storage, "/user/alice/f3x", b"", alice)
    os.utime(storage.root / "user/alice", (1, 1))  # independent of the resolution of file timestamps
    assert [page("f1"), page("f3")] == [(["f3", "f3x"], 3), (["f3x", "f4"], 2)]
    assert len(reads) == 3


def test_listing_cache_is_bounded(
    storage: Storage, alice: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = record_reads(monkeypatch)

    def second_pages(cache: ListingCache) -> list[str]:
        """Folders that are read again for the second page of their listing, newest first."""
        folders = [f"/user/alice/{name}" for name in "abc"]
        for folder in folders:
            assert page(cache, folder, "") == (["0"], 2)
        reads.clear()
        for folder in reversed(folders):
            assert page(cache, folder, "0") == (["1"], 1)
        return reads

    def page(cache: ListingCache, folder: str, after: str) -> tuple[list[str], int]:
        with storage.namespace.look_up(folder, alice) as lookup:
            return cache.names(lookup.existing(), after, 1)

    for name in "abc":
        for i in range(3):
            put(storage, f"/user/alice/{name}/{i}", b"", alice)
    assert second_pages(ListingCache(max_names=9)) == []
    assert second_pages(ListingCache(max_names=7)) == ["/user/alice/a"]
    # A listing is dropped when a later one is asked for: the newest stays.
    assert second_pages(ListingCache(max_age_s=0.0)) == ["/user/alice/b", "/user/alice/a"]


def test_listing_continues_after_a_name(storage: Storage, alice: StorageUser) -> None:
    for i in range(5):
        put(storage, f"/user/alice/f{i}", b"x" * i, alice)
    first = storage.list_batch("/user/alice", alice, after="", limit=2)
    assert ([e.name for e in first.entries], first.remaining) == (["f0", "f1"], 3)
    rest = storage.list_batch("/user/alice", alice, after="f1", limit=10)
    assert ([e.name for e in rest.entries], rest.remaining) == (["f2", "f3", "f4"], 0)
    one = storage.list("/user/alice/f3", alice)
    assert [(e.name, e.size, e.is_folder) for e in one.entries] == [("", 3, False)]


def test_summary_counts_recursively(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/a/one", b"123", alice)
    put(storage, "/user/alice/a/b/two", b"45", alice)
    summary = storage.summary("/user/alice/a", alice)
    assert (summary.folders, summary.files, summary.size) == (2, 2, 5)
    of_file = storage.summary("/user/alice/a/one", alice)
    assert (of_file.folders, of_file.files, of_file.size) == (0, 1, 3)


def test_times_are_set_to_the_millisecond(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/user/alice/file", b"", alice)
    storage.set_times("/user/alice/file", alice, modified_ms=1_500_000_000_123, accessed_ms=1_400_000_000_456)
    entry = storage.status("/user/alice/file", alice)
    assert (entry.modified_ms, entry.accessed_ms) == (1_500_000_000_123, 1_400_000_000_456)
    storage.set_times("/user/alice/file", alice, accessed_ms=1)
    entry = storage.status("/user/alice/file", alice)
    assert (entry.modified_ms, entry.accessed_ms) == (1_500_000_000_123, 1)


@pytest.mark.parametrize("folder", ["/user", "/shared"])
def test_home_and_team_roots_cannot_be_removed(storage: Storage, admin: StorageUser, folder: str) -> None:
    storage.provision(StorageUser("alice", frozenset({"team"})))
    for attempt in (
        lambda: storage.delete(folder, admin, recursive=True),
        lambda: storage.rename(folder, "/elsewhere", admin),
        lambda: storage.move(folder, "/elsewhere", admin, overwrite=False),
    ):
        with raises_code("ForbiddenFileError"):
            attempt()
    assert len(storage.list(folder, admin).entries) >= 1


def test_deleted_home_is_created_again(storage: Storage, alice: StorageUser, admin: StorageUser) -> None:
    storage.provision(alice)
    assert storage.delete(storage.home_of(alice), admin, recursive=True)
    storage.provision(alice)
    assert storage.status(storage.home_of(alice), alice).ownership.owner == alice.name
