"""Data sets: packs of many small files, and readers of them for training.

>>> from openpaisdk.data import RecordStream, Records, open_pack
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from openpaisdk.data.pack_reader import Pack as Pack
    from openpaisdk.data.pack_reader import open_pack as open_pack
    from openpaisdk.data.record_stream import Records as Records
    from openpaisdk.data.record_stream import RecordStream as RecordStream

_MODULES = {
    "Pack": "pack_reader",
    "RecordStream": "record_stream",
    "Records": "record_stream",
    "open_pack": "pack_reader",
}

__all__ = ["Pack", "RecordStream", "Records", "open_pack"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(__import__(f"{__name__}.{_MODULES[name]}", fromlist=[name]), name)
    globals()[name] = value
    return value
