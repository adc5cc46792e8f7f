"""Which storages a job finds mounted in its containers, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpaisdk.protocol import JobSpec
from openpaisdk.protocol.extras import storages_named
from paicluster.engines.interface import Mount


@dataclass(frozen=True, slots=True)
class MountableStorage:
    """A storage that is a folder of every machine. ``usual``: whoever names none gets it."""

    name: str
    path: Path
    # Everybody sees the whole of it; else each user the folder of his name.
    share: bool = True
    read_only: bool = False
    usual: bool = False
    # The cluster's own storage: a folder of the server's machine, closed to all accounts but its own.
    own: bool = False
    # Where in it the users' homes are, if each is to see his own and nothing else. A home then lies where the
    # storage itself has it, so that paths are the same.
    homes: str = ""

    def mount(self, user: str, target: str) -> Mount:
        where = "/" + (target or f"mnt/{self.name}").strip("/")
        if self.homes:
            home = f"{self.homes}/{user}"
            return Mount(self.path / home, f"{where}/{home}", self.read_only, create=True)
        source = self.path if self.share else self.path / user
        return Mount(source, where, self.read_only, create=not self.share)


def mounts_of(
    job: JobSpec, user: str, folders: Sequence[MountableStorage], *, elsewhere: bool = False
) -> tuple[Mount, ...]:
    """What the job asks for and what there is of it; that its user may have it was seen to at the door.

    ``elsewhere``: its tasks run on machines, and under accounts, that another scheduler chooses.
    """
    asked = _asked_for(job.extras, folders)
    found = [folder.mount(user, target) for folder, target in asked if not (folder.own and elsewhere)]
    return tuple({mount.target: mount for mount in found}.values())


def unmountable(
    job: JobSpec, user: str, folders: Sequence[MountableStorage], *, on_the_host: bool, elsewhere: bool
) -> dict[str, str]:
    """Where nothing is mounted though the job asks for it, and what its tasks can do instead."""
    told = {}
    for folder, target in _asked_for(job.extras, folders):
        if not on_the_host and not (folder.own and elsewhere):
            continue
        mount = folder.mount(user, target)
        if not folder.own or not (folder.homes or elsewhere):
            told[mount.target] = f"it is {mount.source}"
        else:
            told[mount.target] = "hdfs dfs -get and -put, or pai copy, bring files from there and back"
    return told


def _asked_for(
    extras: Mapping[str, Any], folders: Sequence[MountableStorage]
) -> Iterator[tuple[MountableStorage, str]]:
    known = {folder.name: folder for folder in folders}
    named = storages_named(extras)
    if named == ():
        yield from ((folder, "") for folder in folders if folder.usual)
    for name, target in named or ():
        folder = known.get(name)
        if folder is not None:  # else it is one that is reached by its address
            yield folder, target
