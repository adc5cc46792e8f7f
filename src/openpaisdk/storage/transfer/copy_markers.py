"""Folders on their way to a target that was not there: so that the same copy, run again, ends what it began.

``cp -r`` puts a folder into a target that exists. A copy that was interrupted has made its target, so without
a mark the next one would begin anew inside it. The mark lies in ``~/.openpai/copies``, from before the target
is made until the copy is whole.
"""

from __future__ import annotations

import json
import os
import time

from openpaisdk.config.paths import user_folder
from openpaisdk.config.yaml_files import replace_file
from openpaisdk.errors import ConfigError
from openpaisdk.storage.backends.base import key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Backend

KEPT_S = 7 * 24 * 3600
"""As long as a cluster keeps an upload that nobody continues; an older mark says nothing about today."""


class CopyMarker:
    """The mark of one folder on its way to one place."""

    def __init__(self, source: Backend, here: str, target: Backend, there: str):
        self.source = known_as(source, here)
        self.target = known_as(target, there)
        self.path = os.path.join(_folder(), key_of(self.source, self.target) + ".json")

    def is_there(self) -> bool:
        """Whether this very copy was begun, not long ago, and not ended."""
        return _read(self.path) == (self.source, self.target)

    def begin(self) -> None:
        """Set the mark. Where it cannot be kept, the copy is made all the same."""
        _forget_old()
        said = {"source": self.source, "target": self.target}
        try:
            replace_file(self.path, json.dumps(said).encode())
        except ConfigError:
            pass

    def end(self) -> None:
        _unlink(self.path)


def forget(backend: Backend, path: str) -> None:
    """A target was removed, with all in it, or made by hand: what is there from now on is something else."""
    gone = known_as(backend, path)
    for mark in _marks():
        found = _read(mark)
        if found is not None and (found[1] == gone or found[1].startswith(gone + "/")):
            _unlink(mark)


def known_as(backend: Backend, path: str) -> str:
    """One name for one place, however it was typed."""
    where = backend.where + path if backend.where else os.path.realpath(path)
    return where.rstrip("/")


def _folder() -> str:
    return os.path.join(user_folder(), "copies")


def _marks() -> list[str]:
    try:
        return [os.path.join(_folder(), name) for name in os.listdir(_folder()) if name.endswith(".json")]
    except OSError:
        return []


def _read(mark: str) -> tuple[str, str] | None:
    """What a mark says; None for one that is old, or none."""
    try:
        with open(mark, "rb") as f:
            if time.time() - os.fstat(f.fileno()).st_mtime > KEPT_S:
                return None
            said = json.loads(f.read())
        return str(said["source"]), str(said["target"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _forget_old() -> None:
    for mark in _marks():
        try:
            if time.time() - os.stat(mark).st_mtime > KEPT_S:
                os.unlink(mark)
        except OSError:
            pass


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
