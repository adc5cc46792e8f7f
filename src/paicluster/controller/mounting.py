"""Which storages a job finds mounted in its containers, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpaisdk.protocol import Job
from openpaisdk.protocol.extras import storages_named
from paicluster.engines.interface import Mount


@dataclass(frozen=True, slots=True)
class Folder:
    """A storage that is a folder of every machine. ``usual``: whoever names none gets it."""

    name: str
    path: Path
    # Everybody sees the whole of it; else each user the folder of his name.
    share: bool = True
    read_only: bool = False
    usual: bool = False


def mounts_of(job: Job, user: str, folders: Sequence[Folder]) -> tuple[Mount, ...]:
    """What the job asks for and what there is of it; that its user may have it was seen to at the door."""
    known = {folder.name: folder for folder in folders}
    found: dict[str, Mount] = {}
    for name, target in _wanted(job.extras, folders):
        folder = known.get(name)
        if folder is None:
            continue  # one that is reached by its address
        source = folder.path if folder.share else folder.path / user
        where = "/" + (target or f"mnt/{name}").strip("/")
        found[where] = Mount(source, where, folder.read_only, make=not folder.share)
    return tuple(found.values())


def _wanted(extras: Mapping[str, Any], folders: Sequence[Folder]) -> Iterator[tuple[str, str]]:
    named = storages_named(extras)
    if named == ():
        yield from ((folder.name, "") for folder in folders if folder.usual)
    yield from named or ()
