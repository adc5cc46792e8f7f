"""The server of a mount, with a test in the kernel's place: slow and failing uploads, and other clients."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import BinaryIO

import pytest

from pairuntime.fuse import wire
from pairuntime.fuse.file_system import Entry, FileSystem, OpenFile
from pairuntime.fuse.server import THREADS, Server

TIMEOUT_S = 30


class MemoryFile(OpenFile):
    def __init__(self, content: bytes):
        self.content = content
        self.size = len(content)

    def read(self, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length]


class MemoryStorage(FileSystem):
    """Files in memory. An upload tells that it began, and waits until it may go on."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.upload_began = threading.Event()
        self.may_upload = threading.Event()
        self.may_upload.set()
        self.is_full = False

    def status(self, path: str) -> Entry | None:
        name = path.rpartition("/")[2]
        if any(one.startswith(path.rstrip("/") + "/") for one in self.files) or not name:
            return Entry(name, True)
        return Entry(name, False, len(self.files[path])) if path in self.files else None

    def entries(self, path: str) -> list[Entry]:
        found = (self.status("/" + one.split("/")[1]) for one in self.files)
        return [entry for entry in found if entry is not None]

    def open(self, path: str) -> OpenFile:
        return MemoryFile(self.files[path])

    def write(self, path: str, source: BinaryIO, mtime_ns: int, mode: int) -> None:
        self.upload_began.set()
        assert self.may_upload.wait(TIMEOUT_S)
        if self.is_full:
            raise OSError(errno.ENOSPC, "full")
        self.files[path] = source.read()

    def delete_file(self, path: str) -> None:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, path)
        del self.files[path]

    def rename(self, path: str, target: str) -> None:
        moved = [one for one in self.files if one == path or one.startswith(path + "/")]
        if not moved:
            raise FileNotFoundError(errno.ENOENT, path)
        for one in moved:
            self.files[target + one[len(path) :]] = self.files.pop(one)


class Kernel:
    """Sends requests, also several at once, and receives the answers."""

    def __init__(self, device: socket.socket):
        self._device = device
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[bytes]] = {}
        threading.Thread(target=self._receive, daemon=True).start()

    def begin(self, opcode: int, node_id: int, body: bytes) -> Future[bytes]:
        number = next(self._numbers)
        self._waiting[number] = Future()
        size = wire.IN_HEADER.size + len(body)
        self._device.send(wire.IN_HEADER.pack(size, opcode, number, node_id, 0, 0, 0, 0, 0) + body)
        return self._waiting[number]

    def _receive(self) -> None:
        while message := self._device.recv(1 << 20):
            _, error, number = wire.OUT_HEADER.unpack_from(message)
            if number == 0:
                continue  # a notice
            if error:
                self._waiting[number].set_exception(OSError(-error, os.strerror(-error)))
            else:
                self._waiting[number].set_result(message[wire.OUT_HEADER.size :])

    def ask(self, opcode: int, node_id: int, body: bytes) -> bytes:
        return self.begin(opcode, node_id, body).result(TIMEOUT_S)

    def lookup(self, name: str, folder: int = wire.ROOT_ID) -> int:
        return int.from_bytes(self.ask(wire.LOOKUP, folder, name.encode() + b"\0")[:8], "little")

    def create(self, name: str, flags: int = 0, folder: int = wire.ROOT_ID) -> tuple[int, int]:
        """Number of the file, and of its handle."""
        body = wire.CREATE_IN.pack(os.O_WRONLY | os.O_CREAT | flags, 0o100644, 0, 0) + name.encode() + b"\0"
        reply = self.ask(wire.CREATE, folder, body)
        return int.from_bytes(reply[:8], "little"), wire.OPEN_OUT.unpack(reply[-wire.OPEN_OUT.size :])[0]

    def write(self, node_id: int, handle: int, data: bytes) -> None:
        self.ask(wire.WRITE, node_id, wire.WRITE_IN.pack(handle, 0, len(data), 0, 0, 0, 0) + data)

    def begin_close(self, node_id: int, handle: int) -> Future[bytes]:
        return self.begin(wire.FLUSH, node_id, wire.RELEASE_IN.pack(handle, 0, 0, 0))

    def begin_rename(self, name: str, target: str) -> Future[bytes]:
        names = name.encode() + b"\0" + target.encode() + b"\0"
        return self.begin(wire.RENAME, wire.ROOT_ID, wire.RENAME_IN.pack(wire.ROOT_ID) + names)

    def begin_unlink(self, name: str) -> Future[bytes]:
        return self.begin(wire.UNLINK, wire.ROOT_ID, name.encode() + b"\0")


@pytest.fixture(name="storage")
def storage_fixture() -> MemoryStorage:
    return MemoryStorage()


# Until this program ends: some threads of a server may not have seen the end of its connection yet, and would
# read from the next connection with that number.
OPEN: list[socket.socket] = []


@pytest.fixture(name="kernel")
def kernel_fixture(storage: MemoryStorage) -> Iterator[Kernel]:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    OPEN.append(its)
    reports: list[str] = []
    server = Server(storage, its.fileno(), "/mounted", reports.append)
    server.start()
    yield Kernel(ours)
    storage.may_upload.set()
    ours.shutdown(socket.SHUT_RDWR)
    assert server.wait(TIMEOUT_S)
    assert reports == []


def upload_slowly(kernel: Kernel, storage: MemoryStorage, name: str, folder: int = wire.ROOT_ID):
    """A file whose upload has begun and waits: the answer to the close, and the file's number."""
    node_id, handle = kernel.create(name, folder=folder)
    kernel.write(node_id, handle, b"new")
    storage.may_upload.clear()
    closed = kernel.begin_close(node_id, handle)
    assert storage.upload_began.wait(TIMEOUT_S)
    return closed, node_id


def let_upload(storage: MemoryStorage, *answers: Future[bytes]) -> None:
    storage.may_upload.set()
    for answer in answers:
        answer.result(TIMEOUT_S)


def test_file_renamed_while_it_is_uploaded_has_only_its_new_name(kernel, storage) -> None:
    closed, _ = upload_slowly(kernel, storage, "before")
    renamed = kernel.begin_rename("before", "after")
    kernel.lookup("before")  # answered after the rename was begun
    let_upload(storage, closed, renamed)
    assert storage.files == {"/after": b"new"}


def test_folder_renamed_while_a_file_of_it_is_uploaded(kernel, storage) -> None:
    storage.files["/before/other"] = b"other"
    closed, _ = upload_slowly(kernel, storage, "file", kernel.lookup("before"))
    renamed = kernel.begin_rename("before", "after")
    kernel.lookup("before")
    let_upload(storage, closed, renamed)
    assert storage.files == {"/after/other": b"other", "/after/file": b"new"}


def test_file_replaced_while_it_is_uploaded_has_the_content_that_replaced_it(kernel, storage) -> None:
    storage.files["/other"] = b"other"
    kernel.lookup("other")
    closed, _ = upload_slowly(kernel, storage, "file")
    renamed = kernel.begin_rename("other", "file")
    kernel.lookup("file")
    let_upload(storage, closed, renamed)
    assert storage.files == {"/file": b"other"}


def test_file_deleted_while_it_is_uploaded_stays_deleted(kernel, storage) -> None:
    closed, _ = upload_slowly(kernel, storage, "file")
    deleted = kernel.begin_unlink("file")
    kernel.lookup("file")
    let_upload(storage, closed, deleted)
    assert storage.files == {}


def test_attributes_listings_and_content_do_not_wait_for_an_upload(kernel, storage) -> None:
    closed, node_id = upload_slowly(kernel, storage, "file")
    for _ in range(THREADS):
        kernel.lookup("file")
        kernel.ask(wire.GETATTR, node_id, wire.GETATTR_IN.pack(0, 0, 0))
        kernel.ask(wire.OPENDIR, wire.ROOT_ID, wire.OPEN_IN.pack(0, 0))
    handle = wire.OPEN_OUT.unpack(kernel.ask(wire.OPEN, node_id, wire.OPEN_IN.pack(os.O_RDONLY, 0)))[0]
    assert kernel.ask(wire.READ, node_id, wire.READ_IN.pack(handle, 0, 10, 0, 0, 0, 0)) == b"new"
    assert not closed.done()
    let_upload(storage, closed)


def test_target_of_a_rename_stays_when_the_new_file_cannot_be_uploaded(kernel, storage) -> None:
    storage.files["/target"] = b"old"
    node_id, handle = kernel.create("new")
    kernel.write(node_id, handle, b"new")
    kernel.begin_rename("new", "target").result(TIMEOUT_S)
    storage.is_full = True
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        kernel.begin_close(node_id, handle).result(TIMEOUT_S)
    assert storage.files == {"/target": b"old"}
    storage.is_full = False
    kernel.begin_close(node_id, handle).result(TIMEOUT_S)
    assert storage.files == {"/target": b"new"}


@pytest.mark.parametrize(("flags", "content"), [(0, b"NEW45"), (os.O_TRUNC, b"NEW")])
def test_file_that_another_client_created_meanwhile_is_opened(kernel, storage, flags, content) -> None:
    storage.files["/file"] = b"12345"
    node_id, handle = kernel.create("file", flags)
    kernel.write(node_id, handle, b"NEW")
    kernel.begin_close(node_id, handle).result(TIMEOUT_S)
    assert storage.files == {"/file": content}


def test_file_that_another_client_created_meanwhile_is_not_created_exclusively(kernel, storage) -> None:
    storage.files["/file"] = b"12345"
    with pytest.raises(FileExistsError):
        kernel.create("file", os.O_EXCL)
    with pytest.raises(FileExistsError):
        kernel.ask(wire.MKNOD, wire.ROOT_ID, wire.MKNOD_IN.pack(0o100644, 0, 0, 0) + b"file\0")
    assert storage.files == {"/file": b"12345"}
