"""Which storages a job finds mounted in its containers, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpaisdk.protocol import Job
from paicluster.engines.interface import Mount

_PLUGINS = "com.microsoft.pai.runtimeplugin"


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
    """Names and where they are wanted. An empty list, as OpenPAI has it, means the usual ones."""
    listed = extras.get("storages")
    if listed is None:
        named = _of_plugin(extras)
        if named is None:
            return
        listed = [{"name": name} for name in named]
    if listed == []:
        yield from ((folder.name, "") for folder in folders if folder.usual)
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("name"), str):
            target = item.get("mountPath")
            yield item["name"], target if isinstance(target, str) else ""


def _of_plugin(extras: Mapping[str, Any]) -> Sequence[str] | None:
    """The plugin that did it before; None without it."""
    plugins = extras.get(_PLUGINS)
    for plugin in plugins if isinstance(plugins, list) else ():
        if isinstance(plugin, Mapping) and plugin.get("plugin") == "teamwise_storage":
            parameters = plugin.get("parameters")
            names = parameters.get("storageConfigNames") if isinstance(parameters, Mapping) else None
            return [name for name in names or () if isinstance(name, str)]
    return None
