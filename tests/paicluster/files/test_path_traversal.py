"""No path, link or encoding leaves the folder of the storage."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openpaisdk.errors import PaiError
from paicluster.files import Storage, StorageUser
from paicluster.files.paths import split_path
from support.storage_files import names, put, read, refused

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
def fenced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Storage, Path]:
    """A storage with links that lead out, beside a secret."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_bytes(b"secret")
    (outside / "storage").mkdir()
    storage = Storage(outside / "storage")
    admin = StorageUser("admin", admin=True)
    storage.make_dirs("/a/b", admin)
    put(storage, "/a/file", b"inside", admin)
    for place in (storage.root, storage.root / "a", storage.root / "a/b"):
        (place / "up").symlink_to(outside)
        (place / "away").symlink_to(outside / "secret")
        (place / "back").symlink_to(storage.root / "a")
        (place / "dots").symlink_to("..")
    return storage, outside


_parts = st.one_of(
    st.sampled_from([*_TRICKS, "a", "b", "up", "away", "back", "dots", "secret", "file", "new"]),
    st.text(max_size=12),
    st.integers(250, 300).map(lambda n: "x" * n),
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(_parts, max_size=8), lead=st.sampled_from(["/", "//", "", "/a/", "/./"]))
def test_nothing_outside_is_read_written_or_removed(
    fenced: tuple[Storage, Path], parts: list[str], lead: str
) -> None:
    storage, outside = fenced
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


def test_links_and_devices_are_not_there(storage: Storage, alice: StorageUser, tmp_path: Path) -> None:
    home = storage.root / "user/alice"
    (tmp_path / "secret").write_bytes(b"secret")
    (home / "link").symlink_to(tmp_path / "secret")
    (home / "folder").symlink_to(tmp_path)
    (home / "dangling").symlink_to(tmp_path / "made")
    os.mkfifo(home / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(home / "socket"))
        for name in ("link", "folder", "dangling", "pipe", "socket"):
            for attempt in (storage.status, storage.open_read, storage.list, storage.stage_append):
                with refused("NoFileError"):
                    attempt(f"/user/alice/{name}", alice)
        with refused("NoFileError"):
            storage.open_read("/user/alice/folder/secret", alice)
        assert names(storage, "/user/alice", alice) == []


def test_a_file_written_where_a_link_was_replaces_the_link(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (storage.root / "user/alice/link").symlink_to(tmp_path / "secret")
    with refused("ConflictFileError"):
        put(storage, "/user/alice/link", b"mine", alice)
    put(storage, "/user/alice/link", b"mine", alice, overwrite=True)
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert read(storage, "/user/alice/link", alice) == b"mine"


def test_deleting_a_folder_removes_the_links_in_it_and_not_what_they_show(
    storage: Storage, alice: StorageUser, tmp_path: Path
) -> None:
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
def test_what_is_no_path_is_refused_in_words(path: str) -> None:
    with refused("InvalidPathError"):
        split_path(path)


def test_the_storages_own_folder_is_not_there(storage: Storage, admin: StorageUser) -> None:
    for path in ("/.pai", "/.pai/staged", "//.pai/journal"):
        with refused("NoFileError"):
            storage.list(path, admin)
        with refused("NoFileError"):
            storage.delete(path, admin, recursive=True)
    assert ".pai" not in names(storage, "/", admin)
    storage.make_dirs("/user/admin/.pai", admin)


def test_names_are_kept_byte_for_byte(storage: Storage, alice: StorageUser) -> None:
    kept = sorted(["e\u0301", "é", "back\\slash", "tab\tline\n", "%2e%2e", "日本", "a b", "~", "...", "-rf"])
    for name in kept:
        put(storage, f"/user/alice/{name}", name.encode(), alice)
    assert sorted(names(storage, "/user/alice", alice)) == kept
    for name in kept:
        assert read(storage, f"/user/alice/{name}", alice) == name.encode()
    (storage.root / "user/alice" / os.fsdecode(b"\xff")).write_bytes(b"")
    assert sorted(names(storage, "/user/alice", alice)) == kept
