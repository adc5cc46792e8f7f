"""Which storage is used when none is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.storage import Storage
from paiprotocol.errors import UsageError
from support.http_peer import Peer, Request, reply
from support.storage_fixture import StorageWorkspace


def test_default_storage_of_the_settings_is_used_by_python_and_by_commands(
    workspace: StorageWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace.person.home))
    missing = "has no storage called 'other'"
    workspace.ok("set", "-g", "storage-alias=other")
    try:
        assert missing in workspace.pai("listdir", "pai://team/0/user").err
        with pytest.raises(UsageError, match=missing):
            workspace.storage()
    finally:
        workspace.ok("unset", "-g", "storage-alias")
    assert workspace.storage().list(workspace.path) == []


def test_storage_is_found_when_each_first_response_breaks_off() -> None:
    asked: Counter[str] = Counter()

    def respond(request: Request) -> Iterator[bytes]:
        asked[request.path] += 1
        whole = reply({"version": 1})
        yield whole[:-1] if asked[request.path] == 1 else whole
        if asked[request.path] == 1:
            raise ConnectionError

    peer = Peer(respond)
    try:
        storage = Storage.of(ClusterClient("team", Endpoint(peer.uri, "alice", "token")))
    finally:
        peer.close()
    assert repr(storage) == "<Storage pai://team/hdfs/>"
    assert set(asked.values()) == {2}, asked
