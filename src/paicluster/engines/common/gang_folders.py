"""Folders of gangs and attempts on the server, of engines whose tasks run on other machines."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from paicluster.engines.common import folder_size
from paicluster.engines.common.attempt_folder import path_of

# Hash of the ticket with which the tasks of a gang report over HTTP.
TICKET = "ticket"
# Of a script that runs in an image's own shell.
SCRIPT_HEADER = 'set -o errexit -o nounset\nif [ -n "${BASH_VERSION:-}" ]; then set -o pipefail; fi\n'


@dataclass(frozen=True, slots=True)
class GangFolders:
    """Paths of one engine. A gang has the uid of its first task; files name it for its other tasks."""

    root: Path

    @property
    def tasks(self) -> Path:
        return self.root / "tasks"

    @property
    def gangs(self) -> Path:
        return self.root / "gangs"

    def task(self, uid: str) -> Path:
        return path_of(self.tasks, uid)

    def gang(self, uid: str) -> Path:
        return path_of(self.gangs, uid)

    def leader_of(self, uid: str) -> str | None:
        """The first task of an attempt's gang, whose uid is the gang's; None when there is no gang."""
        path = self.gang(uid)
        try:
            # Not from the attempt's own folder: the task's account can write there.
            return uid if path.is_dir() else path.read_text()
        except OSError:
            return None

    def remove(self, uid: str) -> None:
        for path in (self.task(uid), self.gang(uid)):
            folder_size.remove_tree(path)


def hash_of(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()


def copy_sources(sources: Path, target: Path, mode: int | None = None) -> None:
    """A copy of uploaded sources, by a hard link where possible: the server may delete them meanwhile."""
    if target.exists():
        return
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    try:
        os.link(sources, temporary)
    except OSError:
        shutil.copyfile(sources, temporary)
    if mode is not None:
        temporary.chmod(mode)
    temporary.rename(target)
