"""Files of the cluster's storages in a cloud, for readers that have no credentials: pages in a browser.

The cluster reads with its own credentials, for the users who may use the storage. A user sees what `pai`
shows of it: all of a shared storage, else the folder of the same name. One page of a listing or one block of
a file is in memory at a time. A cloud is asked once and not for long: a page tells its user to try again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from openpaisdk.errors import InvalidParameters, NotFound
from paicluster.services.cloud_clients import (
    MAX_CALLS_PER_STORAGE,
    CloudClients,
    ConcurrencyLimit,
    NoResponse,
    names_of,
)
from paicluster.services.storages import StorageConfig

if TYPE_CHECKING:
    from openpaisdk.storage.backends.object_store import ObjectInfo, ObjectStore

MAX_PAGE_ENTRIES = 1000
"""Entries of one page of a listing: as many as a cloud lists at once."""
MAX_CURSOR_LENGTH = 8192
"""Characters of what continues a listing; clouds choose it, and use a few hundred."""
MAX_DOWNLOADS = 16
"""Downloads at one time. Each holds a block in memory for as long as its client takes to read it."""
MAX_DOWNLOADS_PER_USER = 4
CALL_TIMEOUT_S = 10.0
"""How long one request to a cloud may take: a page waits for it."""
RESPONSE_TIMEOUT_S = 20.0
"""How long a listing or a block may take, with the wait for a thread."""

# Of the calls of a storage: downloads must not hold up pages.
_BLOCKS_AT_ONCE = MAX_CALLS_PER_STORAGE - 1
# At 100 kB/s it arrives within the time of a request.
_BLOCK_BYTES = 1 << 20
# What the connection of a slow client holds.
_PIECE_BYTES = 256 << 10
# A download of hours should survive a lost connection.
_BLOCK_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class CloudEntry:
    """A file or a folder. Folders of a cloud have no time."""

    name: str
    is_folder: bool
    size: int = 0
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class CloudListing:
    """``file``: the path is one. ``next`` continues the listing, and is empty at its end."""

    file: CloudEntry | None
    entries: list[CloudEntry]
    next: str = ""


@dataclass(frozen=True, slots=True)
class CloudFile:
    """A version of a file that can be read."""

    name: str
    size: int
    store: ObjectStore
    key: str
    etag: str


@dataclass(slots=True)
class BucketFiles:
    """Reads the storages in clouds."""

    clients: CloudClients = field(
        default_factory=lambda: CloudClients("read", CALL_TIMEOUT_S, RESPONSE_TIMEOUT_S)
    )
    _block_turns: defaultdict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(_BLOCKS_AT_ONCE))
    )
    _downloads: ConcurrencyLimit = field(
        default_factory=lambda: ConcurrencyLimit(
            MAX_DOWNLOADS, MAX_DOWNLOADS_PER_USER, "downloads from clouds"
        )
    )

    async def list(self, storage: StorageConfig, username: str, path: str, cursor: str) -> CloudListing:
        names = names_of(storage, username, path)
        if len(cursor) > MAX_CURSOR_LENGTH:
            raise InvalidParameters("This listing cannot be continued.")
        with self.clients.queue_slot(storage, username):
            return await self.clients.run(
                storage, lambda: _list(self.clients.store(storage), names, path, cursor)
            )

    async def open(self, storage: StorageConfig, username: str, path: str) -> CloudFile:
        names = names_of(storage, username, path)
        with self.clients.queue_slot(storage, username):
            return await self.clients.run(storage, lambda: _open(self.clients.store(storage), names, path))

    def begin_download(self, username: str) -> Callable[[], None]:
        """Count a download of this user; returns what ends it. Raises Unavailable for too many."""
        return self._downloads.acquire(username)

    async def pieces(self, storage: StorageConfig, file: CloudFile, length: int) -> AsyncIterator[bytes]:
        """The first ``length`` bytes of a file, within a download that `begin_download` has counted."""
        for at in range(0, length, _BLOCK_BYTES):
            block = await self._block(storage, file, at, min(_BLOCK_BYTES, length - at))
            for start in range(0, len(block), _PIECE_BYTES):
                yield block[start : start + _PIECE_BYTES]

    async def _block(self, storage: StorageConfig, file: CloudFile, at: int, size: int) -> bytes:
        left = _BLOCK_ATTEMPTS
        while True:
            left -= 1
            try:
                async with self._block_turns[storage.name]:
                    return await self.clients.run(
                        storage, file.store.read_range, file.key, at, size, file.etag
                    )
            except NoResponse:
                if not left:
                    raise

    def close(self) -> None:
        self.clients.close()


def _list(store: ObjectStore, names: list[str], path: str, cursor: str) -> CloudListing:
    key = store.key_of("/".join(names))
    prefix = f"{key}/" if key else ""
    page = store.list_page(prefix, cursor, flat=False, limit=MAX_PAGE_ENTRIES)
    entries = {}
    for found in page.objects:
        # The object of the folder itself has no name.
        if name := found.key[len(prefix) :].rstrip("/"):
            entries[name] = _entry(name, found)
    for each in page.prefixes:
        name = each[len(prefix) :].rstrip("/")
        entries[name] = CloudEntry(name, True)
    if not entries and not page.objects and not page.next and path.strip("/"):
        found_here = store.head(key)
        if found_here is None:
            raise NotFound(f"{path}: there is no such file or folder.")
        if not found_here.is_folder:
            return CloudListing(_entry(names[-1], found_here), [])
    # Names that no path can have are left out.
    shown = [
        one for name, one in sorted(entries.items()) if name and "/" not in name and name not in (".", "..")
    ]
    return CloudListing(None, shown, page.next)


def _entry(name: str, found: ObjectInfo) -> CloudEntry:
    if found.is_folder or found.key.endswith("/"):
        return CloudEntry(name, True)
    return CloudEntry(name, False, found.size, found.mtime_ns // 1_000_000)


def _open(store: ObjectStore, names: list[str], path: str) -> CloudFile:
    found = store.head(store.key_of("/".join(names))) if path.strip("/") else None
    if found is None or found.is_folder:
        raise NotFound(f"{path}: there is no such file.")
    return CloudFile(names[-1], found.size, store, found.key, found.etag)
