"""Memory that this server may use: the machine's, or less where a cgroup limits it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paicluster.engines.process.local_node import machine_memory_mb

_FILES = {"": "memory.max", "memory": "memory.limit_in_bytes"}
"""In cgroups of version 2, which name no controllers, and of version 1."""


def available_memory_mb(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    return min([machine_memory_mb(proc), *(limit >> 20 for limit in _limits(proc, cgroups))])


def _limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """Limits of this process's cgroups and of those above them, in bytes."""
    try:
        memberships = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        for controller, file in _FILES.items():
            if controller in controllers.split(","):
                top = cgroups / controller
                own = top / path.lstrip("/")
                # In a container the path may be the host's: then only the top is here.
                for folder in (own, *own.parents):
                    if folder.is_relative_to(top):
                        yield from _limit_in(folder / file)


def _limit_in(file: Path) -> Iterator[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return
    if text.isdecimal():  # else `max`
        yield int(text)
