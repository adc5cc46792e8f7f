"""Files of storages in a cloud: one that does not answer, many readers at a time, new credentials."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.config.sections import BucketSettings
from paicluster.remote_storages import remote_files
from paicluster.remote_storages.cloud_buckets import CloudBucket
from paicluster.remote_storages.remote_clients import ClientSettings, RemoteClients
from paicluster.remote_storages.remote_files import RemoteFiles
from paicluster.remote_storages.storages import StorageConfig
from paiprotocol.errors import Unavailable
from support.object_server import ObjectServer, silent_server
from support.patient_clients import patient_files
from support.server_fixture import DEADLINE_S, eventually

CONTENT = os.urandom((5 << 20) // 2)


@pytest.fixture(name="server")
def object_server() -> Iterator[ObjectServer]:
    served = ObjectServer({"file": CONTENT})
    yield served
    served.close()


def write_credentials(tmp_path: Path, secret: str = "secret") -> Path:
    file = tmp_path / "s3.yaml"
    file.touch(mode=0o600)
    file.write_text(f"access-key-id: key\nsecret-access-key: {secret}\n")
    return file


def storage(name: str, endpoint: str, tmp_path: Path) -> StorageConfig:
    settings = BucketSettings(
        "bucket", endpoint_url=endpoint, region="us-east-1", credentials=write_credentials(tmp_path)
    )
    return StorageConfig(name, remote=CloudBucket("s3", settings))


def client_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith(("remote", "cloud"))]


async def test_cloud_that_does_not_answer_holds_up_neither_others_nor_the_stop(
    server: ObjectServer, tmp_path: Path
) -> None:
    files, before = RemoteFiles(RemoteClients(ClientSettings("read", 3600.0, 3600.0))), client_threads()
    works = storage("works", server.url, tmp_path)
    with silent_server() as endpoint:
        silent = storage("silent", endpoint, tmp_path)
        waiting = []
        for user in ("alice", "bob"):
            waiting += [asyncio.create_task(files.list(silent, user, "/", "")) for _ in range(8)]
        await asyncio.sleep(0)  # each has begun
        with pytest.raises(Unavailable, match="8 requests of user alice wait for remote storages"):
            await files.list(works, "alice", "/", "")
        with pytest.raises(Unavailable, match="Too many requests wait for the storage silent"):
            await files.list(silent, "carol", "/", "")
        async with asyncio.timeout(DEADLINE_S):
            assert [one.name for one in (await files.list(works, "carol", "/", "")).entries] == ["file"]
        for task in waiting:
            task.cancel()
        files.close()
        left = [each for each in client_threads() if each not in before]
        await asyncio.to_thread(lambda: [each.join(DEADLINE_S) for each in left])
        assert not [each for each in left if each.is_alive()]
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_cloud_is_asked_once_and_not_for_long(tmp_path: Path) -> None:
    files = RemoteFiles(RemoteClients(ClientSettings("read", 0.1, remote_files.RESPONSE_TIMEOUT_S)))
    with silent_server() as endpoint:
        silent = storage("silent", endpoint, tmp_path)
        with pytest.raises(Unavailable) as error:
            await files.list(silent, "alice", "/", "")
        assert "The storage silent cannot be read: " in error.value.message
        assert "did not answer in time" in error.value.message
        files.clients.settings.response_timeout_s = 0.01
        with pytest.raises(Unavailable, match="it does not answer"):
            await files.list(silent, "alice", "/", "")
        files.close()


async def test_file_arrives_in_small_pieces(server: ObjectServer, tmp_path: Path) -> None:
    files = patient_files()
    works = storage("works", server.url, tmp_path)
    file = await files.open(works, "alice", "/file")
    pieces = [piece async for piece in files.pieces(works, file, file.size)]
    assert b"".join(pieces) == CONTENT and max(map(len, pieces)) == 256 << 10
    files.close()


def test_downloads_are_counted() -> None:
    files = RemoteFiles()
    of_alice = [files.begin_download("alice") for _ in range(remote_files.MAX_DOWNLOADS_PER_USER)]
    with pytest.raises(
        Unavailable, match="User alice has 4 downloads from remote storages, which is the limit"
    ):
        files.begin_download("alice")
    for number in range(remote_files.MAX_DOWNLOADS - len(of_alice)):
        files.begin_download(f"user-{number}")
    with pytest.raises(Unavailable, match="The cluster has 16 downloads from remote storages"):
        files.begin_download("bob")
    of_alice[0]()
    files.begin_download("bob")


async def test_client_with_old_credentials_is_closed(server: ObjectServer, tmp_path: Path) -> None:
    files, before = patient_files(), client_threads()
    works = storage("works", server.url, tmp_path)

    def loops() -> list[threading.Thread]:
        return [each for each in client_threads() if each not in before and each.name == "cloud-storage"]

    file = await files.open(works, "alice", "/file")
    for secret in ("second", "third"):
        write_credentials(tmp_path, secret)
        await files.list(works, "alice", "/", "")
    await asyncio.to_thread(eventually, lambda: (len(loops()), server.connections) == (1, 1), "one client")
    # A download that began before goes on, and leaves nothing behind either.
    pieces = [piece async for piece in files.pieces(works, file, file.size)]
    assert b"".join(pieces) == CONTENT
    await asyncio.to_thread(eventually, lambda: (len(loops()), server.connections) == (1, 1), "one client")
    files.close()
    await asyncio.to_thread(eventually, lambda: (len(loops()), server.connections) == (0, 0), "no client")
