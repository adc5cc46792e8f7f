"""concat: reads only permitted files and loses no acknowledged data."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from paicluster.files import StagedFile, Storage, StorageUser, writes
from paiprotocol.errors import PaiError
from support.storage_files import internal_files, put, read


def _after_first_copy(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    copy = writes._copy

    def copy_then_act(source: int, target: int, size: int, at: int) -> None:
        monkeypatch.undo()
        copy(source, target, size, at)
        act()

    monkeypatch.setattr(writes, "_copy", copy_then_act)


@pytest.mark.parametrize("swapped", ["source", "target"])
def test_concat_fails_when_a_file_was_swapped_meanwhile(
    storage: Storage,
    alice: StorageUser,
    bob: StorageUser,
    admin: StorageUser,
    monkeypatch: pytest.MonkeyPatch,
    swapped: str,
) -> None:
    put(storage, "/shared/vision/secret", b"bob's secret", bob)
    storage.set_mode("/shared/vision/secret", bob, 0o620)
    for name in ("target", "first", "source"):
        put(storage, f"/user/alice/{name}", b"mine", alice)

    def swap() -> None:
        storage.delete(f"/user/alice/{swapped}", alice, recursive=False)
        assert storage.rename("/shared/vision/secret", f"/user/alice/{swapped}", alice)

    if swapped == "source":
        _after_first_copy(monkeypatch, swap)
    else:
        # After the permission check and before anything is copied.
        begin = storage.staging_area.begin

        def swap_then_begin(path: str, finish: Callable[[StagedFile], None], owner: str) -> StagedFile:
            swap()
            return begin(path, finish, owner)

        monkeypatch.setattr(storage.staging_area, "begin", swap_then_begin)
    with pytest.raises(PaiError):
        storage.concat("/user/alice/target", ["/user/alice/first", "/user/alice/source"], alice)
    assert read(storage, f"/user/alice/{swapped}", admin) == b"bob's secret"
    assert internal_files(storage) == []


def test_concat_fails_when_read_permission_was_revoked_meanwhile(
    storage: Storage, alice: StorageUser, bob: StorageUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(storage, "/user/alice/target", b"mine", alice)
    put(storage, "/shared/vision/secret", b"secret", bob)
    _after_first_copy(monkeypatch, lambda: storage.set_mode("/shared/vision/secret", bob, 0o600))
    with pytest.raises(PaiError, match="Permission denied"):
        storage.concat("/user/alice/target", ["/shared/vision/secret"], alice)
    assert read(storage, "/user/alice/target", alice) == b"mine"


@pytest.mark.parametrize("to", ["target", "source"])
def test_append_during_concat_waits_and_is_not_lost(
    storage: Storage, alice: StorageUser, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    put(storage, "/user/alice/target", b"one ", alice)
    put(storage, "/user/alice/source", b"two ", alice)
    errors: list[PaiError] = []

    def append() -> None:
        try:
            staged = storage.stage_append(f"/user/alice/{to}", alice)
            staged.write(b"three")
            started.set()
            staged.commit()
        except PaiError as error:
            errors.append(error)

    started, thread = threading.Event(), threading.Thread(target=append)

    def append_during_concat() -> None:
        thread.start()
        assert started.wait(90)
        # Long enough for an append that does not wait.
        thread.join(0.2)
        assert thread.is_alive()

    _after_first_copy(monkeypatch, append_during_concat)
    storage.concat("/user/alice/target", ["/user/alice/source"], alice)
    thread.join(90)
    if to == "target":
        assert read(storage, "/user/alice/target", alice) == b"one two three"
        assert errors == []
    else:
        # The source is deleted, and the append fails.
        assert read(storage, "/user/alice/target", alice) == b"one two "
        assert [error.code for error in errors] == ["NoFileError"]
