"""Ways around the rights of others, each closed."""

from __future__ import annotations

from typing import Any

import pytest

from paicluster.files import Storage, StorageUser, writes
from paicluster.files.directories import make_folders
from paicluster.files.namespace import Inode
from paicluster.files.ownership import SUPERGROUP, SUPERUSER
from support.storage_files import put, read, refused

_PUBLIC = (SUPERUSER, SUPERGROUP, 0o1777)


@pytest.mark.parametrize("place", ["tmp", "Output", "openpai-sdk"])
def test_nobody_puts_his_own_folder_where_everybody_writes(
    storage: Storage, alice: StorageUser, bob: StorageUser, place: str
) -> None:
    storage.make_dirs("/user/alice/trap", alice, 0o777)
    with refused("ForbiddenFileError"):
        storage.rename("/user/alice/trap", f"/{place}", alice)
    with refused("ForbiddenFileError"):
        storage.move("/user/alice/trap", f"/{place}", alice, overwrite=False)
    storage.make_dirs(f"/{place}", bob)
    with refused("ForbiddenFileError"):
        storage.move("/user/alice/trap", f"/{place}", alice, overwrite=True)
    assert storage.status(f"/{place}", bob).ownership == _PUBLIC
    # Into it is another matter.
    assert storage.rename("/user/alice/trap", f"/{place}", alice)
    assert storage.status(f"/{place}/trap", bob).ownership.owner == "alice"


def test_an_empty_folder_of_the_root_is_not_replaced_by_whoever_is_called_like_it(
    storage: Storage, admin: StorageUser
) -> None:
    data = StorageUser("data")
    storage.provision(data)
    storage.make_dirs("/data", admin)
    storage.make_dirs("/user/data/trap", data, 0o777)
    with refused("ForbiddenFileError"):
        storage.move("/user/data/trap", "/data", data, overwrite=True)
    assert storage.status("/data", admin).ownership.owner == "admin"


def test_a_folder_that_somebody_else_made_meanwhile_is_his(
    storage: Storage, alice: StorageUser, carol: StorageUser
) -> None:
    storage.make_dirs("/tmp", carol)
    with storage.namespace.look_up("/tmp/new/below", alice) as spot:
        storage.make_dirs("/tmp/new", carol)
        with refused("ForbiddenFileError"):
            make_folders(storage.namespace, spot, spot.missing, alice, 0o755)
    assert storage.list("/tmp/new", carol).entries == []


def test_a_file_does_not_come_into_a_folder_that_somebody_else_made_meanwhile(
    storage: Storage, alice: StorageUser, carol: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.make_dirs("/tmp", carol)
    staged = storage.stage("/tmp/new/file", alice, overwrite=False)
    staged.write(b"x")

    def carol_is_faster(*arguments: Any) -> Inode:
        storage.make_dirs("/tmp/new", carol)
        return make_folders(*arguments)

    monkeypatch.setattr(writes, "make_folders", carol_is_faster)
    with refused("ForbiddenFileError"):
        staged.commit()
    assert storage.list("/tmp/new", carol).entries == []


def test_a_sticky_folder_is_not_deleted_with_the_files_of_others(
    storage: Storage, alice: StorageUser, bob: StorageUser
) -> None:
    carol = StorageUser("carol", frozenset({"vision"}))
    storage.make_dirs("/shared/vision/drop", carol)
    storage.set_mode("/shared/vision/drop", carol, 0o1777)
    put(storage, "/shared/vision/drop/bobs", b"x", bob)
    for path in ("/shared/vision/drop/bobs", "/shared/vision/drop"):
        with refused("ForbiddenFileError"):
            storage.delete(path, alice, recursive=True)
    assert read(storage, "/shared/vision/drop/bobs", bob) == b"x"
    assert storage.delete("/shared/vision/drop", carol, recursive=True)


def test_whoever_is_called_like_a_team_is_not_in_it(storage: Storage, alice: StorageUser) -> None:
    put(storage, "/shared/vision/file", b"x", alice)
    vision = StorageUser("vision")
    storage.provision(vision)
    for attempt in (
        lambda: storage.list("/shared/vision", vision),
        lambda: storage.open_read("/shared/vision/file", vision),
        lambda: storage.stage("/shared/vision/new", vision, overwrite=True),
    ):
        with refused("ForbiddenFileError"):
            attempt()
    put(storage, "/user/vision/file", b"x", vision)


def test_whoever_is_called_like_the_group_of_administrators_is_not_in_it(
    storage: Storage, admin: StorageUser
) -> None:
    storage.make_dirs("/data", admin, 0o770)
    assert storage.status("/data", admin).ownership.group == SUPERGROUP
    with refused("ForbiddenFileError"):
        storage.list("/data", StorageUser(SUPERGROUP))
