"""Attempts to bypass permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paicluster.files import Storage, StorageUser, writes
from paicluster.files.directories import make_folders
from paicluster.files.namespace import Inode
from paicluster.files.ownership import SUPERGROUP, SUPERUSER
from support.storage_files import put, raises_code, read

_PUBLIC = (SUPERUSER, SUPERGROUP, 0o1777)


@pytest.mark.parametrize("open_root", [False, True])
@pytest.mark.parametrize("folder", ["Output", "openpai-sdk"])
def test_public_folder_cannot_be_replaced_by_a_users_folder(
    tmp_path: Path, alice: StorageUser, bob: StorageUser, folder: str, open_root: bool
) -> None:
    storage = Storage(tmp_path, open_root=open_root)
    storage.provision(alice)
    storage.make_dirs("/user/alice/trap", alice, 0o777)
    with raises_code("ForbiddenFileError"):
        storage.rename("/user/alice/trap", f"/{folder}", alice)
    with raises_code("ForbiddenFileError"):
        storage.move("/user/alice/trap", f"/{folder}", alice, overwrite=False)
    storage.make_dirs(f"/{folder}", bob)
    with raises_code("ForbiddenFileError"):
        storage.move("/user/alice/trap", f"/{folder}", alice, overwrite=True)
    assert storage.status(f"/{folder}", bob).ownership == _PUBLIC
    # Moving it into the folder is allowed.
    assert storage.rename("/user/alice/trap", f"/{folder}", alice)
    assert storage.status(f"/{folder}/trap", bob).ownership.owner == "alice"
    storage.close()


def test_root_folder_cannot_be_replaced_by_user_of_that_name(storage: Storage, admin: StorageUser) -> None:
    data = StorageUser("data")
    storage.provision(data)
    storage.make_dirs("/data", admin)
    storage.make_dirs("/user/data/trap", data, 0o777)
    with raises_code("ForbiddenFileError"):
        storage.move("/user/data/trap", "/data", data, overwrite=True)
    assert storage.status("/data", admin).ownership.owner == "admin"


def test_folder_created_by_another_user_meanwhile_is_not_used(
    storage: Storage, alice: StorageUser, carol: StorageUser
) -> None:
    storage.make_dirs("/tmp", carol)
    with storage.namespace.look_up("/tmp/new/below", alice) as lookup:
        storage.make_dirs("/tmp/new", carol)
        with raises_code("ForbiddenFileError"):
            make_folders(storage.namespace, lookup, lookup.missing, alice, 0o755)
    assert storage.list("/tmp/new", carol).entries == []


def test_file_is_not_written_to_a_folder_created_meanwhile(
    storage: Storage, alice: StorageUser, carol: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.make_dirs("/tmp", carol)
    staged = storage.stage("/tmp/new/file", alice, overwrite=False)
    staged.write(b"x")

    def create_as_carol_first(*arguments: Any) -> Inode:
        storage.make_dirs("/tmp/new", carol)
        return make_folders(*arguments)

    monkeypatch.setattr(writes, "make_folders", create_as_carol_first)
    with raises_code("ForbiddenFileError"):
        staged.commit()
    assert storage.list("/tmp/new", carol).entries == []


def test_sticky_folder_with_foreign_files_cannot_be_deleted(
    storage: Storage, alice: StorageUser, bob: StorageUser
) -> None:
    carol = StorageUser("carol", frozenset({"vision"}))
    storage.make_dirs("/shared/vision/drop", carol)
    storage.set_mode("/shared/vision/drop", carol, 0o1777)
    put(storage, "/shared/vision/drop/bobs", b"x", bob)
    for path in ("/shared/vision/drop/bobs", "/shared/vision/drop"):
        with raises_code("ForbiddenFileError"):
            storage.delete(path, alice, recursive=True)
    assert read(storage, "/shared/vision/drop/bobs", bob) == b"x"
    assert storage.delete("/shared/vision/drop", carol, recursive=True)


def test_user_named_like_a_team_is_not_a_member(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/shared/vision/file", b"x", alice)
    vision = StorageUser("vision")
    storage.provision(vision)
    for attempt in (
        lambda: storage.list("/shared/vision", vision),
        lambda: storage.open_read("/shared/vision/file", vision),
        lambda: storage.stage("/shared/vision/new", vision, overwrite=True),
    ):
        with raises_code("ForbiddenFileError"):
            attempt()
    put(storage, "/user/vision/file", b"x", vision)


def test_user_named_like_the_supergroup_is_not_a_member(storage: Storage, admin: StorageUser) -> None:
    storage.make_dirs("/data", admin, 0o770)
    assert storage.status("/data", admin).ownership.group == SUPERGROUP
    with raises_code("ForbiddenFileError"):
        storage.list("/data", StorageUser(SUPERGROUP))
