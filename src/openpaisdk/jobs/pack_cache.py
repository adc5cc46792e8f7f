"""What was packed last time from a folder, so that what has not changed is neither read nor sent again."""

from __future__ import annotations

import json
import os
import time

from openpaisdk.config.paths import make_private, user_folder

MIN_FILE_AGE_NS = 2_000_000_000
"""A file younger than this may change again without its stamp changing: it is not believed yet."""
FORMAT_VERSION = 1


class PackManifest:
    """The last tar of a folder: its identity, and where in it each member lies, by name and stamp."""

    __slots__ = ("members", "sha256", "size")

    def __init__(self, sha256: str, size: int, members: dict[str, list[object]]):
        self.sha256 = sha256
        self.size = size
        self.members = members
        """By name: stamp, offset, length. Without a stamp where the file was too young to be believed."""

    def member_range(self, name: str, stamp: str) -> tuple[int, int] | None:
        """Where an unchanged member lies in that tar."""
        found = self.members.get(name)
        if found is None or not stamp or found[0] != stamp:
            return None
        offset, length = found[1], found[2]
        return (offset, length) if isinstance(offset, int) and isinstance(length, int) else None


def load(key: str) -> PackManifest | None:
    """What was remembered of a folder; None where nothing was, or nothing that can be read."""
    try:
        with open(_path(key), "rb") as f:
            kept = json.loads(f.read())
        if kept["form"] != FORMAT_VERSION or kept["key"] != key:
            return None
        return PackManifest(str(kept["sha256"]), int(kept["size"]), dict(kept["members"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(key: str, last: PackManifest) -> None:
    """Keep it for the next time. What cannot be kept only costs time."""
    text = json.dumps(
        {
            "form": FORMAT_VERSION,
            "key": key,
            "sha256": last.sha256,
            "size": last.size,
            "members": last.members,
        }
    )
    path = _path(key)
    aside = f"{path}.{os.getpid()}.new"
    try:
        make_private(os.path.dirname(path))
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(aside, path)
    except (OSError, UnicodeError):
        return


def stamp_of(found: os.stat_result) -> str:
    """What changes when a file does; empty for one that is too young to tell."""
    if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < MIN_FILE_AGE_NS:
        return ""
    return f"{found.st_mtime_ns}.{found.st_ctime_ns}.{found.st_size}.{found.st_ino}.{found.st_dev}"


def _path(key: str) -> str:
    import hashlib

    name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return os.path.join(user_folder(), "cache", "sources", f"{name}.json")
