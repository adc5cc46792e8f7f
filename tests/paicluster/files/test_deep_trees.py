"""Deep trees can be counted, listed and deleted; moves cannot exceed the maximum depth."""

from __future__ import annotations

import errno
import gc
import logging
import os
from pathlib import Path

import pytest

from paicluster.files import Storage, StorageUser, staging
from paicluster.files.paths import MAX_DEPTH
from support.storage_files import put, raises_code

_DEEP = 3000


def _open_in(storage: Storage) -> int:
    """Number of open descriptors in the storage; those of other tests are not counted."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += Path(f"/proc/self/fd/{name}").readlink().is_relative_to(storage.root)
        except OSError as error:  # path too long: only this storage has such files
            count += error.errno == errno.ENAMETOOLONG
    return count


def _make_deep_tree(top: Path, depth: int = _DEEP) -> None:
    """Nested folders, deeper than any path can address."""
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for _ in range(depth - 1):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)


def test_deep_tree_can_be_counted_and_deleted(storage: Storage, alice: StorageUser) -> None:
    home = storage.root / "user/alice"
    _make_deep_tree(home / "deep")
    gc.collect()  # so that files of earlier tests are not closed during this one
    before = _open_in(storage)
    summary = storage.summary("/user/alice/deep", alice)
    assert (summary.folders, summary.files) == (_DEEP, 1)
    assert storage.delete("/user/alice/deep", alice, recursive=True)
    assert list(home.iterdir()) == list((storage.root / ".pai/gone").iterdir()) == []
    assert _open_in(storage) == before


def test_files_created_during_a_delete_are_deleted_too(
    storage: Storage, alice: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running copy has the folder open and creates files in it."""
    put(storage, "/user/alice/d/sub/sub/file", b"x", alice)
    put(storage, "/user/alice/d/file", b"x", alice)
    home = storage.root / "user/alice"
    open_fds = [os.open(home / path, os.O_RDONLY) for path in ("d", "d/sub", "d/sub/sub")]
    late = list(open_fds)
    rmdir = os.rmdir

    def create_file_then_rmdir(path: str, *, dir_fd: int | None = None) -> None:
        if late:
            os.close(os.open("late", os.O_WRONLY | os.O_CREAT, dir_fd=late.pop()))
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", create_file_then_rmdir)
    assert storage.delete("/user/alice/d", alice, recursive=True)
    for fd in open_fds:
        os.close(fd)
    assert not late
    assert list(home.iterdir()) == list((storage.root / ".pai/gone").iterdir()) == []


def test_tree_with_many_branches_can_be_counted_and_deleted(storage: Storage, alice: StorageUser) -> None:
    for path in ("a/b/c", "a/b/d/e", "a/f", "g", "h/i/j/k"):
        put(storage, f"/user/alice/top/{path}/file", b"xy", alice)
    put(storage, "/user/alice/top/a/b/one", b"x", alice)
    summary = storage.summary("/user/alice/top", alice)
    assert (summary.folders, summary.files, summary.size) == (12, 6, 11)
    assert storage.delete("/user/alice/top", alice, recursive=True)
    assert list((storage.root / ".pai/gone").iterdir()) == []


def test_deep_leftover_tree_does_not_block_the_next_start(storage: Storage, alice: StorageUser) -> None:
    _make_deep_tree(storage.root / ".pai/gone/left")
    Storage(storage.root).close()
    assert list((storage.root / ".pai/gone").iterdir()) == []


def test_leftover_that_cannot_be_deleted_is_logged(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deleted = storage.root / ".pai/gone"
    for name in ("stuck", "other"):
        (deleted / name).mkdir()
    remove = staging.remove_tree

    def fails(fd: int, name: str) -> None:
        if name == "stuck":
            raise PermissionError(1, "Operation not permitted")
        remove(fd, name)

    monkeypatch.setattr(staging, "remove_tree", fails)
    with caplog.at_level(logging.WARNING):
        Storage(storage.root).close()
    assert [item.name for item in deleted.iterdir()] == ["stuck"]
    assert "stuck" in caplog.text


def test_move_cannot_exceed_the_maximum_depth(storage: Storage, alice: StorageUser) -> None:
    half = "/user/alice/a" + "/d" * (MAX_DEPTH // 2)
    storage.make_dirs(half, alice)
    storage.make_dirs("/user/alice/b" + "/d" * (MAX_DEPTH // 2), alice)
    with raises_code("InvalidPathError"):
        storage.rename("/user/alice/b", half, alice)
    with raises_code("InvalidPathError"):
        storage.move("/user/alice/b", f"{half}/b", alice, overwrite=False)
    storage.delete("/user/alice/b", alice, recursive=True)
    # Exactly the maximum depth.
    names = MAX_DEPTH - half.count("/")
    storage.make_dirs("/user/alice/b" + "/d" * (names - 1), alice)
    put(storage, "/user/alice/b" + "/d" * (names - 1) + "/file", b"x", alice)
    with raises_code("InvalidPathError"):
        storage.rename("/user/alice/b", half, alice)
    storage.delete("/user/alice/b" + "/d" * (names - 1) + "/file", alice, recursive=False)
    assert storage.rename("/user/alice/b", half, alice)
    assert storage.rename("/user/alice/a", "/user/alice/c", alice)


def test_tree_listing_of_a_deep_tree(storage: Storage, alice: StorageUser) -> None:
    import json

    from paicluster.files.transfer.tree_listing import tree_lines

    _make_deep_tree(storage.root / "user/alice/deep")
    before = _open_in(storage)
    lines = [json.loads(line) for line in tree_lines(storage, "/user/alice/deep", alice)]
    assert lines[-1] == {"end": _DEEP} and len(lines) == _DEEP + 1
    assert (
        lines[1]["p"] == "d" and lines[-2]["p"].count("/") == _DEEP - 2 and list(lines[-2]["f"]) == ["file"]
    )
    stopped = tree_lines(storage, "/user/alice/deep", alice)
    next(stopped)
    del stopped  # stopping in the middle leaves nothing open
    assert _open_in(storage) == before
    storage.delete("/user/alice/deep", alice, recursive=True)


def test_tree_listing_is_sorted_as_clients_compare(storage: Storage, alice: StorageUser) -> None:
    import json

    from paicluster.files.transfer.tree_listing import tree_lines

    for path in ("b/x", "a/z", "a/b/c", "a-b", "c"):
        put(storage, f"/user/alice/top/{path}/file", b"x", alice)
    lines = [json.loads(line).get("p") for line in tree_lines(storage, "/user/alice/top", alice)]
    assert lines == ["", "a", "a/b", "a/b/c", "a/z", "a-b", "b", "b/x", "c", None]


def test_tree_listing_of_many_files_has_several_lines(storage: Storage, alice: StorageUser) -> None:
    import json

    from paicluster.files.transfer.tree_listing import tree_lines

    for path in ("c", "a", "d", "e", "b", "below/f"):
        put(storage, f"/user/alice/top/{path}", b"x", alice)
    lines = [json.loads(line) for line in tree_lines(storage, "/user/alice/top", alice, 2)]
    assert [(line["p"], list(line["f"]), line["d"]) for line in lines[:-1]] == [
        ("", ["a", "b"], []),
        ("", ["c", "d"], []),
        ("", ["e"], ["below"]),
        ("below", ["f"], []),
    ]
    assert lines[-1] == {"end": 2}
