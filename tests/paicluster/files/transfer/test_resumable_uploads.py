"""Resumable uploads: concurrent use, limits of open uploads, recovery after a reboot, fd passing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from openpaisdk.storage.backends.fd_passing import FdChannel
from paicluster.files import Storage, StorageUser
from paicluster.files.staging import PARTIAL
from paicluster.files.transfer import fd_server
from paicluster.files.transfer import upload as upload_module
from paicluster.files.transfer.fd_server import FdServer
from paicluster.files.transfer.upload import UploadRequest
from paicluster.files.transfer.upload_registry import MAX_OPEN, MAX_OPEN_PER_USER, UploadRegistry
from paiprotocol.errors import Conflict, Forbidden, InvalidParameters, NotFound
from paiprotocol.transfer import hashing
from paiprotocol.transfer.ranges import hash_range
from support.cluster_storage import ALICE
from support.server_fixture import eventually

PART = 1 << 16
# The hash of other content.
OTHER = bytes(hashing.DIGEST_BYTES)


def upload_request(name: str = "f", size: int = -1, user: str = "alice") -> UploadRequest:
    return UploadRequest(f"/user/{user}/{name}", "k", size, part_bytes=PART)


def begin(uploads: UploadRegistry, request: UploadRequest, user: StorageUser = ALICE) -> str:
    with uploads.begin(request, user) as upload:
        return upload.id


def put(uploads: UploadRegistry, upload_id: str, offset: int, data: bytes, user: StorageUser = ALICE) -> None:
    with uploads.locked(upload_id, user) as upload:
        upload.write(offset, data, range(offset, offset + len(data)))
    with uploads.locked(upload_id, user) as upload:
        upload.record_part(offset, len(data), hashing.hash_bytes(data, hashing.XXH3))


def content(storage: Storage, path: str, user: StorageUser = ALICE) -> bytes:
    opened = storage.open_read(path, user)
    try:
        return os.pread(opened.fd, 1 << 20, 0)
    finally:
        os.close(opened.fd)


def descriptors(storage: Storage) -> int:
    """Number of open files of this storage; files of other tests are not counted."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += str(Path(f"/proc/self/fd/{name}").readlink()).startswith(str(storage.root))
    return count


def received_parts(uploads: UploadRegistry, request: UploadRequest, user: StorageUser = ALICE) -> object:
    with uploads.begin(request, user) as upload:
        return upload.describe()["have"]


def test_passed_fd_is_the_requested_file(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = UploadRegistry(storage)
    server = FdServer(storage, uploads)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    channel = FdChannel(lambda: server.issue_ticket(ALICE, ""))
    opened: list[int] = []
    send = fd_server._send

    def drop_then_send(connection: socket.socket, message: dict[str, object], fd: int = -1) -> None:
        """The upload is dropped at the last moment, and its fd number is reused for another file."""
        if fd >= 0:
            uploads.drop(str(message["id"]), ALICE)
            opened.extend(os.open(secret, os.O_RDONLY) for _ in range(20))
        send(connection, message, fd)

    monkeypatch.setattr(fd_server, "_send", drop_then_send)
    fd, _ = channel.create(msgspec.to_builtins(upload_request(size=5)))
    assert "/.pai/partial/" in str(Path(f"/proc/self/fd/{fd}").readlink())
    channel.close()
    for opened_fd in (fd, *opened):
        os.close(opened_fd)


def test_upload_in_use_is_not_closed(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    upload_id = begin(uploads, upload_request())
    with uploads.locked(upload_id, ALICE) as upload:
        for i in range(2 * MAX_OPEN_PER_USER):
            begin(uploads, upload_request(f"g{i}"))
        dropping = threading.Thread(target=uploads.drop, args=(upload_id, ALICE))
        dropping.start()
        upload.write(0, b"here", range(4))
        assert os.pread(upload.staged.fd, 10, 0) == b"here" and dropping.is_alive()
    dropping.join(90)
    assert not dropping.is_alive()
    with pytest.raises(NotFound), uploads.locked(upload_id, ALICE):
        pass
    uploads.close()


def test_open_uploads_per_user_are_limited_and_all_can_finish(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    before = descriptors(storage)
    upload_ids = [begin(uploads, upload_request(f"f{i}", 4)) for i in range(3 * MAX_OPEN_PER_USER)]
    assert descriptors(storage) <= before + 2 * MAX_OPEN_PER_USER
    for upload_id in upload_ids:
        put(uploads, upload_id, 0, b"data")
    for i, upload_id in enumerate(upload_ids):
        uploads.finish(upload_id, ALICE, 4, 0, "")
        assert content(storage, f"/user/alice/f{i}") == b"data"
    assert descriptors(storage) == before


def test_open_uploads_of_all_users_are_limited(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    users = [StorageUser(f"p{i}") for i in range(2 * MAX_OPEN // MAX_OPEN_PER_USER)]
    before = descriptors(storage)
    for user in users:
        storage.provision(user)
        for i in range(MAX_OPEN_PER_USER):
            begin(uploads, upload_request(f"f{i}", user=user.name), user)
    assert descriptors(storage) <= before + 2 * MAX_OPEN
    uploads.close()
    assert descriptors(storage) == before


def test_verifying_after_a_reboot_does_not_block_other_uploads(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = UploadRegistry(storage)
    upload_id = begin(first, upload_request())
    put(first, upload_id, 0, b"data")
    first.close()
    monkeypatch.setattr(upload_module, "BOOT_ID", "another")
    reads: list[int] = []
    entered, resume = threading.Event(), threading.Event()

    def slow(fd: int, offset: int, length: int, algorithm: str) -> bytes:
        reads.append(offset)
        entered.set()
        assert resume.wait(90)
        return hash_range(fd, offset, length, algorithm)

    monkeypatch.setattr(upload_module, "hash_range", slow)
    uploads = UploadRegistry(storage)
    parts: list[object] = []
    resuming = threading.Thread(target=lambda: parts.append(received_parts(uploads, upload_request())))
    resuming.start()
    assert entered.wait(90)
    put(uploads, begin(uploads, upload_request("g")), 0, b"meanwhile")
    resume.set()
    resuming.join(90)
    assert list(parts[0]) == ["0"]  # type: ignore[call-overload]
    uploads.close()
    assert received_parts(UploadRegistry(storage), upload_request()) == parts[0] and reads == [0]


def test_last_version_of_a_part_counts(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    first = UploadRegistry(storage)
    upload_id = begin(first, upload_request())
    for data in (b"one", b"two", b"end"):
        put(first, upload_id, 0, data)
    first.close()
    monkeypatch.setattr(upload_module, "BOOT_ID", "another")
    assert received_parts(UploadRegistry(storage), upload_request()) == {
        "0": hashing.hash_bytes(b"end", hashing.XXH3).hex()
    }


def test_parts_damaged_by_a_crash_are_not_trusted(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    first = UploadRegistry(storage)
    upload_id = begin(first, upload_request(size=3 * PART))
    put(first, upload_id, 0, b"a" * PART)
    put(first, upload_id, PART, b"b" * PART)
    with first.locked(upload_id, ALICE) as upload:
        upload.record_part(2 * PART, PART, OTHER)
        os.pwrite(upload.staged.fd, b"X", 5)
    first.close()
    monkeypatch.setattr(upload_module, "BOOT_ID", "another")
    assert list(received_parts(UploadRegistry(storage), upload_request(size=3 * PART))) == [str(PART)]  # type: ignore[call-overload]


def test_journal_without_its_file_is_ignored(storage: Storage) -> None:
    first = UploadRegistry(storage)
    upload_id = begin(first, upload_request())
    put(first, upload_id, 0, b"data")
    first.close()
    for path in (storage.root / ".pai/partial").iterdir():
        if path.suffix != ".parts":
            path.unlink()
    uploads = UploadRegistry(storage)
    assert received_parts(uploads, upload_request()) == {}
    with pytest.raises(NotFound), uploads.locked(upload_id, ALICE):
        pass


@pytest.mark.parametrize(
    ("offset", "length"), [(0, PART + 1), (1, 5), (PART, 2), (-PART, 5), (0, -1), (PART << 20, 0)]
)
def test_part_outside_the_file_is_rejected(storage: Storage, offset: int, length: int) -> None:
    uploads = UploadRegistry(storage)
    with (
        uploads.begin(upload_request(size=PART + 1), ALICE) as upload,
        pytest.raises(InvalidParameters, match="A part begins at"),
    ):
        upload.record_part(offset, length, OTHER)


@pytest.mark.parametrize("digest", [b"", b"short", bytes(1000)])
def test_hash_of_wrong_length_is_rejected(storage: Storage, digest: bytes) -> None:
    uploads = UploadRegistry(storage)
    with (
        uploads.begin(upload_request(), ALICE) as upload,
        pytest.raises(InvalidParameters, match="A hash has"),
    ):
        upload.record_part(0, 1, digest)


def test_journal_size_is_limited(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    with (
        uploads.begin(upload_request(), ALICE) as upload,
        pytest.raises(Conflict, match="too often with different content"),
    ):
        for i in range(5000):
            upload.record_part(0, i % 2, OTHER)


def test_part_of_a_dropped_upload_is_not_in_the_next_one(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    old = begin(uploads, upload_request())
    with uploads.locked(old, ALICE) as upload:
        upload.write(0, b"lost", range(4))
    uploads.drop(old, ALICE)
    begin(uploads, upload_request())
    with pytest.raises(NotFound), uploads.locked(old, ALICE):
        pass


@pytest.mark.parametrize("restart", [False, True], ids=["same server", "restarted server"])
def test_finish_fails_while_a_passed_fd_is_open(storage: Storage, restart: bool) -> None:
    uploads = UploadRegistry(storage)
    with uploads.begin(upload_request(), ALICE) as upload:
        upload_id, fd = upload.id, upload.dup_fd()
        os.pwrite(fd, b"good", 0)
        upload.record_part(0, 4, OTHER)
    if restart:
        uploads.close()
        uploads = UploadRegistry(storage)
    with pytest.raises(Conflict, match="still open"):
        uploads.finish(upload_id, ALICE, 4, 0, "")
    os.close(fd)
    uploads.finish(upload_id, ALICE, 4, 0, "")
    assert content(storage, "/user/alice/f") == b"good"


def written_upload(uploads: UploadRegistry) -> tuple[str, int]:
    """Id of a complete upload of 4 bytes, and its descriptor."""
    with uploads.begin(upload_request(size=4), ALICE) as upload:
        fd = upload.dup_fd()
        os.pwrite(fd, b"good", 0)
        upload.record_part(0, 4, OTHER)
        return upload.id, fd


def test_no_more_is_published_than_was_announced(storage: Storage) -> None:
    """A descriptor for a small upload can be written without end: nothing of that is published, or stays."""
    uploads = UploadRegistry(storage)
    upload_id, fd = written_upload(uploads)
    os.pwrite(fd, b"more", 300 << 20)
    os.close(fd)
    with pytest.raises(InvalidParameters, match="More than the announced 4 bytes"):
        uploads.finish(upload_id, ALICE, 4, 0, "")
    assert not os.listdir(storage.staging_area.folder(PARTIAL))
    with pytest.raises(NotFound):
        storage.status("/user/alice/f", ALICE)


def test_bytes_that_are_written_while_the_upload_is_finished_are_not_published(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    upload_id, fd = written_upload(uploads)
    with uploads._exclusive(upload_id, ALICE) as upload, ThreadPoolExecutor(1) as thread:
        finish = thread.submit(upload.finish, 4, 0, "", close_timeout_s=90)
        # It has cut the file, opened it for reading, and waits.
        eventually(
            lambda: fcntl.fcntl(upload.staged.fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY, "the wait"
        )
        os.pwrite(fd, b"more", 300 << 20)
        os.close(fd)
        with pytest.raises(InvalidParameters, match="More than the announced 4 bytes"):
            finish.result()
    with pytest.raises(NotFound):
        storage.status("/user/alice/f", ALICE)


@pytest.mark.parametrize("size", [4, -1])
def test_suspended_upload_keeps_no_more_than_was_announced(storage: Storage, size: int) -> None:
    uploads = UploadRegistry(storage)
    with uploads.begin(upload_request(size=size), ALICE) as upload:
        fd = upload.dup_fd()
        os.pwrite(fd, bytes(PART), 0)
        os.close(fd)
    uploads.close()
    folder = Path(f"/proc/self/fd/{storage.staging_area.folder(PARTIAL)}")
    sizes = [path.stat().st_size for path in folder.iterdir() if path.suffix != ".parts"]
    assert sizes == ([] if size == 4 else [PART])
    assert received_parts(UploadRegistry(storage), upload_request(size=size)) == {}


def test_fd_passing_is_remembered_on_disks_without_leases(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = UploadRegistry(storage)
    with uploads.begin(upload_request(), ALICE) as upload:
        os.close(upload.dup_fd())
        upload_id = upload.id
    plain = begin(uploads, upload_request("g"))
    for started in (upload_id, plain):
        put(uploads, started, 0, b"data")
    uploads.close()

    def no_leases(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("fcntl.fcntl", no_leases)
    uploads = UploadRegistry(storage)
    with pytest.raises(Exception, match="cannot report open writers"):
        uploads.finish(upload_id, ALICE, 4, 0, "")
    uploads.finish(plain, ALICE, 4, 0, "")
    assert content(storage, "/user/alice/g") == b"data"


def test_upload_is_finished_with_current_permissions(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    admin, former_admin = StorageUser("carl", admin=True), StorageUser("carl")
    request = UploadRequest("/of-all", "k", 4)
    upload_id = begin(uploads, request, admin)
    put(uploads, upload_id, 0, b"data", admin)
    with pytest.raises(Forbidden):
        uploads.finish(upload_id, former_admin, 4, 0, "")
    with pytest.raises(Forbidden), uploads.begin(request, former_admin):
        pass
    with pytest.raises(NotFound):
        storage.status("/of-all", admin)
    uploads.finish(upload_id, admin, 4, 0, "")
    assert content(storage, "/of-all", admin) == b"data"


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "slow"])
def test_connection_without_ticket_is_closed(storage: Storage, drips: bool) -> None:
    server = FdServer(storage, UploadRegistry(storage), ticket_timeout_s=0.3)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect("\0" + str(server.issue_ticket(ALICE, "")["socket"]))
        client.settimeout(0.1 if drips else 90)
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                if drips:
                    client.sendall(b" ")
                assert client.recv(10) == b""
                return
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                return
    pytest.fail("the connection without a ticket is still open")
