"""Files of the cluster's remote storages, for readers that have no credentials: pages in a browser.

The cluster reads with its own credentials, for the users who may use the storage. A user sees what `pai`
shows of it: all of a shared storage, else the folder of the same name. One page of a listing or one block of
a file is in memory at a time. A storage is asked once and not for long: a page tells its user to try again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from paicluster.remote_storages.remote_clients import (
    MAX_CALLS_PER_STORAGE,
    ClientSettings,
    ConcurrencyLimit,
    NoResponse,
    RemoteClients,
    names_of,
)
from paicluster.remote_storages.remote_tree import RemoteFile, RemoteListing
from paicluster.remote_storages.storages import StorageConfig
from paiprotocol.errors import InvalidParameters

MAX_CURSOR_LENGTH = 8192
"""Characters of what continues a listing; clouds choose it, and use a few hundred."""
MAX_DOWNLOADS = 16
"""Downloads at one time. Each holds a block in memory for as long as its client takes to read it."""
MAX_DOWNLOADS_PER_USER = 4
CALL_TIMEOUT_S = 10.0
"""How long one request to a storage may take: a page waits for it."""
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


@dataclass(slots=True)
class RemoteFiles:
    """Reads the remote storages."""

    clients: RemoteClients = field(
        default_factory=lambda: RemoteClients(ClientSettings("read", CALL_TIMEOUT_S, RESPONSE_TIMEOUT_S))
    )
    _block_turns: defaultdict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(_BLOCKS_AT_ONCE))
    )
    _downloads: ConcurrencyLimit = field(
        default_factory=lambda: ConcurrencyLimit(
            MAX_DOWNLOADS, MAX_DOWNLOADS_PER_USER, "downloads from remote storages"
        )
    )

    async def list(self, storage: StorageConfig, username: str, path: str, cursor: str) -> RemoteListing:
        names = names_of(storage, username, path)
        if len(cursor) > MAX_CURSOR_LENGTH:
            raise InvalidParameters("This listing cannot be continued.")
        with self.clients.queue_slot(storage, username):
            return await self.clients.run(
                storage, lambda: self.clients.tree(storage, username).list_folder(names, path, cursor)
            )

    async def open(self, storage: StorageConfig, username: str, path: str) -> RemoteFile:
        names = names_of(storage, username, path)
        with self.clients.queue_slot(storage, username):
            return await self.clients.run(
                storage, lambda: self.clients.tree(storage, username).open(names, path)
            )

    def begin_download(self, username: str) -> Callable[[], None]:
        """Count a download of a user; returns the function that ends it. Unavailable: there are too many."""
        return self._downloads.acquire(username)

    async def pieces(self, storage: StorageConfig, file: RemoteFile, length: int) -> AsyncIterator[bytes]:
        """The first ``length`` bytes of a file, within a download that `begin_download` has counted."""
        for at in range(0, length, _BLOCK_BYTES):
            block = await self._block(storage, file, at, min(_BLOCK_BYTES, length - at))
            for start in range(0, len(block), _PIECE_BYTES):
                yield block[start : start + _PIECE_BYTES]

    async def _block(self, storage: StorageConfig, file: RemoteFile, at: int, size: int) -> bytes:
        attempts = _BLOCK_ATTEMPTS
        while True:
            attempts -= 1
            try:
                async with self._block_turns[storage.name]:
                    return await self.clients.run(storage, file.read_block, at, size)
            except NoResponse:
                if not attempts:
                    raise

    def close(self) -> None:
        self.clients.close()
