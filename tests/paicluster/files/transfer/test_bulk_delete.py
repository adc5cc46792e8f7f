"""Bulk delete: thousands of files in one request."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from openpaisdk.storage.backends.base import Backend
from openpaisdk.storage.backends.cluster import ClusterBackend
from openpaisdk.storage.location import parse_location
from openpaisdk.storage.storage import _SingleStorageOpener
from openpaisdk.storage.transfer.copy import CopyOperation
from paiprotocol.errors import PaiError
from paiprotocol.transfer.pack_format import MAX_PACK_FILES
from support.cluster_storage import storage_of
from support.team_cluster import TeamCluster

_numbers = itertools.count()


@pytest.fixture
def folder() -> str:
    return f"/user/alice/r{next(_numbers)}"


@pytest.fixture
def alice(team: TeamCluster) -> ClusterBackend:
    backend = storage_of(team, "alice", over_http=True).backend
    assert isinstance(backend, ClusterBackend)
    return backend


def create_files(backend: Backend, folder: str, *names: str) -> None:
    for name in names:
        backend.write_bytes(f"{folder}/{name}", b"x", 10**18, 0o644)


def record_requests(backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List of all requests of transfers from now on."""
    requests: list[str] = []
    ask: Callable[..., object] = backend.transfer_request

    def record(method: str, path: str, *rest: object) -> object:
        requests.append(f"{method} {path}")
        return ask(method, path, *rest)

    monkeypatch.setattr(backend, "transfer_request", record)
    return requests


def test_bulk_delete_ignores_missing_names(alice: ClusterBackend, folder: str) -> None:
    create_files(alice, folder, "a", "b", "deep/er/c", "stays")
    assert alice.delete_all(folder, ["a", "never", "deep", "b"]) == []
    assert [entry.name for entry in alice.list_folder(folder)] == ["stays"]


@pytest.mark.parametrize("name", ["", "/", "../bob/x", ".", "a:b"])
def test_bulk_delete_reports_invalid_names(alice: ClusterBackend, folder: str, name: str) -> None:
    create_files(alice, folder, "a", "stays")
    assert [failed for failed, _ in alice.delete_all(folder, [name, "a"])] == [name]
    assert [entry.name for entry in alice.list_folder(folder)] == ["stays"]


def test_bulk_delete_keeps_files_of_other_users(
    team: TeamCluster, alice: ClusterBackend, folder: str
) -> None:
    create_files(alice, folder, "a", "b")
    bob = storage_of(team, "bob", over_http=True).backend
    assert [error.code for _, error in bob.delete_all(folder, ["a", "b"])] == ["ForbiddenFileError"] * 2
    assert len(alice.list_folder(folder)) == 2


def test_sync_sends_one_request_per_thousand_deletions(
    alice: ClusterBackend, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(MAX_PACK_FILES + 1):
        (tmp_path / f"{i:04}").write_bytes(b"")
    synchronise(alice, tmp_path, folder)
    for file in tmp_path.iterdir():
        file.unlink()
    (tmp_path / "new").write_bytes(b"1")
    requests = record_requests(alice, monkeypatch)
    synchronise(alice, tmp_path, folder)
    assert [entry.name for entry in alice.list_folder(folder)] == ["new"]
    assert requests.count("POST /api/v2/transfer/remove") == 2


def test_deletes_one_by_one_without_bulk_delete_support(
    alice: ClusterBackend, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_files(alice, folder, "a", "b", "stays")
    del alice.capabilities["removes"]
    requests = record_requests(alice, monkeypatch)
    assert alice.delete_all(folder, ["a", "b", "never"]) == []
    assert [entry.name for entry in alice.list_folder(folder)] == ["stays"]
    assert not any("remove" in request for request in requests)


def test_sync_reports_how_many_could_not_be_deleted(
    team: TeamCluster, alice: ClusterBackend, folder: str, tmp_path: Path
) -> None:
    """In a sticky folder, where each user may delete only own files."""
    create_files(alice, folder, "a", "b")
    team.ask("PUT", f"/webhdfs/v1{folder}?op=SETPERMISSION&permission=1777")
    team.ask("PUT", "/webhdfs/v1/user/alice?op=SETPERMISSION&permission=755")
    bob = storage_of(team, "bob", over_http=True).backend
    bob.write_bytes(f"{folder}/c", b"bob's", 10**18, 0o644)
    (tmp_path / "new").write_bytes(b"1")
    with pytest.raises(PaiError, match=r"2 of 3 could not be deleted\. The first error: "):
        synchronise(bob, tmp_path, folder)
    assert sorted(entry.name for entry in bob.list_folder(folder)) == ["a", "b", "new"]


def synchronise(backend: Backend, here: Path, there: str) -> None:
    target = parse_location(f"pai://team/0{there}")
    CopyOperation.plan(
        _SingleStorageOpener(backend), parse_location(str(here)), target, sync=True, delete=True
    ).run()
