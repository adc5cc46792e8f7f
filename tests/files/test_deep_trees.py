"""However deep a tree is, it can be counted, deleted and cleared away, and nobody makes one too deep."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from test_storing_files import put, refused

from paicluster.files import Person, Storage, staging
from paicluster.files.paths import DEEPEST

_DEEP = 3000


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


def test_a_deep_tree_is_counted_and_deleted(storage: Storage, alice: Person) -> None:
    home = storage.root / "user/alice"
    _dig(home / "deep")
    before = len(os.listdir("/proc/self/fd"))
    summary = storage.summary("/user/alice/deep", alice)
    assert (summary.folders, summary.files) == (_DEEP, 1)
    assert storage.delete("/user/alice/deep", alice, recursive=True)
    assert list(home.iterdir()) == list((storage.root / ".pai/gone").iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_tree_with_many_branches_is_counted_and_deleted(storage: Storage, alice: Person) -> None:
    for path in ("a/b/c", "a/b/d/e", "a/f", "g", "h/i/j/k"):
        put(storage, f"/user/alice/top/{path}/file", b"xy", alice)
    put(storage, "/user/alice/top/a/b/one", b"x", alice)
    summary = storage.summary("/user/alice/top", alice)
    assert (summary.folders, summary.files, summary.size) == (12, 6, 11)
    assert storage.delete("/user/alice/top", alice, recursive=True)
    assert list((storage.root / ".pai/gone").iterdir()) == []


def test_a_deep_tree_that_was_left_does_not_keep_the_next_server_from_starting(
    storage: Storage, alice: Person
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
    remove = staging.remove

    def fails(fd: int, name: str) -> None:
        if name == "stuck":
            raise PermissionError(1, "Operation not permitted")
        remove(fd, name)

    monkeypatch.setattr(staging, "remove", fails)
    with caplog.at_level(logging.WARNING):
        Storage(storage.root).close()
    assert [item.name for item in gone.iterdir()] == ["stuck"]
    assert "stuck" in caplog.text


def test_nothing_is_moved_to_where_no_path_leads(storage: Storage, alice: Person) -> None:
    half = "/user/alice/a" + "/d" * (DEEPEST // 2)
    storage.make_dirs(half, alice)
    storage.make_dirs("/user/alice/b" + "/d" * (DEEPEST // 2), alice)
    with refused("InvalidPathError"):
        storage.rename("/user/alice/b", half, alice)
    with refused("InvalidPathError"):
        storage.move("/user/alice/b", f"{half}/b", alice, overwrite=False)
    storage.delete("/user/alice/b", alice, recursive=True)
    # As deep as a path can say, and no deeper.
    names = DEEPEST - half.count("/")
    storage.make_dirs("/user/alice/b" + "/d" * (names - 1), alice)
    put(storage, "/user/alice/b" + "/d" * (names - 1) + "/file", b"x", alice)
    with refused("InvalidPathError"):
        storage.rename("/user/alice/b", half, alice)
    storage.delete("/user/alice/b" + "/d" * (names - 1) + "/file", alice, recursive=False)
    assert storage.rename("/user/alice/b", half, alice)
    assert storage.rename("/user/alice/a", "/user/alice/c", alice)
