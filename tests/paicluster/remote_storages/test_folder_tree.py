"""Remote storages with folders, of a real WebHDFS server and a real smbd: browse, upload, change, bounds."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from openpaisdk.storage.backends.base import TargetFile
from openpaisdk.storage.backends.samba import SambaBackend, ShareAddress
from openpaisdk.storage.backends.webhdfs import LEASE_HELD
from paicluster.config.sections import ShareSettings
from paicluster.remote_storages.network_shares import SAMBA, NetworkShare
from paicluster.remote_storages.remote_changes import RemoteChanges
from paicluster.remote_storages.remote_clients import ClientSettings, NoResponse, RemoteClients
from paicluster.remote_storages.remote_files import RESPONSE_TIMEOUT_S, RemoteFiles
from paicluster.remote_storages.remote_tree import NewFile
from paicluster.remote_storages.storages import ExternalHdfs, StorageConfig
from paiprotocol.errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    InvalidParameters,
    NotFound,
    PaiError,
    Unavailable,
    UsageError,
)
from support.object_server import silent_server
from support.patient_clients import patient_changes, patient_files
from support.samba_server import SambaServer
from support.server_fixture import DEADLINE_S, eventually
from support.stalling_relay import StallingRelay
from support.team_cluster import TeamCluster, add_users

pytestmark = pytest.mark.xdist_group("cloud")

MIB = 1 << 20
SHARE = pytest.param("share", marks=pytest.mark.service)


@dataclass(frozen=True)
class Place:
    """A storage, and a folder of it that this test has alone."""

    storage: StorageConfig
    folder: str

    def at(self, name: str) -> str:
        return f"{self.folder}/{name}"


@pytest.fixture(scope="module", name="hdfs")
def webhdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    """Another cluster, whose storage is an HDFS that trusts the names of users."""
    home = tmp_path_factory.mktemp("hdfs") / "home"
    add_users(home)
    (home / "cluster.yaml").write_text("authentication: {trust-user-name: true}\n")
    cluster = TeamCluster(home, ("--config", str(home / "cluster.yaml"), "--allow-shared-account"))
    cluster.start()
    cluster.tokens = {"admin": cluster.log_in("admin")}
    yield cluster
    cluster.close()


def hdfs_storage(cluster: TeamCluster) -> StorageConfig:
    return StorageConfig("lake", remote=ExternalHdfs("http://{}:{}".format(*cluster.address)))


def share_storage(server: SambaServer, tmp_path: Path, address: str = "", **more: bool) -> StorageConfig:
    settings = ShareSettings(address or server.address, credentials=write_credentials(server, tmp_path))
    return StorageConfig("office", remote=NetworkShare(SAMBA, settings), **more)


def share_of_folders(server: SambaServer, tmp_path: Path) -> StorageConfig:
    """A share on which each user has a folder, and sees no other."""
    (server.folder / tmp_path.name).mkdir()
    return share_storage(server, tmp_path, f"{server.address}/{tmp_path.name}", share=False)


def write_credentials(server: SambaServer, tmp_path: Path, password: str = "") -> Path:
    file = tmp_path / "samba.yaml"
    file.touch(mode=0o600)
    file.write_text(f"username: {server.username}\npassword: {password or server.password}\n")
    return file


@pytest.fixture(name="place", params=["hdfs", SHARE])
def storage_with_folders(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    folder = f"{tmp_path.name}-{os.urandom(4).hex()}"
    if request.param == "hdfs":
        return Place(hdfs_storage(request.getfixturevalue("hdfs")), f"/user/alice/{folder}")
    return Place(share_storage(request.getfixturevalue("samba_server"), tmp_path), f"/{folder}")


@pytest.fixture(name="files")
def remote_files() -> Iterator[RemoteFiles]:
    with closing(patient_files()) as files:
        yield files


@pytest.fixture(name="changes")
def remote_changes(tmp_path: Path) -> Iterator[RemoteChanges]:
    with closing(patient_changes(tmp_path / "home")) as changes:
        yield changes


async def sent(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 3 * MIB):
        yield data[at : at + 3 * MIB]


async def broken_off(data: bytes) -> AsyncIterator[bytes]:
    async for piece in sent(data):
        yield piece
    raise ConnectionResetError


async def write(changes: RemoteChanges, storage: StorageConfig, path: str, data: bytes = b"x") -> None:
    await changes.upload(storage, "alice", NewFile(path, len(data), overwrite=True), 0, sent(data))


async def listed(files: RemoteFiles, storage: StorageConfig, path: str, user: str = "alice") -> list[str]:
    found = await files.list(storage, user, path, "")
    return [f"{one.name}/" if one.is_folder else f"{one.name} {one.size}" for one in found.entries]


async def content(files: RemoteFiles, storage: StorageConfig, path: str) -> bytes:
    file = await files.open(storage, "alice", path)
    return b"".join([piece async for piece in files.pieces(storage, file, file.size)])


async def test_files_are_written_listed_read_moved_and_deleted(
    place: Place, files: RemoteFiles, changes: RemoteChanges
) -> None:
    storage, large = place.storage, os.urandom(5 * MIB // 2)
    for name, data in {"a b#1.txt": b"one", "empty": b"", "deep/er/large": large}.items():
        await write(changes, storage, place.at(name), data)
    assert await listed(files, storage, place.folder) == ["a b#1.txt 3", "deep/", "empty 0"]
    found = await files.list(storage, "alice", place.at("a b#1.txt"), "")
    assert found.file is not None and (found.file.name, found.file.size) == ("a b#1.txt", 3)
    assert found.file.modified_ms > 0
    assert await content(files, storage, place.at("deep/er/large")) == large
    assert await content(files, storage, place.at("empty")) == b""

    with pytest.raises(Conflict, match="already exists"):
        await changes.upload(storage, "alice", NewFile(place.at("empty"), 1), 0, sent(b"x"))
    await write(changes, storage, place.at("empty"), b"replaced")
    assert await content(files, storage, place.at("empty")) == b"replaced"
    with pytest.raises(Conflict, match="already exists, and is a folder"):
        await write(changes, storage, place.at("deep"))
    with pytest.raises(Conflict, match="is a file and not a folder"):
        await write(changes, storage, place.at("empty/file"))

    for _ in range(2):  # one that exists stays
        await changes.make_folder(storage, "alice", place.at("made"))
    with pytest.raises(Conflict, match="already exists, and is a file"):
        await changes.make_folder(storage, "alice", place.at("empty"))
    with pytest.raises(Conflict, match="made already exists"):
        await changes.move(storage, "alice", place.at("deep"), place.at("made"), resumes=False)
    with pytest.raises(NotFound, match="absent: there is no such file or folder"):
        await changes.move(storage, "alice", place.at("deep"), place.at("absent/deep"), resumes=False)
    with pytest.raises(InvalidParameters, match="cannot be moved to itself or into itself"):
        await changes.move(storage, "alice", place.at("deep"), place.at("deep/er/x"), resumes=False)
    step = await changes.move(storage, "alice", place.at("deep"), place.at("made/moved"), resumes=False)
    assert step.is_complete
    assert await content(files, storage, place.at("made/moved/er/large")) == large

    while not (await changes.delete(storage, "alice", place.at("made"))).is_complete:
        pass
    assert (await changes.delete(storage, "alice", place.at("empty"))).is_complete
    assert await listed(files, storage, place.folder) == ["a b#1.txt 3"]
    for missing in (
        changes.delete(storage, "alice", place.at("made")),
        files.list(storage, "alice", place.at("made"), ""),
    ):
        with pytest.raises(NotFound, match="made: there is no such file or folder"):
            await missing
    with pytest.raises(NotFound, match="there is no such file"):
        await files.open(storage, "alice", place.folder)


async def test_upload_goes_on_where_it_was_broken_off_and_can_be_cancelled(
    place: Place, files: RemoteFiles, changes: RemoteChanges
) -> None:
    storage, data = place.storage, os.urandom(20 * MIB)
    file = NewFile(place.at("large.bin"), len(data), key="one")
    assert await changes.begin_upload(storage, "alice", file) == 0
    with pytest.raises(ConnectionResetError):
        await changes.upload(storage, "alice", file, 0, broken_off(data[: 11 * MIB]))
    assert await listed(files, storage, place.folder) == []
    assert await changes.begin_upload(storage, "alice", file) == 8 * MIB
    with pytest.raises(Conflict, match="is at byte 8388608"):
        await changes.upload(storage, "alice", file, 16 * MIB, sent(data[16 * MIB :]))
    await changes.cancel_upload(storage, "alice", file)
    assert await changes.begin_upload(storage, "alice", file) == 0
    with pytest.raises(ConnectionResetError):
        await changes.upload(storage, "alice", file, 0, broken_off(data[: 11 * MIB]))
    await changes.upload(storage, "alice", file, 8 * MIB, sent(data[8 * MIB :]))
    assert await content(files, storage, file.path) == data
    with pytest.raises(Conflict, match=r"large\.bin already exists"):
        await changes.begin_upload(storage, "alice", file)


async def test_file_that_changes_during_a_download_is_not_taken_for_the_whole(
    place: Place, files: RemoteFiles, changes: RemoteChanges
) -> None:
    await write(changes, place.storage, place.at("file"), bytes(3 * MIB))
    file = await files.open(place.storage, "alice", place.at("file"))
    pieces = files.pieces(place.storage, file, file.size)
    await anext(pieces)
    await write(changes, place.storage, place.at("file"), b"\1" * 3 * MIB)
    with pytest.raises(Unavailable, match="file has changed while it was read"):
        [piece async for piece in pieces]


async def test_file_of_one_block_that_changes_before_it_is_read_is_not_taken_for_it(
    place: Place, files: RemoteFiles, changes: RemoteChanges
) -> None:
    await write(changes, place.storage, place.at("file"), b"old")
    file = await files.open(place.storage, "alice", place.at("file"))
    await changes.delete(place.storage, "alice", file.key)
    await write(changes, place.storage, place.at("file"), b"new")
    with pytest.raises(Unavailable, match="file has changed while it was read"):
        [piece async for piece in files.pieces(place.storage, file, file.size)]


async def test_upload_that_is_cancelled_or_only_begins_creates_nothing(
    place: Place, files: RemoteFiles, changes: RemoteChanges
) -> None:
    file = NewFile(place.at("new/file"), 1, key="one")
    assert await changes.begin_upload(place.storage, "alice", file) == 0
    await changes.cancel_upload(place.storage, "alice", file)
    with pytest.raises(NotFound):
        await listed(files, place.storage, place.folder)
    await changes.upload(place.storage, "alice", file, 0, sent(b"x"))
    assert await listed(files, place.storage, place.at("new")) == ["file 1"]


async def test_upload_leaves_no_parts_when_another_file_takes_its_name(
    place: Place, changes: RemoteChanges
) -> None:
    file = NewFile(place.at("file"), 1, key="one")

    async def overtaken() -> AsyncIterator[bytes]:
        await write(changes, place.storage, file.path, b"first")
        yield b"x"

    with pytest.raises(Conflict, match="file already exists"):
        await changes.upload(place.storage, "alice", file, 0, overtaken())
    await changes.delete(place.storage, "alice", file.path)
    assert await changes.begin_upload(place.storage, "alice", file) == 0


async def test_path_below_a_file_is_an_error_of_the_caller(
    place: Place, files: RemoteFiles, changes: RemoteChanges
) -> None:
    await write(changes, place.storage, place.at("file"))
    with pytest.raises((InvalidParameters, NotFound)):
        await listed(files, place.storage, place.at("file/inner"))
    with pytest.raises((InvalidParameters, NotFound)):
        await changes.delete(place.storage, "alice", place.at("file/inner"))


async def test_read_only_storage_is_not_changed(place: Place, changes: RemoteChanges) -> None:
    fixed = replace(place.storage, read_only=True)
    for change in (changes.make_folder(fixed, "alice", "/x"), changes.delete(fixed, "alice", "/x")):
        with pytest.raises(Forbidden, match="is read-only"):
            await change


# -- HDFS ------------------------------------------------------------------------------------------


async def test_hdfs_is_asked_as_the_user(
    hdfs: TeamCluster, files: RemoteFiles, changes: RemoteChanges
) -> None:
    storage = hdfs_storage(hdfs)
    await write(changes, storage, "/user/alice/private/file")
    with pytest.raises(Forbidden, match=r"lake/user/alice.*: permission denied \(.*bob"):
        await listed(files, storage, "/user/alice/private", "bob")
    with pytest.raises(Forbidden, match="permission denied"):
        await changes.delete(storage, "bob", "/user/alice/private")
    with pytest.raises(Unavailable, match="The storage lake cannot be read") as error:
        await listed(files, storage, "/", "stranger")
    # The caller is signed in here, whatever the HDFS thinks.
    assert error.value.status == 503
    with pytest.raises(InvalidParameters, match="it has a colon"):
        await listed(files, storage, "/user/alice/a:b")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PaiError("An interrupted copy still holds the write lease.", code=LEASE_HELD), NoResponse),
        (UsageError("/a/b: a part of this path is a file and not a folder.", status=403), InvalidParameters),
    ],
)
async def test_errors_of_an_hdfs_tell_whether_a_repetition_helps(
    changes: RemoteChanges, error: PaiError, kind: type[PaiError]
) -> None:
    def failing() -> None:
        raise error

    with pytest.raises(kind, match=error.message):
        await changes.clients.run(StorageConfig("lake", remote=ExternalHdfs("http://127.0.0.1:9")), failing)


async def test_folder_of_an_hdfs_is_listed_in_pages(hdfs: TeamCluster, files: RemoteFiles) -> None:
    storage = hdfs_storage(hdfs)
    [home] = [root for root in hdfs.home.glob("storage*") if (root / "user/alice").is_dir()]
    many = home / "user/alice/many"
    many.mkdir()
    for number in range(1100):
        (many / f"f{number:04}").touch()
    names, cursor, pages = [], "", 0
    while cursor or not pages:
        page = await files.list(storage, "alice", "/user/alice/many", cursor)
        names += [one.name for one in page.entries]
        cursor, pages = page.next, pages + 1
    assert names == [f"f{number:04}" for number in range(1100)] and pages > 1


async def test_silent_hdfs_is_asked_once_and_ends_with_the_server() -> None:
    before = remote_threads()
    with silent_server() as address:
        storage = StorageConfig("lake", remote=ExternalHdfs(address))
        impatient = RemoteFiles(RemoteClients(ClientSettings("read", 0.2, RESPONSE_TIMEOUT_S)))
        with pytest.raises(Unavailable, match=r"The storage lake cannot be read: .*no response within"):
            await impatient.list(storage, "alice", "/", "")
        impatient.close()
        patient = RemoteFiles(RemoteClients(ClientSettings("read", 3600.0, 3600.0)))
        waiting = asyncio.create_task(patient.list(storage, "alice", "/", ""))
        await asyncio.to_thread(eventually, lambda: remote_threads() - before, "a thread")
        patient.close()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.to_thread(eventually, lambda: remote_threads() <= before, "no threads")


async def test_response_of_an_hdfs_has_a_bound(hdfs: TeamCluster, files: RemoteFiles) -> None:
    files.clients.settings.max_response_bytes = 10
    with pytest.raises(Unavailable, match="sent a response of more than 0 MiB"):
        await listed(files, hdfs_storage(hdfs), "/")


def remote_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("remote")}


# -- shares ----------------------------------------------------------------------------------------


@pytest.mark.service
def test_copy_that_arrived_incomplete_does_not_replace_the_file(
    samba_server: SambaServer, tmp_path: Path
) -> None:
    folder = samba_server.folder / tmp_path.name
    folder.mkdir()
    (folder / "file").write_bytes(b"old")
    address = ShareAddress(f"{samba_server.address}/{tmp_path.name}")
    share = SambaBackend(address, samba_server.username, samba_server.password, url="smb://office")

    def target() -> TargetFile:
        return share.create("/file", (6, 10**18, 0o644), "key")

    first = target()
    first.put(0, 6, lambda: iter([b"abcdef"]))
    first.close()
    (partial,) = (path for path in folder.iterdir() if path.name != "file")
    os.truncate(partial, 4)
    with pytest.raises(ConnectionFailed, match="/file arrived incomplete; the target is unchanged"):
        first.finish(6)
    assert (folder / "file").read_bytes() == b"old"
    again = target()
    assert again.missing_ranges() == [(4, 2)]
    again.put(4, 2, lambda: iter([b"ef"]))
    again.finish(6)
    assert (folder / "file").read_bytes() == b"abcdef" and len(list(folder.iterdir())) == 1
    share.close()


@pytest.mark.service
async def test_share_of_folders_shows_each_user_the_own_one(
    samba_server: SambaServer, tmp_path: Path, files: RemoteFiles, changes: RemoteChanges
) -> None:
    own = share_of_folders(samba_server, tmp_path)
    assert await listed(files, own, "/") == []
    await write(changes, own, "/file")
    assert await listed(files, own, "/") == ["file 1"]
    assert await listed(files, own, "/", "bob") == []
    assert (samba_server.folder / tmp_path.name / "alice" / "file").read_text() == "x"
    for path in ("/..\\alice/file", "/../alice/file", "/.. /alice/file", "/x:y", "/a\nb"):
        with pytest.raises(InvalidParameters):
            await listed(files, own, path, "bob")
        with pytest.raises(InvalidParameters):
            await changes.delete(own, "bob", path)
        with pytest.raises(InvalidParameters):
            await changes.move(own, "bob", "/mine", path, resumes=False)


@pytest.mark.service
async def test_users_whose_names_differ_in_case_do_not_share_a_folder(
    samba_server: SambaServer, tmp_path: Path, files: RemoteFiles, changes: RemoteChanges
) -> None:
    own = share_of_folders(samba_server, tmp_path)
    await write(changes, own, "/deep/file")
    (samba_server.folder / tmp_path.name / "bobby").mkdir()
    assert await listed(files, own, "/", "bob") == []
    new = NewFile("/new", 1)
    for refused in (
        listed(files, own, "/deep", "Alice"),
        files.open(own, "Alice", "/deep/file"),
        changes.upload(own, "Alice", new, 0, sent(b"x")),
        changes.make_folder(own, "Alice", "/new"),
        changes.move(own, "Alice", "/deep", "/moved", resumes=False),
        changes.delete(own, "Alice", "/deep"),
    ):
        with pytest.raises(Forbidden, match="The folder alice of this storage is not that of user Alice"):
            await refused
    assert await listed(files, own, "/deep") == ["file 1"]
    with pytest.raises(Forbidden, match="Windows ignores dots"):
        await listed(files, own, "/", "alice.")
    # A server that distinguishes them has both.
    (samba_server.folder / tmp_path.name / "Alice").mkdir()
    assert await listed(files, own, "/deep") == ["file 1"]
    assert await listed(files, own, "/", "Alice") == []


@pytest.mark.service
async def test_large_folder_of_a_share_is_cut_off_and_deleted_in_steps(
    samba_server: SambaServer, tmp_path: Path, files: RemoteFiles, changes: RemoteChanges
) -> None:
    files.clients.settings.max_share_entries = 5
    changes.clients.settings.max_deleted = 4
    storage, top = share_storage(samba_server, tmp_path), samba_server.folder / tmp_path.name
    for number in range(9):
        (top / f"folder{number}/inner").mkdir(parents=True)
        (top / f"folder{number}/inner/file").touch()
    page = await files.list(storage, "alice", f"/{tmp_path.name}", "")
    assert (len(page.entries), page.next, page.is_truncated) == (5, "", True)
    steps = [await changes.delete(storage, "alice", f"/{tmp_path.name}")]
    while not steps[-1].is_complete:
        assert top.exists()
        steps.append(await changes.delete(storage, "alice", f"/{tmp_path.name}"))
    assert not top.exists()
    assert sum(step.count for step in steps) == 28 and max(step.count for step in steps) <= 4


@pytest.mark.service
async def test_share_rejects_credentials_until_they_are_right(
    samba_server: SambaServer, tmp_path: Path, files: RemoteFiles
) -> None:
    storage = share_storage(samba_server, tmp_path)
    (samba_server.folder / f"{tmp_path.name}.txt").touch()
    await listed(files, storage, "/")
    write_credentials(samba_server, tmp_path, "wrong-password")
    with pytest.raises(Unavailable) as error:
        await listed(files, storage, "/")
    assert "The storage office cannot be read: The server 127.0.0.1 rejects" in error.value.message
    assert "wrong-password" not in f"{error.value.message} {error.value.hint}"
    write_credentials(samba_server, tmp_path)
    assert f"{tmp_path.name}.txt 0" in await listed(files, storage, "/")


@pytest.fixture(name="relay")
def relay_to_samba(samba_server: SambaServer) -> Iterator[StallingRelay]:
    with closing(StallingRelay(int(samba_server.address.split("/")[2].rpartition(":")[2]))) as relay:
        yield relay


@pytest.mark.service
async def test_share_that_stops_answering_loses_its_connection_and_works_again(
    samba_server: SambaServer, relay: StallingRelay, tmp_path: Path
) -> None:
    settings = ClientSettings("read", DEADLINE_S, DEADLINE_S, share_connect_timeout_s=3)
    storage = share_storage(samba_server, tmp_path, f"//127.0.0.1:{relay.port}/data")
    (samba_server.folder / f"{tmp_path.name}.bin").write_bytes(bytes(MIB))
    before = connection_threads()
    with closing(RemoteFiles(RemoteClients(settings))) as files:
        file = await files.open(storage, "alice", f"/{tmp_path.name}.bin")
        relay.stall()
        shorten_calls(files, 0.5)
        with pytest.raises(Unavailable, match="cannot be read: The storage office did not answer in time"):
            await listed(files, storage, "/")
        with pytest.raises(Unavailable):
            [piece async for piece in files.pieces(storage, file, file.size)]
        relay.resume()
        shorten_calls(files, DEADLINE_S)
        assert f"{tmp_path.name}.bin {MIB}" in await listed(files, storage, "/")
    await asyncio.to_thread(eventually, lambda: connection_threads() <= before, "no threads")


def shorten_calls(files: RemoteFiles, seconds: float) -> None:
    for _, backend in files.clients._clients["office"]._of_threads.values():  # type: ignore[attr-defined]
        backend.call_timeout_s = seconds
    files.clients.settings.call_timeout_s = seconds


async def test_server_that_never_answers_leaves_no_threads() -> None:
    before = connection_threads()
    with silent_server() as address:
        share = ShareSettings(f"//{address.removeprefix('http://')}/data")
        storage = StorageConfig("office", remote=NetworkShare(SAMBA, share))
        for timeout_s in (DEADLINE_S, 0.2):  # the library's, and ours
            settings = ClientSettings("read", timeout_s, DEADLINE_S, share_connect_timeout_s=1)
            with closing(RemoteFiles(RemoteClients(settings))) as files:
                with pytest.raises(Unavailable, match="The storage office cannot be read"):
                    await listed(files, storage, "/")
            await asyncio.to_thread(eventually, lambda: connection_threads() <= before, "no threads")
        settings = ClientSettings("read", 3600.0, 3600.0, share_connect_timeout_s=3600)
        patient = RemoteFiles(RemoteClients(settings))
        waiting = asyncio.create_task(listed(patient, storage, "/"))
        await asyncio.to_thread(eventually, lambda: connection_threads() - before, "a thread")
        patient.close()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.to_thread(eventually, lambda: connection_threads() <= before, "no threads")


def connection_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("msg_worker-")}


@pytest.mark.service
async def test_share_is_read_by_a_server_with_many_descriptors(
    samba_server: SambaServer, tmp_path: Path, files: RemoteFiles
) -> None:
    (samba_server.folder / f"{tmp_path.name}.txt").touch()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    held: list[int] = []
    try:
        while not held or held[-1] < 1100:
            held.append(os.dup(0))
        assert f"{tmp_path.name}.txt 0" in await listed(files, share_storage(samba_server, tmp_path), "/")
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.service
async def test_share_that_is_stuck_gets_no_more_requests_and_holds_up_no_other(
    samba_server: SambaServer, relay: StallingRelay, tmp_path: Path
) -> None:
    storage = share_storage(samba_server, tmp_path, f"//127.0.0.1:{relay.port}/data")
    other = replace(share_storage(samba_server, tmp_path), name="other")
    before = remote_threads()
    settings = ClientSettings("read", 3600.0, DEADLINE_S, max_share_call_s=3600.0)
    files = RemoteFiles(RemoteClients(settings))
    await asyncio.gather(*(listed(files, storage, "/") for _ in range(4)))
    relay.stall()
    files.clients.settings.response_timeout_s = 0.2
    for _ in range(4):
        with pytest.raises(Unavailable, match="The storage office cannot be read: it does not answer"):
            await listed(files, storage, "/")
    with pytest.raises(Unavailable, match="The storage office has not answered 4 earlier requests yet"):
        await listed(files, storage, "/")
    files.clients.settings.response_timeout_s = DEADLINE_S
    await listed(files, other, "/")
    # The end of the server waits for the threads, but these wait for nothing any more.
    files.close()
    await asyncio.to_thread(eventually, lambda: remote_threads() <= before, "no threads")
