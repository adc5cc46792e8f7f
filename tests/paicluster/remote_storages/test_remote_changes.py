"""Changes of storages in a cloud: folders in steps, uploads that go on, credentials that may only read."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from openpaisdk.storage.backends.object_store import ObjectInfo, ObjectPage, ObjectStore
from paicluster.config.sections import BucketSettings
from paicluster.remote_storages import bucket_tree, remote_changes, remote_tree
from paicluster.remote_storages.bucket_tree import BucketTree
from paicluster.remote_storages.cloud_buckets import CloudBucket
from paicluster.remote_storages.remote_changes import RemoteChanges
from paicluster.remote_storages.remote_tree import NewFile
from paicluster.remote_storages.storages import StorageConfig
from paiprotocol.errors import Conflict, ConnectionFailed, Forbidden, NotFound, Unavailable
from support.cloud_servers import (
    ACCESS_KEY,
    AZURE_ACCOUNT,
    AZURE_KEY,
    READER_KEY,
    READER_SECRET,
    SECRET_KEY,
    CloudServer,
)
from support.patient_clients import patient_changes, patient_files

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("cloud")]

MIB = 1 << 20
CONTENT = bytes(range(256)) * (20 * MIB // 256)


def private_file(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def bucket(
    server: CloudServer, tmp_path: Path, key: str = ACCESS_KEY, secret: str = SECRET_KEY
) -> CloudBucket:
    file = private_file(tmp_path / f"{key}.yaml", f"access-key-id: {key}\nsecret-access-key: {secret}\n")
    settings = BucketSettings(
        server.bucket,
        prefix=f"changes-{os.getpid()}-{tmp_path.name}",
        endpoint_url=server.endpoint,
        region="us-east-1",
        credentials=file,
    )
    return CloudBucket("s3", settings)


@pytest.fixture(name="storage", params=["s3", "azureblob"])
def storage_in_a_cloud(
    request: pytest.FixtureRequest, tmp_path: Path, s3_server: CloudServer, azure_server: CloudServer
) -> StorageConfig:
    if request.param == "s3":
        return StorageConfig("sets", remote=bucket(s3_server, tmp_path))
    settings = BucketSettings(
        azure_server.bucket,
        prefix=f"changes-{os.getpid()}-{tmp_path.name}",
        endpoint_url=f"{azure_server.endpoint}/{AZURE_ACCOUNT}",
        account=AZURE_ACCOUNT,
        credentials=private_file(tmp_path / "azure.yaml", f"account-key: {AZURE_KEY}\n"),
    )
    return StorageConfig("blobs", remote=CloudBucket("azureblob", settings))


@pytest.fixture(name="changes")
def bucket_changes(tmp_path: Path) -> Iterator[RemoteChanges]:
    changes = patient_changes(tmp_path / "home")
    yield changes
    changes.close()


async def sent(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 3 * MIB):
        yield data[at : at + 3 * MIB]


async def broken_off(data: bytes) -> AsyncIterator[bytes]:
    async for piece in sent(data):
        yield piece
    raise ConnectionResetError


async def write(changes: RemoteChanges, storage: StorageConfig, path: str, data: bytes = b"x") -> None:
    await changes.upload(storage, "alice", NewFile(path, len(data), overwrite=True), 0, sent(data))


async def listed(storage: StorageConfig, path: str) -> list[str]:
    files = patient_files()
    try:
        found = await files.list(storage, "alice", path, "")
        return [f"{one.name}/" if one.is_folder else one.name for one in found.entries]
    finally:
        files.close()


async def content(storage: StorageConfig, path: str) -> bytes:
    files = patient_files()
    try:
        file = await files.open(storage, "alice", path)
        return b"".join([piece async for piece in files.pieces(storage, file, file.size)])
    finally:
        files.close()


async def test_folder_is_moved_and_deleted_in_steps(storage: StorageConfig, changes: RemoteChanges) -> None:
    changes.clients.settings.max_moved = changes.clients.settings.max_deleted = 2
    for name in ("a", "b", "deep/c", "deep/er/d", "e"):
        await write(changes, storage, f"/top/old/{name}", name.encode())
    steps = [await changes.move(storage, "alice", "/top/old", "/top/new", resumes=False)]
    assert (steps[0].count, steps[0].is_complete) == (2, False)
    with pytest.raises(Conflict, match="/top/new already exists"):
        await changes.move(storage, "alice", "/top/old", "/top/new", resumes=False)
    while not steps[-1].is_complete:
        steps.append(await changes.move(storage, "alice", "/top/old", "/top/new", resumes=True))
    assert sum(step.count for step in steps) == 5
    assert await listed(storage, "/top") == ["new/"]
    assert await listed(storage, "/top/new") == ["a", "b", "deep/", "e"]
    assert await content(storage, "/top/new/deep/er/d") == b"deep/er/d"

    count = 0
    while not (step := await changes.delete(storage, "alice", "/top/new")).is_complete:
        count += step.count
    assert count + step.count == 5
    # The folder stays when the last entry in it goes.
    assert await listed(storage, "/top") == []
    with pytest.raises(NotFound):
        await changes.delete(storage, "alice", "/top/new")


class HierarchicalStore(ObjectStore):
    """Objects and real folders, which must be empty to be deleted."""

    def __init__(self, *files: str):
        super().__init__("az://fake")
        self.is_folder = dict.fromkeys(files, False)
        for file in files:
            self.is_folder |= {"/".join(file.split("/")[:n]): True for n in range(1, file.count("/") + 1)}

    def head(self, key: str) -> ObjectInfo | None:
        is_folder = self.is_folder.get(key)
        return None if is_folder is None else ObjectInfo(key, 0, 0, "", is_folder=is_folder)

    def list_page(self, prefix: str, page: str, *, flat: bool, limit: int = 1000) -> ObjectPage:
        found = sorted(key for key in self.is_folder if key.startswith(prefix))
        objects = [ObjectInfo(key, 0, 0, "", is_folder=self.is_folder[key]) for key in found[:limit]]
        return ObjectPage(objects, [], "more" if found[limit:] else "")

    def delete_objects(self, keys: list[str]) -> None:
        # In any order: nothing in a folder may be deleted in the same request.
        before = list(self.is_folder)
        for key in keys:
            if any(each.startswith(f"{key}/") for each in before):
                raise Conflict(f"{key} is not empty.")
            self.is_folder.pop(key, None)

    def copy_object(self, key: str, new_key: str) -> None:
        self.is_folder[new_key] = self.is_folder[key]


def test_real_folders_are_deleted_and_moved_after_what_is_in_them() -> None:
    names = ["top/a", "top/b-/x", "top/b/1", "top/b/c/2", "top/b/c/3", "top/b/c/d/4", "top/e/f/5", "top/g"]
    store = HierarchicalStore(*names)
    tree = BucketTree(store, max_deleted=4, max_moved=4)
    everything = dict(store.is_folder)
    for step in range(20):
        if tree.move(["top"], "/top", ["new"], "/new", resumes=step > 0).is_complete:
            break
    moved = {f"new{key[3:]}": is_folder for key, is_folder in everything.items() if key != "top"}
    assert store.is_folder == moved
    store = HierarchicalStore(*names)
    tree = BucketTree(store, max_deleted=4, max_moved=4)
    for _ in range(20):
        if tree.delete(["top"], "/top").is_complete:
            break
    assert store.is_folder == {}


async def test_empty_folders_are_moved(storage: StorageConfig, changes: RemoteChanges) -> None:
    await changes.make_folder(storage, "alice", "/alone")
    await changes.move(storage, "alice", "/alone", "/moved", resumes=False)
    assert await listed(storage, "/") == ["moved/"]

    await changes.make_folder(storage, "alice", "/full/empty")
    await write(changes, storage, "/full/file")
    await changes.move(storage, "alice", "/full", "/moved/full", resumes=False)
    assert await listed(storage, "/moved") == ["full/"]
    assert await listed(storage, "/moved/full") == ["empty/", "file"]


async def test_upload_goes_on_where_it_was_broken_off(storage: StorageConfig, changes: RemoteChanges) -> None:
    file = NewFile("/large.bin", len(CONTENT), key="one")
    assert await changes.begin_upload(storage, "alice", file) == 0
    with pytest.raises(ConnectionResetError):
        await changes.upload(storage, "alice", file, 0, broken_off(CONTENT[: 11 * MIB]))
    offset = await changes.begin_upload(storage, "alice", file)
    assert offset == 8 * MIB
    with pytest.raises(Conflict, match="is at byte 8388608"):
        await changes.upload(storage, "alice", file, 16 * MIB, sent(CONTENT[16 * MIB :]))
    # Another user's upload to the same path has parts of its own.
    assert await changes.begin_upload(storage, "bob", NewFile("/other.bin", len(CONTENT), key="one")) == 0
    await changes.upload(storage, "alice", file, offset, sent(CONTENT[offset:]))
    assert await content(storage, "/large.bin") == CONTENT
    with pytest.raises(Conflict, match=r"/large\.bin already exists"):
        await changes.begin_upload(storage, "alice", file)


async def test_upload_goes_on_when_the_request_before_it_has_ended(
    storage: StorageConfig, changes: RemoteChanges
) -> None:
    file = NewFile("/large.bin", len(CONTENT), key="one")
    is_lost = asyncio.Event()

    async def held() -> AsyncIterator[bytes]:
        async for piece in sent(CONTENT[: 11 * MIB]):
            yield piece
        for request in (
            changes.begin_upload(storage, "alice", file),
            changes.upload(storage, "alice", file, 0, sent(CONTENT)),
        ):
            with pytest.raises(Unavailable, match=r"An earlier request still uploads /large\.bin") as error:
                await request
            assert error.value.retry_after_s
        is_lost.set()
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await changes.upload(storage, "alice", file, 0, held())
    assert is_lost.is_set()
    assert await changes.begin_upload(storage, "alice", file) == 8 * MIB


async def test_upload_that_opens_too_late_leaves_its_record(
    s3_server: CloudServer, tmp_path: Path, changes: RemoteChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = StorageConfig("sets", remote=bucket(s3_server, tmp_path))
    file = NewFile("/large.bin", len(CONTENT), key="one")
    begins, goes_on, has_ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    opened = bucket_tree._open_upload

    def slow(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(begins.set)
        assert goes_on.wait(30)
        return opened(*arguments)

    end = remote_tree.RemoteUpload.end

    def recorded_end(upload: Any, *, is_kept: bool) -> None:
        end(upload, is_kept=is_kept)
        has_ended.set()

    with monkeypatch.context() as patch:
        patch.setattr(bucket_tree, "_open_upload", slow)
        patch.setattr(remote_tree.RemoteUpload, "end", recorded_end)
        request = asyncio.create_task(changes.upload(storage, "alice", file, 0, sent(CONTENT)))
        await begins.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        goes_on.set()
        assert await asyncio.to_thread(has_ended.wait, 30)
    with pytest.raises(ConnectionResetError):
        await changes.upload(storage, "alice", file, 0, broken_off(CONTENT[: 11 * MIB]))
    assert await changes.begin_upload(storage, "alice", file) == 8 * MIB


@pytest.mark.parametrize("name", ["file", "folder"])
async def test_move_goes_on_when_the_originals_could_not_be_deleted(
    storage: StorageConfig, changes: RemoteChanges, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/file", "/folder/a", "/folder/b"):
        await write(changes, storage, path)

    def failing(*_: object) -> None:
        raise ConnectionFailed("The connection was lost.")

    with monkeypatch.context() as patch:
        patch.setattr(bucket_tree, "_delete_objects", failing)
        step = await changes.move(storage, "alice", f"/{name}", "/new", resumes=False)
        assert (step.count, step.is_complete) == (0, False)
        # A step that goes on reports it: the caller would repeat it at once.
        with pytest.raises(Unavailable, match="The connection was lost"):
            await changes.move(storage, "alice", f"/{name}", "/new", resumes=True)
    with pytest.raises(Conflict, match="/new already exists") as error:
        await changes.move(storage, "alice", f"/{name}", "/new", resumes=False)
    assert "resume=true" in error.value.hint
    assert (await changes.move(storage, "alice", f"/{name}", "/new", resumes=True)).is_complete
    left = ["folder/", "new"] if name == "file" else ["file", "new/"]
    assert await listed(storage, "/") == left


async def test_cancelled_upload_starts_again(
    s3_server: CloudServer, tmp_path: Path, changes: RemoteChanges
) -> None:
    storage = StorageConfig("sets", remote=bucket(s3_server, tmp_path))
    file = NewFile("/large.bin", len(CONTENT), key="one")
    with pytest.raises(ConnectionResetError):
        await changes.upload(storage, "alice", file, 0, broken_off(CONTENT[: 11 * MIB]))
    await changes.cancel_upload(storage, "alice", file)
    assert await changes.begin_upload(storage, "alice", file) == 0

    async def cancelled_meanwhile() -> AsyncIterator[bytes]:
        async for piece in sent(CONTENT[: 11 * MIB]):
            yield piece
        await changes.cancel_upload(storage, "alice", file)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await changes.upload(storage, "alice", file, 0, cancelled_meanwhile())
    assert await changes.begin_upload(storage, "alice", file) == 0
    assert await listed(storage, "/") == []


async def test_credentials_that_may_only_read_are_refused_in_a_sentence(
    s3_server: CloudServer, tmp_path: Path, changes: RemoteChanges
) -> None:
    storage = StorageConfig("sets", remote=bucket(s3_server, tmp_path, READER_KEY, READER_SECRET))
    with pytest.raises(Forbidden) as error:
        await write(changes, storage, "/file")
    assert "The storage sets cannot be changed: " in error.value.message
    assert "access denied" in error.value.message


async def test_changes_of_a_server_that_stops_can_be_repeated(
    s3_server: CloudServer, tmp_path: Path, changes: RemoteChanges
) -> None:
    storage = StorageConfig("sets", remote=bucket(s3_server, tmp_path))

    def stopping() -> None:
        raise Unavailable("The server stops.")

    with pytest.raises(Unavailable, match=r"cannot be changed: The server stops\."):
        await changes.clients.run(storage, stopping)


async def test_uploads_are_counted(s3_server: CloudServer, tmp_path: Path, changes: RemoteChanges) -> None:
    storage = StorageConfig("sets", remote=bucket(s3_server, tmp_path))
    taken = [changes._uploads.acquire("alice") for _ in range(remote_changes.MAX_UPLOADS_PER_USER)]
    with pytest.raises(Unavailable, match="User alice has 4 uploads to remote storages, which is the limit"):
        await write(changes, storage, "/file")
    taken[0]()
    await write(changes, storage, "/file")
    await write(changes, storage, "/file")
