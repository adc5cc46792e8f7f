"""However deep a tree is, it can be counted, deleted and cleared away, and nobody makes one too deep."""

from __future__ import annotations

import errno
import gc
import logging
import os
from pathlib import Path

import pytest

from paicluster.files import Storage, StorageUser, staging
from paicluster.files.paths import MAX_DEPTH
from support.storage_files import put, refused

_DEEP = 3000


def _open_in(storage: Storage) -> int:
    """How many descriptors are open in it; what other tests left to be closed is no concern of ours."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += Path(f"/proc/self/fd/{name}").readlink().is_relative_to(storage.root)
        except OSError as error:  # too deep to be told: nobody but this storage has such
            found += error.errno == errno.ENAMETOOLONG
    return found


def _dig(top: Path, depth: int = _DEEP) -> None:
    """Folders in folders, deeper than any path can say."""
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for _ in range(depth - 1):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)


def test_a_deep_tree_is_counted_and_deleted(storage: Storage, alice: StorageUser) -> None:
    home = storage.root / "user/alice"
    _dig(home / "deep")
    gc.collect()  # what tests before this one left open is not closed in the middle of it
    before = _open_in(storage)
    summary = storage.summary("/user/alice/deep", alice)
    assert (summary.folders, summary.files) == (_DEEP, 1)
    assert storage.delete("/user/alice/deep", alice, recursive=True)
    assert list(home.iterdir()) == list((storage.root / ".pai/gone").iterdir()) == []
    assert _open_in(storage) == before


def test_what_comes_into_a_folder_while_it_is_deleted_goes_too(
    storage: Storage, alice: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that is under way has the folder open, and puts in it what it has in hand."""
    put(storage, "/user/alice/d/sub/sub/file", b"x", alice)
    put(storage, "/user/alice/d/file", b"x", alice)
    home = storage.root / "user/alice"
    held = [os.open(home / path, os.O_RDONLY) for path in ("d", "d/sub", "d/sub/sub")]
    late = list(held)
    rmdir = os.rmdir

    def somebody_is_faster(path: str, *, dir_fd: int | None = None) -> None:
        if late:
            os.close(os.open("late", os.O_WRONLY | os.O_CREAT, dir_fd=late.pop()))
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", somebody_is_faster)
    assert storage.delete("/user/alice/d", alice, recursive=True)
    for fd in held:
        os.close(fd)
    assert not late
    assert list(home.iterdir()) == list((storage.root / ".pai/gone").iterdir()) == []


def test_a_tree_with_many_branches_is_counted_and_deleted(storage: Storage, alice: StorageUser) -> None:
    for path in ("a/b/c", "a/b/d/e", "a/f", "g", "h/i/j/k"):
        put(storage, f"/user/alice/top/{path}/file", b"xy", alice)
    put(storage, "/user/alice/top/a/b/one", b"x", alice)
    summary = storage.summary("/user/alice/top", alice)
    assert (summary.folders, summary.files, summary.size) == (12, 6, 11)
    assert storage.delete("/user/alice/top", alice, recursive=True)
    assert list((storage.root / ".pai/gone").iterdir()) == []


def test_a_deep_tree_that_was_left_does_not_keep_the_next_server_from_starting(
    storage: Storage, alice: StorageUser
) -> None:
    _dig(storage.root / ".pai/gone/left")
    Storage(storage.root).close()
    assert list((storage.root / ".pai/gone").iterdir()) == []


def test_what_cannot_be_cleared_away_is_said_and_left(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone = storage.root / ".pai/gone"
    for name in ("stuck", "other"):
        (gone / name).mkdir()
    remove = staging.remove_tree

    def fails(fd: int, name: str) -> None:
        if name == "stuck":
            raise PermissionError(1, "Operation not permitted")
        remove(fd, name)

    monkeypatch.setattr(staging, "remove_tree", fails)
    with caplog.at_level(logging.WARNING):
        Storage(storage.root).close()
    assert [item.name for item in gone.iterdir()] == ["stuck"]
    assert "stuck" in caplog.text


def test_nothing_is_moved_to_where_no_path_leads(storage: Storage, alice: StorageUser) -> None:
    half = "/user/alice/a" + "/d" * (MAX_DEPTH // 2)
    storage.make_dirs(half, alice)
    storage.make_dirs("/user/alice/b" + "/d" * (MAX_DEPTH // 2), alice)
    with refused("InvalidPathError"):
        storage.rename("/user/alice/b", half, alice)
    with refused("InvalidPathError"):
        storage.move("/user/alice/b", f"{half}/b", alice, overwrite=False)
    storage.delete("/user/alice/b", alice, recursive=True)
    # As deep as a path can say, and no deeper.
    names = MAX_DEPTH - half.count("/")
    storage.make_dirs("/user/alice/b" + "/d" * (names - 1), alice)
    put(storage, "/user/alice/b" + "/d" * (names - 1) + "/file", b"x", alice)
    with refused("InvalidPathError"):
        storage.rename("/user/alice/b", half, alice)
    storage.delete("/user/alice/b" + "/d" * (names - 1) + "/file", alice, recursive=False)
    assert storage.rename("/user/alice/b", half, alice)
    assert storage.rename("/user/alice/a", "/user/alice/c", alice)


def test_a_deep_tree_is_told_line_by_line(storage: Storage, alice: StorageUser) -> None:
    import json

    from paicluster.files.transfer.tree_listing import tree_lines

    _dig(storage.root / "user/alice/deep")
    before = _open_in(storage)
    told = [json.loads(line) for line in tree_lines(storage, "/user/alice/deep", alice)]
    assert told[-1] == {"end": _DEEP} and len(told) == _DEEP + 1
    assert told[1]["p"] == "d" and told[-2]["p"].count("/") == _DEEP - 2 and list(told[-2]["f"]) == ["file"]
    stopped = tree_lines(storage, "/user/alice/deep", alice)
    next(stopped)
    del stopped  # whoever stops in the middle leaves nothing open
    assert _open_in(storage) == before
    storage.delete("/user/alice/deep", alice, recursive=True)


def test_folders_are_told_in_the_order_in_which_clients_compare(storage: Storage, alice: StorageUser) -> None:
    import json

    from paicluster.files.transfer.tree_listing import tree_lines

    for path in ("b/x", "a/z", "a/b/c", "a-b", "c"):
        put(storage, f"/user/alice/top/{path}/file", b"x", alice)
    told = [json.loads(line).get("p") for line in tree_lines(storage, "/user/alice/top", alice)]
    assert told == ["", "a", "a/b", "a/b/c", "a/z", "a-b", "b", "b/x", "c", None]
