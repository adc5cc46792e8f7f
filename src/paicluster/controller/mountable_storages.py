"""Storage mounts: which storages are mounted in the containers of a job, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paicluster.engines.interface import Mount
from paiprotocol.jobs import JobSpec
from paiprotocol.jobs.extras import requested_storages


@dataclass(frozen=True, slots=True)
class MountableStorage:
    """A storage that is a folder on every node. ``default``: mounted for jobs that name no storage."""

    name: str
    path: Path
    # All users see all of it; else each user sees the folder of the same name.
    shared: bool = True
    read_only: bool = False
    default: bool = False
    # The cluster's own storage: a folder on the server's node, accessible to the server's account only.
    own: bool = False
    # Folder of the users' homes, if each user sees only their own. A home is mounted under its path in the
    # storage, so that paths are the same.
    homes: str = ""

    def mount(self, user: str, target: str) -> Mount:
        path = "/" + (target or f"mnt/{self.name}").strip("/")
        if self.homes:
            home = f"{self.homes}/{user}"
            return Mount(self.path / home, f"{path}/{home}", self.read_only, create=True)
        source = self.path if self.shared else self.path / user
        return Mount(source, path, self.read_only, create=not self.shared)


def mounts_of(
    job: JobSpec, user: str, folders: Sequence[MountableStorage], *, delegated: bool = False
) -> tuple[Mount, ...]:
    """Mounts of the requested storages that exist; admission has checked that the user may use them.

    ``delegated``: an external scheduler chooses the nodes and accounts of its tasks.
    """
    requested = _requested(job.extras, folders)
    mounts = [folder.mount(user, target) for folder, target in requested if not (folder.own and delegated)]
    return tuple({mount.target: mount for mount in mounts}.values())


def unmountable(
    job: JobSpec, user: str, folders: Sequence[MountableStorage], *, on_host: bool, delegated: bool
) -> dict[str, str]:
    """Requested mounts that are not possible, by target, and what tasks can do instead."""
    alternatives = {}
    for folder, target in _requested(job.extras, folders):
        if not on_host and not (folder.own and delegated):
            continue
        mount = folder.mount(user, target)
        if not folder.own or not (folder.homes or delegated):
            alternatives[mount.target] = f"use {mount.source}"
        else:
            alternatives[mount.target] = "use hdfs dfs -get and -put, or pai copy"
    return alternatives


def _requested(
    extras: Mapping[str, Any], folders: Sequence[MountableStorage]
) -> Iterator[tuple[MountableStorage, str]]:
    known = {folder.name: folder for folder in folders}
    named = requested_storages(extras)
    if named == ():
        yield from ((folder, "") for folder in folders if folder.default)
    for name, target in named or ():
        folder = known.get(name)
        if folder is not None:  # else it is a remote storage, reached by its URL
            yield folder, target
