"""Copies that share bytes with the original: no change of one is seen in the other, and bytes count once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from paicluster.files import Storage, StorageUser
from paicluster.files.usage import StorageLimit, count_bytes
from support.storage_files import internal_files, names, put, raises_code, read

MB = 1 << 20
ORIGINAL, COPY = "/user/alice/package", "/user/alice/packages/one"


def append(storage: Storage, path: str, user: StorageUser) -> None:
    staged = storage.stage_append(path, user)
    staged.write(b" and more")
    staged.commit()


CHANGES: dict[str, Callable[[Storage, str, StorageUser], None]] = {
    "replace": lambda storage, path, user: put(storage, path, b"other", user, overwrite=True),
    "append": append,
    "truncate": lambda storage, path, user: storage.truncate(path, user, 2),
    "set_size": lambda storage, path, user: storage.set_size(path, user, 99),
    "write_at": lambda storage, path, user: storage.write_at(path, user, 1, b"XX"),
    "delete": lambda storage, path, user: storage.delete(path, user, recursive=False) and None,
}


@pytest.fixture
def package(storage: Storage, alice: StorageUser) -> Storage:
    put(storage, f"{ORIGINAL}/train.py", b"the program", alice)
    put(storage, f"{ORIGINAL}/data/deep/file", b"its data", alice)
    storage.make_dirs(f"{ORIGINAL}/empty", alice)
    storage.copy_tree(ORIGINAL, COPY, alice)
    return storage


def test_copy_has_everything_and_takes_no_bytes(package: Storage, alice: StorageUser) -> None:
    assert names(package, COPY, alice) == ["data", "empty", "train.py"]
    assert read(package, f"{COPY}/data/deep/file", alice) == b"its data"
    assert (package.root / COPY[1:] / "train.py").samefile(package.root / ORIGINAL[1:] / "train.py")
    assert package.status(f"{COPY}/train.py", alice).ownership.owner == "alice"
    assert internal_files(package) == []


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("changed", [ORIGINAL, COPY])
def test_change_of_one_is_not_seen_in_the_other(
    package: Storage, alice: StorageUser, change: str, changed: str
) -> None:
    CHANGES[change](package, f"{changed}/train.py", alice)
    other = COPY if changed == ORIGINAL else ORIGINAL
    assert read(package, f"{other}/train.py", alice) == b"the program"
    if change != "delete":
        assert read(package, f"{changed}/train.py", alice) != b"the program"
    assert internal_files(package) == []


def test_copy_stays_when_the_original_is_deleted(package: Storage, alice: StorageUser) -> None:
    package.delete(ORIGINAL, alice, recursive=True)
    assert read(package, f"{COPY}/data/deep/file", alice) == b"its data"


def test_copy_of_a_file_replaces_the_old_one(package: Storage, alice: StorageUser) -> None:
    put(package, f"{COPY}/output/model", b"trained", alice)
    for _ in range(2):  # the second time they are the same file
        package.copy_file(f"{COPY}/output/model", f"{ORIGINAL}/output/model", alice)
        assert read(package, f"{ORIGINAL}/output/model", alice) == b"trained"
    put(package, f"{COPY}/output/model", b"trained again", alice, overwrite=True)
    package.copy_file(f"{COPY}/output/model", f"{ORIGINAL}/output/model", alice)
    assert read(package, f"{ORIGINAL}/output/model", alice) == b"trained again"
    assert internal_files(package) == []


def test_bytes_of_both_count_once(storage: Storage, alice: StorageUser) -> None:
    def check(expected: int) -> None:
        counted = count_bytes(storage.namespace, storage.staging_area.suspended).by_owner
        assert (storage.usage.used_by(["alice"]), counted.get("alice", 0)) == (expected, expected)

    storage.usage.set_counted(count_bytes(storage.namespace, storage.staging_area.suspended))
    storage.usage.set_limits({"alice": (StorageLimit("user alice", 10 * MB),)})
    put(storage, f"{ORIGINAL}/data", b"x" * (4 * MB), alice)
    storage.copy_tree(ORIGINAL, COPY, alice)
    check(4 * MB)
    storage.write_at(f"{ORIGINAL}/data", alice, 0, b"y")
    check(8 * MB)
    storage.copy_file(f"{COPY}/data", f"{ORIGINAL}/data", alice)
    check(4 * MB)
    storage.delete(ORIGINAL, alice, recursive=True)
    check(4 * MB)
    storage.delete(COPY, alice, recursive=True)
    check(0)


def test_file_of_another_owner_is_copied(storage: Storage, alice: StorageUser, bob: StorageUser) -> None:
    put(storage, "/shared/vision/shared", b"of bob", bob)
    storage.copy_file("/shared/vision/shared", f"{ORIGINAL}/shared", alice)
    assert storage.status(f"{ORIGINAL}/shared", alice).ownership.owner == "alice"
    assert not (storage.root / "shared/vision/shared").samefile(storage.root / ORIGINAL[1:] / "shared")


def test_disk_without_links_gets_copies(
    storage: Storage, alice: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("paicluster.files.linked_copies.os.link", refuse)
    put(storage, f"{ORIGINAL}/data/file", b"its data", alice)
    storage.copy_tree(ORIGINAL, COPY, alice)
    assert read(storage, f"{COPY}/data/file", alice) == b"its data"


def test_copy_needs_permissions_and_a_free_place(
    package: Storage, alice: StorageUser, carol: StorageUser
) -> None:
    with raises_code("ConflictFileError"):
        package.copy_tree(ORIGINAL, COPY, alice)
    with raises_code("ForbiddenFileError"):
        package.copy_tree(ORIGINAL, "/user/carol/mine", carol)
    with raises_code("ForbiddenFileError"):
        package.copy_file(f"{ORIGINAL}/train.py", "/user/carol/mine", alice)
    assert internal_files(package) == []


def test_folder_of_the_copies_is_left_out(package: Storage, alice: StorageUser) -> None:
    """A whole home may be the package of a job, and has the copies of all its packages."""
    package.copy_tree("/user/alice", "/user/alice/packages/two", alice)
    assert names(package, "/user/alice/packages/two", alice) == ["package"]
    assert names(package, "/user/alice/packages/two/package", alice) == ["data", "empty", "train.py"]
    with raises_code("InvalidPathError"):
        package.copy_tree("/user/alice/packages", "/user/alice/packages/three", alice)
    assert names(package, "/user/alice/packages", alice) == ["one", "two"]


def test_file_that_is_replaced_meanwhile_is_copied(
    package: Storage, alice: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def replace_and_link(*args: Any, **more: Any) -> None:
        monkeypatch.setattr("paicluster.files.linked_copies.os.link", link)
        put(package, f"{ORIGINAL}/new", b"replaced", alice, overwrite=True)
        link(*args, **more)

    put(package, f"{ORIGINAL}/new", b"first", alice)
    monkeypatch.setattr("paicluster.files.linked_copies.os.link", replace_and_link)
    package.copy_file(f"{ORIGINAL}/new", f"{COPY}/new", alice)
    assert read(package, f"{COPY}/new", alice) == b"first"


def test_link_of_an_old_file_is_not_cleaned_up(
    package: Storage, alice: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_and_clean(*args: Any, **more: Any) -> None:
        link(*args, **more)
        package.staging_area.clean(at_once=True)

    os.utime(package.root / ORIGINAL[1:] / "train.py", (0, 0))
    monkeypatch.setattr("paicluster.files.linked_copies.os.link", link_and_clean)
    package.copy_file(f"{ORIGINAL}/train.py", f"{COPY}/again.py", alice)
    assert read(package, f"{COPY}/again.py", alice) == b"the program"
