"""Bytes that users hold, their limits, and the part of the disk that uploads may not take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest

from paicluster.files import Storage, StorageUser, usage
from paicluster.files.errors import storage_failure
from paicluster.files.namespace import Inode, Namespace
from paicluster.files.usage import StorageLimit, count_bytes
from paicluster.files.walk import walk as namespace_walk
from paiprotocol.errors import PaiError

MB = 1 << 20


def write(storage: Storage, path: str, user: StorageUser, size: int) -> None:
    staged = storage.stage(path, user, overwrite=True)
    try:
        staged.write(b"x" * size)
        staged.commit()
    finally:
        staged.abandon()


@pytest.fixture
def limited(storage: Storage) -> Storage:
    """Alice may store 10 MB, Alice and Bob together 15."""
    vision = StorageLimit("group vision", 15 * MB)
    storage.usage.set_counted(count_bytes(storage.namespace, storage.staging_area.suspended))
    storage.usage.set_limits({"alice": (StorageLimit("user alice", 10 * MB), vision), "bob": (vision,)})
    return storage


def check_sums(storage: Storage, **expected: int) -> None:
    """The sums kept by the operations, and those of a new count."""
    counted = count_bytes(storage.namespace, storage.staging_area.suspended).by_owner
    for user, size in expected.items():
        assert storage.usage.used_by([user]) == size, f"kept for {user}"
        assert counted.get(user, 0) == size, f"counted for {user}"


def test_operations_keep_the_sums_that_a_count_gives(
    limited: Storage, alice: StorageUser, bob: StorageUser
) -> None:
    write(limited, "/user/alice/a", alice, MB)
    write(limited, "/user/alice/d/b", alice, 2 * MB)
    write(limited, "/user/bob/c", bob, 3 * MB)
    check_sums(limited, alice=3 * MB, bob=3 * MB)
    write(limited, "/user/alice/a", alice, 10)
    check_sums(limited, alice=2 * MB + 10)
    appended = limited.stage_append("/user/alice/a", alice)
    appended.write(b"x" * 90)
    appended.commit()
    check_sums(limited, alice=2 * MB + 100)
    limited.truncate("/user/alice/a", alice, 50)
    check_sums(limited, alice=2 * MB + 50)
    limited.concat("/user/alice/a", ["/user/alice/d/b"], alice)
    check_sums(limited, alice=2 * MB + 50)
    write(limited, "/user/alice/d/e/f", alice, 5)
    limited.delete("/user/alice/d", alice, recursive=True)
    limited.delete("/user/alice/a", alice, recursive=False)
    check_sums(limited, alice=0, bob=3 * MB)


def test_write_over_a_limit_is_refused_and_leaves_nothing(limited: Storage, alice: StorageUser) -> None:
    write(limited, "/user/alice/a", alice, 6 * MB)
    with pytest.raises(PaiError) as caught:
        write(limited, "/user/alice/b", alice, 5 * MB)
    assert (caught.value.status, caught.value.code) == (507, "QuotaExceededError")
    assert str(caught.value).startswith(
        f"The storage quota of user alice is exceeded: quota = {10 * MB} B but storage needed for "
        f"/user/alice/b = {11 * MB} B."
    )
    check_sums(limited, alice=6 * MB)
    write(limited, "/user/alice/b", alice, 4 * MB)


def test_concat_needs_no_quota_for_its_copy(limited: Storage, alice: StorageUser) -> None:
    write(limited, "/user/alice/a", alice, 5 * MB)
    write(limited, "/user/alice/b", alice, 5 * MB)
    limited.concat("/user/alice/a", ["/user/alice/b"], alice)
    check_sums(limited, alice=10 * MB)


def test_members_of_a_group_share_its_limit(limited: Storage, alice: StorageUser, bob: StorageUser) -> None:
    write(limited, "/user/bob/c", bob, 12 * MB)
    with pytest.raises(PaiError, match="storage quota of group vision"):
        write(limited, "/user/alice/a", alice, 4 * MB)


def test_bytes_count_while_they_arrive(limited: Storage, alice: StorageUser) -> None:
    uploads = [limited.stage(f"/user/alice/{number}", alice, overwrite=True) for number in range(3)]
    with pytest.raises(PaiError, match="storage quota of user alice"):
        for _ in range(4):
            for upload in uploads:
                upload.write(b"x" * MB)
    assert limited.usage.used_by(["alice"]) == 10 * MB
    for upload in uploads:
        upload.abandon()
    check_sums(limited, alice=0)


def test_unfinished_uploads_count_and_are_found_again(limited: Storage, alice: StorageUser) -> None:
    staged = limited.stage("/user/alice/a", alice, overwrite=True, key="k" * 40)
    staged.write(b"x" * 8 * MB)
    staged.suspend()
    check_sums(limited, alice=8 * MB)
    with pytest.raises(PaiError, match="storage quota of user alice"):
        write(limited, "/user/alice/b", alice, 3 * MB)
    again = limited.stage("/user/alice/a", alice, overwrite=True, key="k" * 40)
    limited.usage.set_counted(count_bytes(limited.namespace, limited.staging_area.suspended))
    assert limited.usage.used_by(["alice"]) == 8 * MB, "an upload in progress is not lost by a count"
    os.lseek(again.fd, 0, os.SEEK_END)
    again.write(b"x" * MB)
    again.commit()
    check_sums(limited, alice=9 * MB)


def test_user_cannot_lower_the_sum_by_disturbing_the_count(
    limited: Storage, alice: StorageUser, bob: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(limited, "/user/alice/d/a", alice, 5 * MB)
    write(limited, "/user/bob/d/b", bob, MB)

    def moved_meanwhile(namespace: Namespace, top: Inode, visit: Callable[[Inode], Iterable[str]]) -> None:
        if top.names == ("user", "alice"):
            raise storage_failure("/user/alice/d was moved during the operation. Try again.")
        namespace_walk(namespace, top, visit)

    monkeypatch.setattr(usage, "walk", moved_meanwhile)
    count = count_bytes(limited.namespace, limited.staging_area.suspended)
    assert count.incomplete == {"alice"}
    limited.usage.set_counted(count)
    assert limited.usage.used_by(["alice"]) == 5 * MB
    assert limited.usage.used_by(["bob"]) == MB


def test_announced_size_over_a_limit_is_refused_at_once(limited: Storage, alice: StorageUser) -> None:
    staged = limited.stage("/user/alice/a", alice, overwrite=True)
    with pytest.raises(PaiError, match="storage quota of user alice"):
        staged.reserve(11 * MB)
    staged.reserve(10 * MB)
    assert limited.usage.used_by(["alice"]) == 0, "an announced size reserves nothing"
    staged.abandon()


def test_uploads_leave_a_margin_of_the_disk(
    storage: Storage, alice: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = os.fstatvfs(storage.namespace.fd)
    assert usage.free_bytes(storage.namespace.fd) < disk.f_bavail * disk.f_frsize
    monkeypatch.setattr(usage, "free_bytes", lambda fd: MB)
    write(storage, "/user/alice/a", alice, MB)
    with pytest.raises(PaiError) as caught:
        write(storage, "/user/alice/b", alice, MB + 1)
    assert (caught.value.status, caught.value.code) == (507, "StorageFullError")
