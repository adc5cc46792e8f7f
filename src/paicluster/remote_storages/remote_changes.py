"""Changes of the cluster's remote storages, for users without credentials: upload, make, move, delete.

A change that takes long is made in steps, and its caller repeats it until it is complete. One part of each
upload is in memory; the storage has those before it, so that an interrupted upload goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from paicluster.remote_storages.remote_clients import (
    ClientSettings,
    ConcurrencyLimit,
    RemoteClients,
    names_of,
)
from paicluster.remote_storages.remote_tree import MAX_PART_BYTES, ChangeStep, NewFile, RemoteUpload
from paicluster.remote_storages.storages import StorageConfig
from paiprotocol.errors import Conflict, Forbidden, InvalidParameters, PaiError, Unavailable

if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Range

# A part, and its copy while it is sent.
_COPIES_IN_MEMORY = 2
MAX_UPLOAD_MEMORY_BYTES = _COPIES_IN_MEMORY * MAX_PART_BYTES
"""What one upload has in memory, at most."""
MAX_UPLOADS = 16
"""Uploads at one time. Their parts count as bodies in memory (``limits.bodies-mb``)."""
MAX_UPLOADS_PER_USER = 4
CALL_TIMEOUT_S = 120.0
"""How long one request to a storage may take: a cloud copies large objects, or receives a part of 16 MiB."""
RESPONSE_TIMEOUT_S = 300.0
"""How long a step or a part may take, with its repetitions and the wait for a thread."""
_RECORDS = "cloud-uploads"
# A connection that was lost is noticed some time later.
_ARRIVING_RETRY_S = 5.0


class RemoteChanges:
    """Changes the remote storages. Records of unfinished uploads are kept in the cluster's home."""

    def __init__(self, home: Path):
        settings = ClientSettings(
            "changed",
            CALL_TIMEOUT_S,
            RESPONSE_TIMEOUT_S,
            read_only=False,
            upload_records=str(home / _RECORDS),
        )
        self.clients = RemoteClients(settings)
        self._uploads = ConcurrencyLimit(MAX_UPLOADS, MAX_UPLOADS_PER_USER, "uploads to remote storages")
        # Uploads that arrive now, and whether they were cancelled.
        self._arriving: dict[tuple[str, ...], bool] = {}

    async def make_folder(self, storage: StorageConfig, username: str, path: str) -> None:
        """Make a folder; an existing one stays as it is."""
        names = _entry_names(storage, username, path)
        with self.clients.queue_slot(storage, username):
            await self.clients.run(
                storage, lambda: self.clients.tree(storage, username).make_folder(names, path)
            )

    async def delete(self, storage: StorageConfig, username: str, path: str) -> ChangeStep:
        """Delete a file, or some of what is in a folder, and the folder when it is empty."""
        names = _entry_names(storage, username, path)
        with self.clients.queue_slot(storage, username):
            return await self.clients.run(
                storage, lambda: self.clients.tree(storage, username).delete(names, path)
            )

    async def move(
        self, storage: StorageConfig, username: str, path: str, target: str, *, resumes: bool
    ) -> ChangeStep:
        """Move a file, or some of what is in a folder. ``resumes``: earlier steps made the target."""
        names, target_names = (_entry_names(storage, username, each) for each in (path, target))
        if target_names[: len(names)] == names:
            raise InvalidParameters(f"{path} cannot be moved to itself or into itself.")

        def move() -> ChangeStep:
            tree = self.clients.tree(storage, username)
            return tree.move(names, path, target_names, target, resumes=resumes)

        with self.clients.queue_slot(storage, username):
            return await self.clients.run(storage, move)

    async def begin_upload(self, storage: StorageConfig, username: str, file: NewFile) -> int:
        """How many bytes of an upload the storage has; the upload resumes there."""
        self._check_not_arriving((storage.name, username, file.path, file.key))
        open_upload = self._opener(storage, username, file)

        def begin() -> list[Range]:
            upload = open_upload()
            upload.target.close()
            return upload.missing

        with self.clients.queue_slot(storage, username):
            missing = await self.clients.run(storage, begin)
        return missing[0][0] if missing else file.size

    async def cancel_upload(self, storage: StorageConfig, username: str, file: NewFile) -> None:
        """Delete the parts of an upload that will not go on; one that arrives now deletes them when it
        ends."""
        identity = (storage.name, username, file.path, file.key)
        if identity in self._arriving:
            self._arriving[identity] = True
            return
        open_upload = self._opener(storage, username, replace(file, overwrite=True))
        with self.clients.queue_slot(storage, username):
            await self.clients.run(storage, lambda: open_upload().target.abandon())

    async def upload(
        self, storage: StorageConfig, username: str, file: NewFile, offset: int, body: AsyncIterator[bytes]
    ) -> None:
        """Write a file, from the bytes that follow ``offset``."""
        identity = (storage.name, username, file.path, file.key)
        if file.key:
            self._check_not_arriving(identity)
        release = self._uploads.acquire(username)
        self._arriving[identity] = False
        opening = _OpeningUpload(self._opener(storage, username, file))
        try:
            try:
                upload = await self.clients.run(storage, opening.open)
                await self._send(storage, upload, offset, _SentBytes(body, offset))
            except BaseException:
                is_kept = bool(file.key) and not self._arriving.get(identity)
                if (opened := opening.drop()) is not None:
                    # The first error counts; a server that stops has no threads any more.
                    with contextlib.suppress(PaiError, RuntimeError):
                        await asyncio.shield(self.clients.run(storage, opened.end, is_kept=is_kept))
                raise
        finally:
            self._arriving.pop(identity, None)
            release()

    def _check_not_arriving(self, identity: tuple[str, ...]) -> None:
        """Raise an error while an earlier request holds the parts of this upload."""
        if identity in self._arriving:
            raise Unavailable(
                f"An earlier request still uploads {identity[2]}.",
                hint="Try again in a moment: the upload goes on where that request ends.",
                retry_after_s=_ARRIVING_RETRY_S,
            )

    async def _send(
        self, storage: StorageConfig, upload: RemoteUpload, offset: int, body: _SentBytes
    ) -> None:
        if upload.missing and upload.missing[0][0] < offset:
            raise Conflict(
                f"The upload of {upload.file.path} is at byte {upload.missing[0][0]}.",
                hint="Ask for that before you send the rest.",
            )
        for at, length in upload.missing:
            part = await body.read(at, length)
            await self.clients.run(storage, upload.put, at, length, partial(iter, (part,)))
        await body.skip_to(upload.file.size)
        await self.clients.run(storage, upload.finish)

    def _opener(self, storage: StorageConfig, username: str, file: NewFile) -> Callable[[], RemoteUpload]:
        """The function that opens an upload; it runs in a thread."""
        names = _entry_names(storage, username, file.path)
        # No user goes on with the upload of another.
        key = f"{username}/{file.key}" if file.key else os.urandom(8).hex()
        return lambda: self.clients.tree(storage, username).open_upload(names, file, key)

    def close(self) -> None:
        self.clients.close()


@dataclass(slots=True)
class _OpeningUpload:
    """An upload that a thread opens. If its request ends meanwhile, the thread closes it: else it would hold
    its record, and no other request could go on with its parts."""

    open_upload: Callable[[], RemoteUpload]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _opened: RemoteUpload | None = None
    _is_dropped: bool = False

    def open(self) -> RemoteUpload:
        upload = self.open_upload()
        with self._lock:
            self._opened = upload
            is_dropped = self._is_dropped
        if is_dropped:
            upload.end(is_kept=bool(upload.file.key))
        return upload

    def drop(self) -> RemoteUpload | None:
        """Drop the upload: returns it for the caller to end; None if it is not open yet."""
        with self._lock:
            self._is_dropped = True
            return self._opened


@dataclass(slots=True)
class _SentBytes:
    """The bytes of a request, which begin at an offset of a file."""

    pieces: AsyncIterator[bytes]
    at: int
    _rest: memoryview = field(default_factory=lambda: memoryview(b""))

    async def read(self, offset: int, length: int) -> bytearray:
        """Read a range; ranges are read in ascending order."""
        await self.skip_to(offset)
        data = bytearray()
        while len(data) < length:
            data += await self._next(length - len(data))
        return data

    async def skip_to(self, offset: int) -> None:
        while self.at < offset:
            await self._next(offset - self.at)

    async def _next(self, at_most: int) -> memoryview:
        while not self._rest:
            try:
                self._rest = memoryview(await anext(self.pieces))
            except StopAsyncIteration:
                raise InvalidParameters("The body is shorter than its announced length.") from None
        taken, self._rest = self._rest[:at_most], self._rest[at_most:]
        self.at += len(taken)
        return taken


def upload_memory_bytes(size: int) -> int:
    """Memory that an upload takes."""
    from openpaisdk.storage.backends.object_store import object_part_size

    return _COPIES_IN_MEMORY * min(size, object_part_size(size))


def _entry_names(storage: StorageConfig, username: str, path: str) -> list[str]:
    """Names of the path of an entry to change; an error for the root and on a read-only storage."""
    if storage.read_only:
        raise Forbidden(f"The storage {storage.name} is read-only.")
    names = names_of(storage, username, path)
    if not path.strip("/"):
        raise InvalidParameters("The root of a storage cannot be changed: name something in it.")
    return names
