"""Records of unfinished multipart uploads, so that the same command resumes an interrupted one.

S3 identifies an upload by an id that it chooses, and not by the content. The id lies in
``~/.openpai/uploads``, of a server in its home, until the upload is complete; the parts lie on S3. While an
upload runs, its record is locked: a second copy to the same target uses an upload of its own.
"""

from __future__ import annotations

import json
import os
import sys

from openpaisdk.config.paths import make_private, user_folder
from openpaisdk.storage import expiring_records
from openpaisdk.storage.backends.base import content_key

if sys.platform != "win32":
    import fcntl


class UploadRecord:
    """Record of the upload to one target (``url``), open and locked from ``open`` to ``close``."""

    def __init__(self, path: str, fd: int):
        self._path = path
        self._fd = fd

    @classmethod
    def open(cls, url: str, folder: str = "") -> UploadRecord | None:
        """The locked record of a target; None if another copy holds it, or it cannot be written."""
        folder = folder or os.path.join(user_folder(), "uploads")
        path = os.path.join(folder, content_key(url) + expiring_records.SUFFIX)
        try:
            make_private(folder)
            expiring_records.remove_expired(folder)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError:
            return None
        if not _lock(fd, path):
            os.close(fd)
            return None
        return cls(path, fd)

    def read(self) -> tuple[str, str]:
        """Content key and id of the unfinished upload; empty if there is none."""
        try:
            os.lseek(self._fd, 0, os.SEEK_SET)
            record = json.loads(os.read(self._fd, 1 << 16))
            return str(record["content"]), str(record["id"])
        except (OSError, ValueError, KeyError, TypeError):
            return "", ""

    def write(self, content: str, upload_id: str) -> None:
        """Store an upload. If that fails, it cannot be resumed, but goes on."""
        try:
            os.ftruncate(self._fd, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)
            os.write(self._fd, json.dumps({"content": content, "id": upload_id}).encode())
        except OSError:
            pass

    def close(self, *, keep: bool) -> None:
        """Release the record; without ``keep`` it is removed, because the upload has ended."""
        if self._fd < 0:
            return
        if keep:
            os.close(self._fd)
        elif sys.platform == "win32":  # which does not remove open files
            os.close(self._fd)
            expiring_records.remove_record(self._path)
        else:
            expiring_records.remove_record(self._path)
            os.close(self._fd)
        self._fd = -1


if sys.platform == "win32":

    def _lock(fd: int, path: str) -> bool:
        return True

else:

    def _lock(fd: int, path: str) -> bool:
        """Lock a record; False if another copy holds it or has just removed it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
        except OSError:
            return False


__all__ = ["UploadRecord"]
