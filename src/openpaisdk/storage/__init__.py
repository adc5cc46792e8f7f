"""Files on a cluster: where ``pai://`` leads, and the engine that moves files there and back.

Knows clusters (``client``, ``reach``) and settings; knows nothing of jobs or of how results print. Nothing is
imported here: a command that lists a folder must not pay for the engine.
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
