"""Files of functions on a storage: calls, results, claims, names of values."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from paiprotocol.errors import Conflict, NotFound, PaiError

if TYPE_CHECKING:
    from openpaisdk.storage import Storage


class FunctionFiles:
    """Files of functions on one storage, read and written whole; a missing one is no error."""

    def __init__(self, storage: Storage):
        self._backend = storage.backend

    def write(self, path: str, content: bytes) -> None:
        self._backend.write_bytes(path, content, time.time_ns(), 0o600)

    def create(self, path: str, content: bytes) -> bool:
        """Write a file that no one has written; False if it exists, also if it was written at this moment."""
        try:
            self._backend.write_bytes(path, content, time.time_ns(), 0o600, overwrite=False)
        except Conflict:
            return False
        return True

    def read(self, path: str) -> bytes | None:
        """Content of a file; None if it does not exist."""
        try:
            source = self._backend.open(path)
        except PaiError as e:
            if isinstance(e, NotFound) or e.status == 404:
                return None
            raise
        try:
            return b"".join(map(bytes, source.chunks(0, source.size)))
        finally:
            source.close()

    def names(self, folder: str, *, older_than_ns: int | None = None) -> list[str]:
        """Names in a folder, of those that were changed before a time; none if it does not exist."""
        try:
            entries = self._backend.list_folder(folder)
        except NotFound:
            return []
        return [e.name for e in entries if older_than_ns is None or e.mtime_ns <= older_than_ns]

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its contents, if it exists."""
        if self._backend.status(path) is not None:
            self._backend.delete(path)
