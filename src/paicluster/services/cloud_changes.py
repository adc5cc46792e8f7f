"""Changes of the cluster's storages in clouds, for users without credentials: upload, make, move, delete.

A folder may have more objects than one request can delete or copy: such a change is made in steps, and its
caller repeats it until it is complete. One part of each upload is in memory; the cloud has those before it,
so that an interrupted upload goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from openpaisdk.errors import Conflict, Forbidden, InvalidParameters, NotFound, PaiError, Unavailable
from paicluster.services.cloud_clients import TRANSIENT, CloudClients, ConcurrencyLimit, names_of
from paicluster.services.storages import StorageConfig

if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Range, TargetFile
    from openpaisdk.storage.backends.object_store import ObjectInfo, ObjectStore

MAX_DELETED = 1000
"""Objects that one step deletes: as many as S3 deletes at once."""
MAX_MOVED = 100
"""Objects that one step moves; each is a request to the cloud."""
STEP_S = 5.0
"""After this time a step copies no more objects: a page shows what it does."""
_MAX_PART_BYTES = 16 << 20
MAX_UPLOAD_BYTES = 10_000 * _MAX_PART_BYTES
"""S3 has at most 10 000 parts; larger ones than 16 MiB would need more memory."""
# A part, and its copy while it is sent.
_COPIES_IN_MEMORY = 2
MAX_UPLOAD_MEMORY_BYTES = _COPIES_IN_MEMORY * _MAX_PART_BYTES
"""What one upload has in memory, at most."""
MAX_UPLOAD_KEY_LENGTH = 128
"""Characters of what identifies the content of an upload."""
MAX_UPLOADS = 16
"""Uploads at one time. Their parts count as bodies in memory (``limits.bodies-mb``)."""
MAX_UPLOADS_PER_USER = 4
CALL_TIMEOUT_S = 120.0
"""How long one request to a cloud may take: it copies large objects, or receives a part of 16 MiB."""
RESPONSE_TIMEOUT_S = 300.0
"""How long a step or a part may take, with its repetitions and the wait for a thread."""
_RECORDS = "cloud-uploads"
# A connection that was lost is noticed some time later.
_ARRIVING_RETRY_S = 5.0
# Folders without objects that a step deletes, of stores that keep them.
_MAX_FOLDERS = 1000


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """How many objects a call has changed, and whether the whole change is made."""

    count: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is uploaded. ``key`` identifies its content, so that the upload can go on after it was
    interrupted; empty: it starts again."""

    path: str
    size: int
    key: str = ""
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.size > MAX_UPLOAD_BYTES:
            raise InvalidParameters(
                f"A file that is uploaded here has at most {MAX_UPLOAD_BYTES >> 30} GiB.",
                status=413,
                hint="Use pai copy.",
            )
        if len(self.key) > MAX_UPLOAD_KEY_LENGTH:
            raise InvalidParameters(f"The key of an upload has at most {MAX_UPLOAD_KEY_LENGTH} characters.")


class BucketChanges:
    """Changes the storages in clouds. Records of unfinished uploads are kept in the cluster's home."""

    def __init__(self, home: Path):
        self.clients = CloudClients(
            "changed",
            CALL_TIMEOUT_S,
            RESPONSE_TIMEOUT_S,
            read_only=False,
            upload_records=str(home / _RECORDS),
        )
        self._uploads = ConcurrencyLimit(MAX_UPLOADS, MAX_UPLOADS_PER_USER, "uploads to clouds")
        # Uploads that arrive now, and whether they were cancelled.
        self._arriving: dict[tuple[str, ...], bool] = {}

    async def make_folder(self, storage: StorageConfig, username: str, path: str) -> None:
        """Have a folder; one that exists stays as it is."""
        names = _entry_names(storage, username, path)
        with self.clients.queue_slot(storage, username):
            await self.clients.run(storage, lambda: _make_folder(self.clients.store(storage), names, path))

    async def delete(self, storage: StorageConfig, username: str, path: str) -> ChangeStep:
        """Delete a file, or some of what is in a folder, and the folder when it is empty."""
        names = _entry_names(storage, username, path)
        with self.clients.queue_slot(storage, username):
            return await self.clients.run(storage, lambda: _delete(self.clients.store(storage), names, path))

    async def move(
        self, storage: StorageConfig, username: str, path: str, target: str, *, resumes: bool
    ) -> ChangeStep:
        """Move a file, or some of what is in a folder. ``resumes``: earlier steps made the target."""
        names, target_names = (_entry_names(storage, username, each) for each in (path, target))
        if target_names[: len(names)] == names:
            raise InvalidParameters(f"{path} cannot be moved to itself or into itself.")

        def move() -> ChangeStep:
            store = self.clients.store(storage)
            if not resumes:
                _check_new(store, target_names, target)
                if store.status("/".join(target_names)) is not None:
                    raise Conflict(
                        f"{target} already exists.",
                        hint="If an earlier attempt of this move made it, resume=true continues that move.",
                    )
            return _move(store, names, path, store.key_of("/".join(target_names)), resumes=resumes)

        with self.clients.queue_slot(storage, username):
            return await self.clients.run(storage, move)

    async def begin_upload(self, storage: StorageConfig, username: str, file: NewFile) -> int:
        """How many bytes of an upload the cloud has: it goes on there."""
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

    async def _send(self, storage: StorageConfig, upload: _Upload, offset: int, body: _SentBytes) -> None:
        if upload.missing and upload.missing[0][0] < offset:
            raise Conflict(
                f"The upload of {upload.file.path} is at byte {upload.missing[0][0]}.",
                hint="Ask for that before you send the rest.",
            )
        for at, length in upload.missing:
            part = await body.read(at, length)
            await self.clients.run(storage, upload.target.put, at, length, partial(iter, (part,)))
        await body.skip_to(upload.file.size)
        await self.clients.run(storage, upload.finish)

    def _opener(self, storage: StorageConfig, username: str, file: NewFile) -> Callable[[], _Upload]:
        """What opens an upload, in a thread."""
        names = _entry_names(storage, username, file.path)
        # No user goes on with the upload of another.
        key = f"{username}/{file.key}" if file.key else os.urandom(8).hex()
        return lambda: _open_upload(self.clients.store(storage), names, file, key)

    def close(self) -> None:
        self.clients.close()


@dataclass(slots=True)
class _Upload:
    file: NewFile
    target: TargetFile
    missing: list[Range]

    def finish(self) -> None:
        try:
            self.target.finish(self.file.size)
        except Conflict:
            raise Conflict(f"{self.file.path} already exists.") from None
        self.target.close()

    def end(self, *, is_kept: bool) -> None:
        """End it unfinished. ``is_kept``: its parts stay for the request that goes on with it."""
        if is_kept:
            self.target.close()
        else:
            self.target.abandon()


@dataclass(slots=True)
class _OpeningUpload:
    """An upload that a thread opens. If its request ends meanwhile, the thread closes it: else it would hold
    its record, and no other request could go on with its parts."""

    open_upload: Callable[[], _Upload]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _opened: _Upload | None = None
    _is_dropped: bool = False

    def open(self) -> _Upload:
        upload = self.open_upload()
        with self._lock:
            self._opened = upload
            is_dropped = self._is_dropped
        if is_dropped:
            upload.end(is_kept=bool(upload.file.key))
        return upload

    def drop(self) -> _Upload | None:
        """The upload, which the caller ends; None if it is not open yet."""
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
        """A range behind what was read before."""
        await self.skip_to(offset)
        found = bytearray()
        while len(found) < length:
            found += await self._next(length - len(found))
        return found

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
    """What an upload has in memory."""
    from openpaisdk.storage.backends.object_store import object_part_size

    return _COPIES_IN_MEMORY * min(size, object_part_size(size))


def _entry_names(storage: StorageConfig, username: str, path: str) -> list[str]:
    """Names of a path that can be changed: not of the root, and of no read-only storage."""
    if storage.read_only:
        raise Forbidden(f"The storage {storage.name} is read-only.")
    names = names_of(storage, username, path)
    if not path.strip("/"):
        raise InvalidParameters("The root of a storage cannot be changed: name something in it.")
    return names


def _check_new(store: ObjectStore, names: list[str], path: str) -> None:
    """Raise an error if this cannot be the path of a new entry."""
    if reason := store.invalid_name_reason("/".join(names)):
        raise InvalidParameters(f"{path} cannot be written: {reason}.")
    folder = path.strip("/").rpartition("/")[0]
    found = store.head(store.key_of("/".join(names[:-1]))) if folder else None
    if found is not None and not found.is_folder:
        raise Conflict(f"/{folder} is a file and not a folder.")


def _make_folder(store: ObjectStore, names: list[str], path: str) -> None:
    _check_new(store, names, path)
    found = store.head(store.key_of("/".join(names)))
    if found is not None and not found.is_folder:
        raise Conflict(f"{path} already exists, and is a file.")
    store.make_folder("/".join(names))


def _delete(store: ObjectStore, names: list[str], path: str) -> ChangeStep:
    key = store.key_of("/".join(names))
    found = store.head(key)
    if found is not None and not found.is_folder:
        store.delete_objects([key])
        _keep_folder(store, names, path)
        return ChangeStep(1, True)
    page = store.list_page(f"{key}/", "", flat=True, limit=MAX_DELETED)
    if not page.objects and found is None and store.head(f"{key}/") is None:
        raise _missing(path)
    deleted = _deletable(page.objects, has_more=bool(page.next))
    _delete_objects(store, deleted)
    if not page.next:
        _delete_folders(store, key, is_object=found is not None)
        _keep_folder(store, names, path)
    return ChangeStep(len(deleted), not page.next)


def _move(store: ObjectStore, names: list[str], path: str, new_key: str, *, resumes: bool) -> ChangeStep:
    key = store.key_of("/".join(names))
    found = store.head(key)
    is_file = found is not None and not found.is_folder
    if found is not None and is_file:
        store.copy_object(key, new_key)
        moved, is_complete = [found], True
    else:
        page = store.list_page(f"{key}/", "", flat=True, limit=MAX_MOVED)
        if not page.objects and found is None:
            raise _missing(path)
        copied = _copy_some(store, page.objects, key, new_key)
        is_complete = not page.next and len(copied) == len(page.objects)
        moved = _deletable(copied, has_more=not is_complete)
    try:
        # Only what was copied: another program may have written more.
        _delete_objects(store, moved)
        if is_complete and not is_file:
            _delete_folders(store, key, is_object=found is not None)
        if is_complete:
            _keep_folder(store, names, path)
    except TRANSIENT:
        if resumes:
            raise
        # The target exists now: only a step that goes on can repeat this.
        return ChangeStep(0, False)
    return ChangeStep(len(moved), is_complete)


def _deletable(objects: list[ObjectInfo], *, has_more: bool) -> list[ObjectInfo]:
    """Those of a page that can be deleted. ``has_more``: a real folder, which must be empty, stays if what is
    in it may be on the next page."""
    if not has_more or not objects:
        return objects
    last = objects[-1].key
    # "0" follows "/": all that is in a folder comes before it.
    return [each for each in objects if not each.is_folder or last >= f"{each.key}0"] or objects


def _delete_objects(store: ObjectStore, objects: list[ObjectInfo]) -> None:
    """Delete objects, then real folders, the deepest first: only empty ones can be deleted."""
    _delete_keys(store, [each.key for each in objects if not each.is_folder])
    folders = [each.key for each in objects if each.is_folder]
    for _, same_depth in groupby(sorted(folders, key=_depth, reverse=True), _depth):
        # One request for each depth: a store may delete the objects of a request in any order.
        _delete_keys(store, list(same_depth))


def _depth(key: str) -> int:
    return key.count("/")


def _delete_keys(store: ObjectStore, keys: list[str]) -> None:
    if keys:
        # The deepest first: folders that are objects with a slash at the end are among them.
        store.delete_objects(keys[::-1])


def _delete_folders(store: ObjectStore, key: str, *, is_object: bool) -> None:
    """Delete the folders of a folder without objects: some stores keep and list them.

    ``is_object``: the folder itself is an object, without a slash at the end.
    """
    folders = [f"{key}/"]
    for folder in folders:
        if len(folders) < _MAX_FOLDERS:
            folders += store.list_page(folder, "", flat=False).prefixes
    _delete_keys(store, [*([key] if is_object else ()), *folders[:_MAX_FOLDERS]])


def _copy_some(
    store: ObjectStore, objects: list[ObjectInfo], prefix: str, new_prefix: str
) -> list[ObjectInfo]:
    """Copy objects for some seconds; returns those that were copied, at least one."""
    copied: list[ObjectInfo] = []
    ends = time.monotonic() + STEP_S
    for each in objects:
        if copied and time.monotonic() > ends:
            break
        try:
            store.copy_object(each.key, new_prefix + each.key[len(prefix) :])
        except NotFound:
            pass  # deleted meanwhile: there is nothing to move
        except PaiError:
            if not copied:
                raise
            break  # the next step reports it
        copied.append(each)
    return copied


def _keep_folder(store: ObjectStore, names: list[str], path: str) -> None:
    """Keep the folder of an entry that went: a cloud has it only as long as something is in it."""
    if "/" in path.strip("/"):
        store.make_folder("/".join(names[:-1]))


def _open_upload(store: ObjectStore, names: list[str], file: NewFile, key: str) -> _Upload:
    path = "/".join(names)
    _check_new(store, names, file.path)
    if file.overwrite and (found := store.status(path)) is not None and found.is_folder:
        raise Conflict(f"{file.path} already exists, and is a folder.")
    try:
        target = store.create(path, (file.size, 0, 0), key, overwrite=file.overwrite)
    except Conflict:
        raise Conflict(f"{file.path} already exists.") from None
    return _Upload(file, target, target.missing_ranges())


def _missing(path: str) -> NotFound:
    return NotFound(f"{path}: there is no such file or folder.")
