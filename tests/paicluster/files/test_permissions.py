"""Permissions: private homes, shared team folders, ownership, read-only storages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paicluster.files import Access, Storage, StorageUser, namespace
from paiprotocol.errors import PaiError
from support.storage_files import names, put, raises_code, read


def test_home_is_private(storage: Storage, alice: StorageUser, bob: StorageUser, admin: StorageUser) -> None:
    put(storage, "/user/alice/file", b"mine", alice)
    for attempt in (
        lambda: storage.open_read("/user/alice/file", bob),
        lambda: storage.status("/user/alice/file", bob),
        lambda: storage.list("/user/alice", bob),
        lambda: storage.stage("/user/alice/new", bob, overwrite=True),
        lambda: storage.stage("/user/alice/file", bob, overwrite=True),
        lambda: storage.delete("/user/alice/file", bob, recursive=True),
        lambda: storage.delete("/user/alice", bob, recursive=True),
        lambda: storage.rename("/user/alice/file", "/user/bob/file", bob),
        lambda: storage.rename("/user/alice", "/user/bob/alice", bob),
        lambda: storage.make_dirs("/user/carla", bob),
        lambda: storage.summary("/user/alice", bob),
        lambda: storage.checksum("/user/alice/file", bob),
        lambda: storage.set_mode("/user/alice", bob, 0o777),
        lambda: storage.set_times("/user/alice/file", bob, modified_ms=1),
        lambda: storage.concat("/user/bob/file", ["/user/alice/file"], bob),
    ):
        with raises_code("ForbiddenFileError"):
            put(storage, "/user/bob/file", b"", bob, overwrite=True)
            attempt()
    assert read(storage, "/user/alice/file", admin) == b"mine"


def test_permission_error_has_hadoops_message(storage: Storage, alice: StorageUser, bob: StorageUser) -> None:
    with pytest.raises(PaiError) as error:
        storage.list("/user/alice", bob)
    assert error.value.message == (
        'Permission denied: user=bob, access=READ_EXECUTE, inode="/user/alice":alice:alice:drwx------'
    )


def test_team_folder_ignores_group_bits_of_clients(
    storage: Storage, alice: StorageUser, bob: StorageUser, carol: StorageUser
) -> None:
    storage.make_dirs("/shared/vision/run/one", alice, 0o700)
    put(storage, "/shared/vision/run/one/file", b"alice", alice)
    assert read(storage, "/shared/vision/run/one/file", bob) == b"alice"
    put(storage, "/shared/vision/run/one/file", b"bob", bob, overwrite=True)
    assert storage.delete("/shared/vision/run", alice, recursive=True)
    with raises_code("ForbiddenFileError"):
        storage.list("/shared/vision", carol)


def test_user_may_create_folder_of_own_name_in_root(
    storage: Storage, alice: StorageUser, bob: StorageUser
) -> None:
    put(storage, "/alice/workspace/code.tar.gz", b"x", alice)
    assert storage.status("/alice", alice).ownership == ("alice", "alice", 0o700)
    with raises_code("ForbiddenFileError"):
        storage.make_dirs("/alice/x", bob)
    with raises_code("ForbiddenFileError"):
        storage.make_dirs("/carla/x", bob)
    with raises_code("ForbiddenFileError"):
        storage.stage("/bob", bob, overwrite=True)
    assert storage.delete("/alice", alice, recursive=True)


def test_user_named_like_a_root_folder_does_not_own_it(storage: Storage, admin: StorageUser) -> None:
    storage.make_dirs("/data", admin)
    for name in ("data", "user", "shared"):
        user = StorageUser(name)
        storage.provision(user)
        for attempt in (
            lambda n=name, u=user: storage.stage(f"/{n}/file", u, overwrite=True),
            lambda n=name, u=user: storage.delete(f"/{n}", u, recursive=True),
            lambda n=name, u=user: storage.rename(f"/{n}", "/mine", u),
        ):
            with raises_code("ForbiddenFileError"):
                attempt()
    storage.make_dirs("/tmp/x", StorageUser("tmp"))
    assert storage.status("/tmp", admin).ownership == ("admin", "supergroup", 0o1777)
    with raises_code("ForbiddenFileError"):
        storage.delete("/tmp", StorageUser("tmp"), recursive=True)


def test_public_folder_is_sticky(storage: Storage, alice: StorageUser, bob: StorageUser) -> None:
    put(storage, "/Output/alice/job/result", b"x", alice)
    put(storage, "/tmp/note", b"x", alice)
    storage.set_mode("/tmp/note", alice, 0o666)
    for attempt in (
        lambda: storage.delete("/tmp/note", bob, recursive=False),
        lambda: storage.delete("/tmp", bob, recursive=True),
        lambda: storage.rename("/tmp/note", "/user/bob/note", bob),
        lambda: storage.stage("/tmp/note", bob, overwrite=True),
        lambda: storage.delete("/Output/alice", bob, recursive=True),
    ):
        with raises_code("ForbiddenFileError"):
            attempt()
    assert storage.delete("/tmp/note", alice, recursive=False)


def test_mode_controls_access(storage: Storage, alice: StorageUser, bob: StorageUser) -> None:
    storage.set_mode("/user/alice", alice, 0o755)
    put(storage, "/user/alice/file", b"x", alice)
    assert read(storage, "/user/alice/file", bob) == b"x"
    storage.set_mode("/user/alice/file", alice, 0o600)
    with raises_code("ForbiddenFileError"):
        storage.open_read("/user/alice/file", bob)
    storage.set_mode("/user/alice/file", alice, 0o000)
    with raises_code("ForbiddenFileError"):
        storage.open_read("/user/alice/file", alice)
    storage.set_mode("/user/alice/file", alice, 0o400)
    storage.check_access("/user/alice/file", alice, Access.READ)
    with raises_code("ForbiddenFileError"):
        storage.check_access("/user/alice/file", alice, Access.READ | Access.WRITE)


def test_recursive_delete_needs_access_to_all_subfolders(
    storage: Storage, alice: StorageUser, bob: StorageUser
) -> None:
    storage.make_dirs("/shared/vision/bobs/deep", bob)
    put(storage, "/shared/vision/bobs/deep/file", b"x", bob)
    storage.set_mode("/shared/vision/bobs/deep", bob, 0o700)
    with raises_code("ForbiddenFileError"):
        storage.delete("/shared/vision/bobs", alice, recursive=True)
    assert read(storage, "/shared/vision/bobs/deep/file", bob) == b"x"


def test_only_an_administrator_changes_owners(
    storage: Storage, alice: StorageUser, carol: StorageUser, admin: StorageUser
) -> None:
    put(storage, "/user/alice/file", b"x", alice)
    with raises_code("ForbiddenFileError"):
        storage.set_owner("/user/alice/file", alice, owner="bob")
    with raises_code("ForbiddenFileError"):
        storage.set_owner("/user/alice/file", alice, group="elsewhere")
    with raises_code("InvalidPathError"):
        storage.set_owner("/user/alice/file", admin, owner="a:b")
    storage.set_owner("/user/alice/file", alice, group="vision")
    storage.set_owner("/user/alice/file", admin, owner="carol")
    assert storage.status("/user/alice/file", alice).ownership == ("carol", "vision", 0o644)


def test_ownership_survives_restart_and_rename(tmp_path: Path, alice: StorageUser, bob: StorageUser) -> None:
    storage = Storage(tmp_path)
    storage.provision(alice)
    storage.make_dirs("/user/alice/a", alice, 0o711)
    put(storage, "/user/alice/a/file", b"x", alice)
    storage.set_mode("/user/alice/a/file", alice, 0o640)
    storage.rename("/user/alice/a", "/user/alice/b", alice)
    storage.close()
    storage = Storage(tmp_path)
    assert storage.status("/user/alice/b", alice).ownership == ("alice", "alice", 0o711)
    assert storage.status("/user/alice/b/file", alice).ownership == ("alice", "alice", 0o640)
    storage.close()


def test_file_without_ownership_gets_it_from_its_path(
    storage: Storage, alice: StorageUser, bob: StorageUser
) -> None:
    (storage.root / "user/alice/copied").write_bytes(b"x")
    (storage.root / "data").mkdir()
    (storage.root / "data/set").write_bytes(b"x")
    assert storage.status("/user/alice/copied", alice).ownership.owner == "alice"
    assert storage.status("/data/set", bob).ownership.owner == "admin"
    with raises_code("ForbiddenFileError"):
        storage.stage("/data/set", bob, overwrite=True)


def test_read_only_storage_is_writable_only_by_administrators(
    tmp_path: Path, alice: StorageUser, admin: StorageUser
) -> None:
    storage = Storage(tmp_path)
    storage.provision(alice)
    put(storage, "/user/alice/file", b"x", alice)
    storage.close()
    storage = Storage(tmp_path, read_only=True)
    storage.provision(alice)
    for attempt in (
        lambda: storage.stage("/user/alice/file", alice, overwrite=True),
        lambda: storage.stage_append("/user/alice/file", alice),
        lambda: storage.make_dirs("/user/alice/x", alice),
        lambda: storage.make_dirs("/alice", alice),
        lambda: storage.make_dirs("/Output", alice),
        lambda: storage.delete("/user/alice/file", alice, recursive=True),
        lambda: storage.rename("/user/alice/file", "/user/alice/x", alice),
        lambda: storage.set_mode("/user/alice/file", alice, 0o777),
        lambda: storage.set_owner("/user/alice/file", alice, group="vision"),
        lambda: storage.set_times("/user/alice/file", alice, modified_ms=1),
        lambda: storage.truncate("/user/alice/file", alice, 0),
        lambda: storage.check_access("/user/alice/file", alice, Access.WRITE),
    ):
        with raises_code("ForbiddenFileError"):
            attempt()
    assert read(storage, "/user/alice/file", alice) == b"x"
    storage.set_owner("/user/alice/file", admin, owner="bob")
    put(storage, "/user/alice/new", b"x", admin)
    storage.close()
    # The read-only flag is not stored with the files.
    storage = Storage(tmp_path)
    assert storage.status("/user/alice/file", alice).ownership == ("bob", "alice", 0o644)
    storage.close()


def test_storage_with_groups_rejects_other_users(
    tmp_path: Path, alice: StorageUser, carol: StorageUser, admin: StorageUser
) -> None:
    storage = Storage(tmp_path, groups=["vision", "speech"])
    for user in (alice, carol, admin):
        storage.provision(user)
    storage.list("/", alice)
    storage.list("/", admin)
    for path in ("/", "/user/carol", "/none"):
        with raises_code("ForbiddenFileError"):
            storage.list(path, carol)
    storage.close()


def test_disk_without_xattrs_keeps_modes_and_derives_owners(
    tmp_path: Path, alice: StorageUser, bob: StorageUser, admin: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace, "supports_xattrs", lambda fd: False)
    storage = Storage(tmp_path)
    for user in (alice, bob):
        storage.provision(user)
    put(storage, "/user/alice/file", b"x", alice)
    assert storage.status("/user/alice/file", alice).ownership == ("alice", "alice", 0o644)
    with raises_code("ForbiddenFileError"):
        storage.open_read("/user/alice/file", bob)
    storage.set_mode("/user/alice", alice, 0o711)
    assert read(storage, "/user/alice/file", bob) == b"x"
    put(storage, "/shared/vision/file", b"x", bob)
    assert read(storage, "/shared/vision/file", alice) == b"x"
    with raises_code("UnsupportedStorageError"):
        storage.set_owner("/user/alice/file", admin, owner="bob")
    storage.close()


def test_scratch_folder_of_all_users_exists(storage: Storage, alice: StorageUser, bob: StorageUser) -> None:
    assert storage.status("/tmp", alice).ownership.mode == 0o1777
    put(storage, "/tmp/file", b"x", alice)
    with raises_code("ForbiddenFileError"):
        storage.delete("/tmp/file", bob, recursive=False)


def test_open_root_lets_users_create_folders_there(
    tmp_path: Path, alice: StorageUser, bob: StorageUser
) -> None:
    storage = Storage(tmp_path)
    storage.provision(alice)
    with raises_code("ForbiddenFileError"):
        storage.make_dirs("/results", alice)
    storage.close()
    storage = Storage(tmp_path, open_root=True)
    assert storage.status("/", alice).ownership.mode == 0o1777
    storage.make_dirs("/results/first", alice)
    put(storage, "/loose", b"x", alice)
    assert storage.status("/results", bob).ownership == ("alice", "supergroup", 0o755)
    for path in ("/results", "/loose", "/user/alice"):
        with raises_code("ForbiddenFileError"):
            storage.delete(path, bob, recursive=True)
        with raises_code("ForbiddenFileError"):
            storage.move(path, "/mine", bob, overwrite=False)
    assert storage.rename("/loose", "/results/loose", alice)
    assert storage.delete("/results", alice, recursive=True)
    with raises_code("ForbiddenFileError"):
        storage.set_mode("/", alice, 0o777)
    storage.close()
    storage = Storage(tmp_path, open_root=True, read_only=True)
    with raises_code("ForbiddenFileError"):
        storage.make_dirs("/results", alice)
    storage.close()
    storage = Storage(tmp_path)
    assert storage.status("/", alice).ownership.mode == 0o755, "the setting changes nothing on the disk"
    storage.close()


def test_invalid_user_name_gets_no_home(storage: Storage) -> None:
    for name in ("..", ".", "a/b", "", "a:b"):
        storage.provision(StorageUser(name))
    assert names(storage, "/user", StorageUser("x")) == ["admin", "alice", "bob", "carol"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the user")
def test_storage_works_without_root(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if parent == Path("/tmp"):
            break
        parent.chmod(parent.stat().st_mode | 0o711)
    program = """
import os, sys
from pathlib import Path
from paicluster.files import StorageUser, Storage
os.setgid(65534); os.setuid(65534)
storage, alice = Storage(Path(sys.argv[1]) / "storage"), StorageUser("alice")
storage.provision(alice)
staged = storage.stage("/user/alice/file", alice, overwrite=False); staged.write(b"x"); staged.commit()
storage.set_mode("/user/alice/file", alice, 0)
storage.set_mode("/user/alice/file", alice, 0o600)
os.close(storage.open_read("/user/alice/file", alice).fd)
print(storage.status("/user/alice/file", alice).ownership)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "owner='alice'" in done.stdout, done.stderr


def test_no_descriptor_leaks(storage: Storage, alice: StorageUser, bob: StorageUser) -> None:
    put(storage, "/user/alice/a/b/file", b"x", alice)

    def everything() -> None:
        put(storage, "/user/alice/a/n/m/file", b"x", alice)
        storage.list("/user/alice/a", alice)
        storage.summary("/user/alice", alice)
        storage.rename("/user/alice/a/n", "/user/alice/a/o", alice)
        storage.delete("/user/alice/a/o", alice, recursive=True)
        storage.checksum("/user/alice/a/b/file", alice)
        for path in ("/user/alice/a/b/file/x", "/user/alice/none/x", "/user/alice/a/../b"):
            with pytest.raises(PaiError):
                storage.open_read(path, alice)
        with pytest.raises(PaiError):
            storage.open_read("/user/alice/a/b/file", bob)
        with pytest.raises(PaiError):
            storage.make_dirs("/user/alice/a/b/file/x/y", alice)

    everything()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        everything()
    assert len(os.listdir("/proc/self/fd")) == before


def test_nobody_deletes_the_own_home(storage: Storage, admin: StorageUser, alice: StorageUser) -> None:
    """Also on a cluster of one user, who is its administrator. An administrator deletes that of another."""
    for user in (admin, alice):
        with raises_code("ForbiddenFileError"):
            storage.delete(f"/user/{user.name}", user, recursive=True)
        assert storage.status(f"/user/{user.name}", user).is_folder
    assert storage.delete("/user/alice", admin, recursive=True)
