"""No path, link or encoding leads outside the storage."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paicluster.files import Storage, StorageUser
from paicluster.files.paths import split_path
from paiprotocol.errors import PaiError
from support.storage_files import names, put, raises_code, read

_TRICKS = [
    "..",
    ".",
    "",
    "%2e%2e",
    "..%2f",
    "\\..\\",
    "a\0b",
    "~",
    "...",
    "‥",
    "．．",
    "é",
    "e\u0301",
    "a:b",
    ".pai",
]


@pytest.fixture(scope="module")
def storage_with_links(tmp_path_factory: pytest.TempPathFactory) -> tuple[Storage, Path]:
    """A storage with links that lead outside, beside a secret."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_bytes(b"secret")
    (outside / "storage").mkdir()
    storage = Storage(outside / "storage")
    admin = StorageUser("admin", admin=True)
    storage.make_dirs("/a/b", admin)
    put(storage, "/a/file", b"inside", admin)
    for folder in (storage.root, storage.root / "a", storage.root / "a/b"):
        (folder / "up").symlink_to(outside)
        (folder / "away").symlink_to(outside / "secret")
        (folder / "back").symlink_to(storage.root / "a")
        (folder / "dots").symlink_to("..")
    return storage, outside


_parts = st.one_of(
    st.sampled_from([*_TRICKS, "a", "b", "up", "away", "back", "dots", "secret", "file", "new"]),
    st.text(max_size=12),
    st.integers(250, 300).map(lambda n: "x" * n),
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(_parts, max_size=8), lead=st.sampled_from(["/", "//", "", "/a/", "/./"]))
def test_no_path_reads_or_changes_anything_outside(
    storage_with_links: tuple[Storage, Path], parts: list[str], lead: str
) -> None:
    storage, outside = storage_with_links
    path = lead + "/".join(parts)
    admin = StorageUser("admin", admin=True)
    for attempt in (
        lambda: read(storage, path, admin),
        lambda: put(storage, path, b"written", admin, overwrite=True),
        lambda: storage.make_dirs(path, admin),
        lambda: storage.list(path, admin),
        lambda: storage.truncate(path, admin, 0),
        lambda: storage.set_mode(path, admin, 0o777),
        lambda: storage.rename(path, "/moved", admin),
        lambda: storage.delete(path, admin, recursive=True),
        lambda: storage.delete("/moved", admin, recursive=True),
    ):
        try:
            assert attempt() != b"secret"
        except PaiError as error:
            assert str(outside) not in error.message
            error.message.encode()
    assert sorted(item.name for item in outside.iterdir()) == ["secret", "storage"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert (storage.root / ".pai/staged").is_dir()


def test_links_and_special_files_are_hidden(storage: Storage, alice: StorageUser, tmp_path: Path) -> None:
    home = storage.root / "user/alice"
    (tmp_path / "secret").write_bytes(b"secret")
    (home / "link").symlink_to(tmp_path / "secret")
    (home / "folder").symlink_to(tmp_path)
    (home / "dangling").symlink_to(tmp_path / "made")
    os.mkfifo(home / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(home / "socket"))
        for name in ("link", "folder", "dangling", "pipe", "socket"):
            for attempt in (storage.status, storage.open_read, storage.list, storage.stage_append):
                with raises_code("NoFileError"):
                    attempt(f"/user/alice/{name}", alice)
        with raises_code("NoFileError"):
            storage.open_read("/user/alice/folder/secret", alice)
        assert names(storage, "/user/alice", alice) == []


def test_overwriting_a_link_replaces_the_link_itself(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (storage.root / "user/alice/link").symlink_to(tmp_path / "secret")
    with raises_code("ConflictFileError"):
        put(storage, "/user/alice/link", b"mine", alice)
    put(storage, "/user/alice/link", b"mine", alice, overwrite=True)
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert read(storage, "/user/alice/link", alice) == b"mine"


def test_recursive_delete_does_not_follow_links(storage: Storage, alice: StorageUser, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_bytes(b"x")
    storage.make_dirs("/user/alice/folder", alice)
    (storage.root / "user/alice/folder/link").symlink_to(tmp_path / "kept")
    assert storage.delete("/user/alice/folder", alice, recursive=True)
    assert (tmp_path / "kept/file").read_bytes() == b"x"


@pytest.mark.parametrize(
    "path",
    [
        *("relative", "", "/a/../b", "/..", "/a/./b", "/a\0b", "/a:b", "/\ud800"),
        *("/" + "x" * 256, "/" + "é" * 128, "/" + "/".join("x" * 300), "/" + "xy/" * 3000),
    ],
)
def test_invalid_path_is_rejected(path: str) -> None:
    with raises_code("InvalidPathError"):
        split_path(path)


def test_internal_folder_is_hidden(storage: Storage, admin: StorageUser) -> None:
    for path in ("/.pai", "/.pai/staged", "//.pai/journal"):
        with raises_code("NoFileError"):
            storage.list(path, admin)
        with raises_code("NoFileError"):
            storage.delete(path, admin, recursive=True)
    assert ".pai" not in names(storage, "/", admin)
    storage.make_dirs("/user/admin/.pai", admin)


def test_names_are_preserved_byte_for_byte(storage: Storage, alice: StorageUser) -> None:
    expected = sorted(
        ["e\u0301", "é", "back\\slash", "tab\tline\n", "%2e%2e", "日本", "a b", "~", "...", "-rf"]
    )
    for name in expected:
        put(storage, f"/user/alice/{name}", name.encode(), alice)
    assert sorted(names(storage, "/user/alice", alice)) == expected
    for name in expected:
        assert read(storage, f"/user/alice/{name}", alice) == name.encode()
    (storage.root / "user/alice" / os.fsdecode(b"\xff")).write_bytes(b"")
    assert sorted(names(storage, "/user/alice", alice)) == expected
