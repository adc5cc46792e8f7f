"""Storage client: ``pai://`` locations, the catalog of storages, backends, transfers and the fsspec adapter.

May import ``client``, ``connect``, ``config`` and ``paiprotocol``; knows nothing of jobs or of output
formats. Nothing is imported here: a command that lists a folder must not load the transfer executor.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.storage import Storage

__all__ = ["Storage"]


def __getattr__(name: str) -> object:
    if name == "Storage":
        from openpaisdk.storage.storage import Storage

        return Storage
    raise AttributeError(f"module 'openpaisdk.storage' has no attribute {name!r}")
