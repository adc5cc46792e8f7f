"""Cache of the last source archive of each folder: unchanged files are neither read nor uploaded again."""

from __future__ import annotations

import json
import os
import time

from openpaisdk.config.paths import make_private, user_folder

MIN_FILE_AGE_NS = 2_000_000_000
"""A younger file may change again without a new timestamp, so its stamp is not trusted yet."""
FORMAT_VERSION = 1


class PackManifest:
    """The last archive of a folder: its hash, and stamp and byte range of each member."""

    __slots__ = ("members", "sha256", "size")

    def __init__(self, sha256: str, size: int, members: dict[str, list[object]]):
        self.sha256 = sha256
        self.size = size
        self.members = members
        """By name: stamp, offset, length. The stamp is empty if the file was too young."""

    def member_range(self, name: str, stamp: str) -> tuple[int, int] | None:
        """Offset and length of an unchanged member in that archive; None if it changed."""
        member = self.members.get(name)
        if member is None or not stamp or member[0] != stamp:
            return None
        offset, length = member[1], member[2]
        return (offset, length) if isinstance(offset, int) and isinstance(length, int) else None


def load(key: str) -> PackManifest | None:
    """The manifest of a folder; None if there is none or it is unreadable."""
    try:
        with open(_path(key), "rb") as f:
            stored = json.loads(f.read())
        if stored["format"] != FORMAT_VERSION or stored["key"] != key:
            return None
        return PackManifest(str(stored["sha256"]), int(stored["size"]), dict(stored["members"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(key: str, manifest: PackManifest) -> None:
    """Store the manifest. Errors are ignored: without it the next upload only takes longer."""
    text = json.dumps(
        {
            "format": FORMAT_VERSION,
            "key": key,
            "sha256": manifest.sha256,
            "size": manifest.size,
            "members": manifest.members,
        }
    )
    path = _path(key)
    temporary = f"{path}.{os.getpid()}.new"
    try:
        make_private(os.path.dirname(path))
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(temporary, path)
    except (OSError, UnicodeError):
        return


def stamp_of(status: os.stat_result, min_file_age_ns: int = MIN_FILE_AGE_NS) -> str:
    """Text that changes when the file changes; empty for a file that is too young."""
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < min_file_age_ns:
        return ""
    return f"{status.st_mtime_ns}.{status.st_ctime_ns}.{status.st_size}.{status.st_ino}.{status.st_dev}"


def _path(key: str) -> str:
    import hashlib

    name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return os.path.join(user_folder(), "cache", "sources", f"{name}.json")
