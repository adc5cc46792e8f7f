"""Uploads that several are at, or that one has too many of: nothing is mixed up, and nothing runs out."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import msgspec
import pytest

from openpaisdk.errors import Conflict, Forbidden, InvalidParameters, NotFound
from openpaisdk.fileio import hashing
from openpaisdk.fileio.ranges import digest_of
from openpaisdk.storage.backends.fd_passing import FdChannel
from paicluster.files import Storage, StorageUser
from paicluster.files.transfer import fd_server as at_window
from paicluster.files.transfer import upload as one_upload
from paicluster.files.transfer.fd_server import FdServer
from paicluster.files.transfer.upload import UploadRequest
from paicluster.files.transfer.upload_registry import MOST, MOST_OF_ONE, UploadRegistry
from support.cluster_storage import ALICE

PART = 1 << 16
# The hash of something else.
OTHER = bytes(hashing.SIZE)


def about(name: str = "f", size: int = -1, who: str = "alice") -> UploadRequest:
    return UploadRequest(f"/user/{who}/{name}", "k", size, part_bytes=PART)


def begin(uploads: UploadRegistry, what: UploadRequest, who: StorageUser = ALICE) -> str:
    with uploads.begun(what, who) as upload:
        return upload.id


def put(uploads: UploadRegistry, ident: str, offset: int, data: bytes, who: StorageUser = ALICE) -> None:
    with uploads.locked(ident, who) as upload:
        upload.write(offset, data)
    with uploads.locked(ident, who) as upload:
        upload.arrived(offset, len(data), hashing.of_bytes(data, hashing.XXH3))


def content(storage: Storage, path: str, who: StorageUser = ALICE) -> bytes:
    opened = storage.open_read(path, who)
    try:
        return os.pread(opened.fd, 1 << 20, 0)
    finally:
        os.close(opened.fd)


def descriptors(storage: Storage) -> int:
    """How many files of this storage are open; what other tests left to be closed is no concern of ours."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += str(Path(f"/proc/self/fd/{name}").readlink()).startswith(str(storage.root))
    return found


def have(uploads: UploadRegistry, what: UploadRequest, who: StorageUser = ALICE) -> object:
    with uploads.begun(what, who) as upload:
        return upload.described()["have"]


def test_what_is_handed_over_is_the_file_that_was_asked_for(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = UploadRegistry(storage)
    window = FdServer(storage, uploads)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    handed = FdChannel(lambda: window.ticket_for(ALICE))
    opened: list[int] = []
    send = at_window._send

    def send_late(talk: socket.socket, said: dict[str, object], fd: int = -1) -> None:
        """Somebody gives the upload up at the last moment, and its number is free for another file."""
        if fd >= 0:
            uploads.drop(str(said["id"]), ALICE)
            opened.extend(os.open(secret, os.O_RDONLY) for _ in range(20))
        send(talk, said, fd)

    monkeypatch.setattr(at_window, "_send", send_late)
    fd, _ = handed.create(msgspec.to_builtins(about()))
    assert "/.pai/partial/" in str(Path(f"/proc/self/fd/{fd}").readlink())
    handed.close()
    for each in (fd, *opened):
        os.close(each)


def test_an_upload_somebody_is_at_is_not_closed(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    ident = begin(uploads, about())
    with uploads.locked(ident, ALICE) as upload:
        for i in range(2 * MOST_OF_ONE):
            begin(uploads, about(f"g{i}"))
        dropping = threading.Thread(target=uploads.drop, args=(ident, ALICE))
        dropping.start()
        upload.write(0, b"here")
        assert os.pread(upload.staged.fd, 10, 0) == b"here" and dropping.is_alive()
    dropping.join(5)
    assert not dropping.is_alive()
    with pytest.raises(NotFound), uploads.locked(ident, ALICE):
        pass


def test_however_many_are_begun_only_some_are_open_and_all_go_on(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    before = descriptors(storage)
    begun = [begin(uploads, about(f"f{i}", 4)) for i in range(3 * MOST_OF_ONE)]
    assert descriptors(storage) <= before + 2 * MOST_OF_ONE
    for ident in begun:
        put(uploads, ident, 0, b"data")
    for i, ident in enumerate(begun):
        uploads.finish(ident, ALICE, 4, 0, "")
        assert content(storage, f"/user/alice/f{i}") == b"data"
    assert descriptors(storage) == before


def test_many_people_together_have_not_more_open_either(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    people = [StorageUser(f"p{i}") for i in range(2 * MOST // MOST_OF_ONE)]
    before = descriptors(storage)
    for who in people:
        storage.welcome(who)
        for i in range(MOST_OF_ONE):
            begin(uploads, about(f"f{i}", who=who.name), who)
    assert descriptors(storage) <= before + 2 * MOST
    uploads.close()
    assert descriptors(storage) == before


def test_hashing_what_lay_there_before_a_reboot_keeps_nobody_waiting(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = UploadRegistry(storage)
    ident = begin(first, about())
    put(first, ident, 0, b"data")
    first.close()
    monkeypatch.setattr(one_upload, "BOOT_ID", "another")
    reads: list[int] = []
    entered, go_on = threading.Event(), threading.Event()

    def slow(fd: int, offset: int, length: int, algorithm: str) -> bytes:
        reads.append(offset)
        entered.set()
        assert go_on.wait(10)
        return digest_of(fd, offset, length, algorithm)

    monkeypatch.setattr(one_upload, "digest_of", slow)
    uploads = UploadRegistry(storage)
    found: list[object] = []
    taking_up = threading.Thread(target=lambda: found.append(have(uploads, about())))
    taking_up.start()
    assert entered.wait(10)
    put(uploads, begin(uploads, about("g")), 0, b"meanwhile")
    go_on.set()
    taking_up.join(10)
    assert list(found[0]) == ["0"]  # type: ignore[call-overload]
    uploads.close()
    assert have(UploadRegistry(storage), about()) == found[0] and reads == [0]


def test_of_a_part_that_was_sent_often_only_the_last_counts(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = UploadRegistry(storage)
    ident = begin(first, about())
    for data in (b"one", b"two", b"end"):
        put(first, ident, 0, data)
    first.close()
    monkeypatch.setattr(one_upload, "BOOT_ID", "another")
    assert have(UploadRegistry(storage), about()) == {"0": hashing.of_bytes(b"end", hashing.XXH3).hex()}


def test_parts_that_were_damaged_by_a_crash_are_not_believed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = UploadRegistry(storage)
    ident = begin(first, about(size=3 * PART))
    put(first, ident, 0, b"a" * PART)
    put(first, ident, PART, b"b" * PART)
    with first.locked(ident, ALICE) as upload:
        upload.arrived(2 * PART, PART, OTHER)
        os.pwrite(upload.staged.fd, b"X", 5)
    first.close()
    monkeypatch.setattr(one_upload, "BOOT_ID", "another")
    assert list(have(UploadRegistry(storage), about(size=3 * PART))) == [str(PART)]  # type: ignore[call-overload]


def test_a_journal_whose_file_was_cleaned_away_promises_nothing(storage: Storage) -> None:
    first = UploadRegistry(storage)
    ident = begin(first, about())
    put(first, ident, 0, b"data")
    first.close()
    for path in (storage.root / ".pai/partial").iterdir():
        if path.suffix != ".parts":
            path.unlink()
    uploads = UploadRegistry(storage)
    assert have(uploads, about()) == {}
    with pytest.raises(NotFound), uploads.locked(ident, ALICE):
        pass


@pytest.mark.parametrize(
    ("offset", "length"), [(0, PART + 1), (1, 5), (PART, 2), (-PART, 5), (0, -1), (PART << 20, 0)]
)
def test_what_is_no_part_of_the_file_is_not_marked(storage: Storage, offset: int, length: int) -> None:
    uploads = UploadRegistry(storage)
    with (
        uploads.begun(about(size=PART + 1), ALICE) as upload,
        pytest.raises(InvalidParameters, match="Parts begin"),
    ):
        upload.arrived(offset, length, OTHER)


@pytest.mark.parametrize("digest", [b"", b"short", bytes(1000)])
def test_what_is_no_hash_is_not_kept(storage: Storage, digest: bytes) -> None:
    uploads = UploadRegistry(storage)
    with uploads.begun(about(), ALICE) as upload, pytest.raises(InvalidParameters, match="A hash has"):
        upload.arrived(0, 1, digest)


def test_a_journal_does_not_grow_for_ever(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    with uploads.begun(about(), ALICE) as upload, pytest.raises(Conflict, match="too many versions"):
        for i in range(5000):
            upload.arrived(0, i % 2, OTHER)


def test_a_part_of_an_upload_that_was_given_up_is_none_of_the_next(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    old = begin(uploads, about())
    with uploads.locked(old, ALICE) as upload:
        upload.write(0, b"lost")
    uploads.drop(old, ALICE)
    begin(uploads, about())
    with pytest.raises(NotFound), uploads.locked(old, ALICE):
        pass


@pytest.mark.parametrize("anew", [False, True], ids=["the same server", "the next server"])
def test_what_was_handed_over_is_taken_back_whoever_finishes(storage: Storage, anew: bool) -> None:
    uploads = UploadRegistry(storage)
    with uploads.begun(about(), ALICE) as upload:
        ident, fd = upload.id, upload.handed_over()
        os.pwrite(fd, b"good", 0)
        upload.arrived(0, 4, OTHER)
    if anew:
        uploads.close()
        uploads = UploadRegistry(storage)
    with pytest.raises(Conflict, match="still open"):
        uploads.finish(ident, ALICE, 4, 0, "")
    os.close(fd)
    uploads.finish(ident, ALICE, 4, 0, "")
    assert content(storage, "/user/alice/f") == b"good"


def test_that_it_was_handed_over_is_known_also_where_the_disk_has_no_leases(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = UploadRegistry(storage)
    with uploads.begun(about(), ALICE) as upload:
        os.close(upload.handed_over())
        ident = upload.id
    plain = begin(uploads, about("g"))
    for each in (ident, plain):
        put(uploads, each, 0, b"data")
    uploads.close()

    def no_leases(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("fcntl.fcntl", no_leases)
    uploads = UploadRegistry(storage)
    with pytest.raises(Exception, match="cannot tell who writes"):
        uploads.finish(ident, ALICE, 4, 0, "")
    uploads.finish(plain, ALICE, 4, 0, "")
    assert content(storage, "/user/alice/g") == b"data"


def test_an_upload_is_finished_with_the_rights_of_now(storage: Storage) -> None:
    uploads = UploadRegistry(storage)
    admin, no_longer = StorageUser("carl", admin=True), StorageUser("carl")
    what = UploadRequest("/of-all", "k", 4)
    ident = begin(uploads, what, admin)
    put(uploads, ident, 0, b"data", admin)
    with pytest.raises(Forbidden):
        uploads.finish(ident, no_longer, 4, 0, "")
    with pytest.raises(Forbidden), uploads.begun(what, no_longer):
        pass
    with pytest.raises(NotFound):
        storage.status("/of-all", admin)
    uploads.finish(ident, admin, 4, 0, "")
    assert content(storage, "/of-all", admin) == b"data"


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "slow"])
def test_whoever_shows_no_ticket_is_soon_sent_away(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, drips: bool
) -> None:
    monkeypatch.setattr(at_window, "_ADMISSION_S", 0.3)
    window = FdServer(storage, UploadRegistry(storage))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.connect("\0" + str(window.ticket_for(ALICE)["socket"]))
        stranger.settimeout(0.1 if drips else 10)
        ends = time.monotonic() + 10
        while time.monotonic() < ends:
            try:
                if drips:
                    stranger.sendall(b" ")
                assert stranger.recv(10) == b""
                return
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                return
    pytest.fail("the stranger still stands there")
