"""Cache of records on the local disk, of bounded size, shared by all processes that use the same folder.

An entry is a file with a CRC-32 at its end; a damaged one counts as absent. The least recently used entries
are removed first.
"""

from __future__ import annotations

import os
import zlib

from paiprotocol.transfer.hashing import BLAKE2B, hash_bytes

_SUFFIX = ".records"
_CRC_BYTES = 4
KEEP_SHARE = 0.9
"""When the cache is full, entries are removed until this share of its size is left."""


class RecordCache:
    def __init__(self, folder: str, max_bytes: int):
        self._folder = folder
        self._max_bytes = max_bytes
        self._known_bytes: int | None = None
        os.makedirs(folder, exist_ok=True)

    def get(self, identity: str) -> bytes | None:
        path = self._path(identity)
        try:
            with open(path, "rb") as file:
                data = file.read()
            os.utime(path)
        except OSError:
            return None
        content = data[:-_CRC_BYTES]
        if zlib.crc32(content).to_bytes(_CRC_BYTES, "little") != data[-_CRC_BYTES:]:
            return None
        return content

    def put(self, identity: str, content: bytes) -> None:
        """Add an entry. A full disk or an unwritable folder is no error: it is only a cache."""
        if len(content) > self._max_bytes:
            return
        path = self._path(identity)
        partial = f"{path}.{os.getpid()}"
        try:
            with open(partial, "wb") as file:
                file.write(content)
                file.write(zlib.crc32(content).to_bytes(_CRC_BYTES, "little"))
            os.replace(partial, path)
        except OSError:
            _unlink(partial)
            return
        if self._known_bytes is None:
            self._known_bytes = sum(size for _, size, _ in self._entries())
        else:
            self._known_bytes += len(content)
        if self._known_bytes > self._max_bytes:
            self._evict()

    def _evict(self) -> None:
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self._max_bytes * KEEP_SHARE:
                break
            _unlink(path)
            total -= size
        self._known_bytes = total

    def _entries(self) -> list[tuple[int, int, str]]:
        """Time of last use, size and path of each entry."""
        used = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if _SUFFIX in entry.name:
                    try:
                        facts = entry.stat()
                    except OSError:
                        continue  # removed by another process
                    used.append((facts.st_mtime_ns, facts.st_size, entry.path))
        return used

    def _path(self, identity: str) -> str:
        name = hash_bytes(identity.encode("utf-8", "surrogateescape"), BLAKE2B).hex()
        return os.path.join(self._folder, name + _SUFFIX)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
