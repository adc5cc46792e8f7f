"""Markers of folder copies in progress, so that the same command resumes an interrupted copy.

``cp -r`` copies a folder into a target that exists. An interrupted copy has already created its target, so
without a marker the next run would start again inside it. The marker lies in ``~/.openpai/copies``, from
before the target is created until the copy is complete.
"""

from __future__ import annotations

import json
import os

from openpaisdk.config.paths import user_folder
from openpaisdk.config.yaml_files import replace_file
from openpaisdk.storage import expiring_records
from openpaisdk.storage.backends.base import content_key
from paiprotocol.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Backend


class CopyMarker:
    """Marker of a copy of one folder to one target."""

    def __init__(self, source: Backend, source_path: str, target: Backend, target_path: str):
        self.source = canonical_name(source, source_path)
        self.target = canonical_name(target, target_path)
        self.path = os.path.join(_folder(), content_key(self.source, self.target) + expiring_records.SUFFIX)

    def exists(self) -> bool:
        """Whether this copy was started within the last days and has not finished."""
        return _read(self.path) == (self.source, self.target)

    def write(self) -> None:
        """Write the marker. If that fails, the copy is made nevertheless."""
        expiring_records.remove_expired(_folder())
        content = {"source": self.source, "target": self.target}
        try:
            replace_file(self.path, json.dumps(content).encode())
        except ConfigError:
            pass

    def remove(self) -> None:
        expiring_records.remove_record(self.path)


def remove_markers_below(backend: Backend, path: str) -> None:
    """Remove the markers of a path and below, after a command removed or created it: a copy to it is new."""
    removed = canonical_name(backend, path)
    for marker in expiring_records.record_paths(_folder()):
        copy = _read(marker)
        if copy is not None and (copy[1] == removed or copy[1].startswith(removed + "/")):
            expiring_records.remove_record(marker)


def canonical_name(backend: Backend, path: str) -> str:
    """One name per file, however it was typed."""
    name = backend.url + path if backend.url else os.path.realpath(path)
    return name.rstrip("/")


def _folder() -> str:
    return os.path.join(user_folder(), "copies")


def _read(marker: str) -> tuple[str, str] | None:
    """Source and target of a marker; None if it is missing, expired or unreadable."""
    try:
        with open(marker, "rb") as f:
            if expiring_records.is_expired(os.fstat(f.fileno())):
                return None
            content = json.loads(f.read())
        return str(content["source"]), str(content["target"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
