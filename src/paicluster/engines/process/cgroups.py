"""Finds the best way this machine allows to hold a process tree, by trying it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pairuntime.supervisor import process_tree

_CONTROL = "cgroup.subtree_control"
_WANTED = {"cpu", "memory"}
_SERVER = "paicluster"
_V1_HIERARCHIES = ("pids", "freezer", "systemd", "memory", "cpu")


@dataclass(frozen=True, slots=True)
class ProcessTreeControl:
    """How trees are held: ``root`` is the folder that gets one cgroup for each attempt."""

    mode: str
    root: Path | None = None

    def cgroup(self, uid: str) -> process_tree.Cgroup:
        return process_tree.Cgroup(self.mode, str(self.root / uid) if self.root else "")

    def as_spec(self, uid: str) -> dict[str, str]:
        return {"mode": self.mode, "path": str(self.root / uid) if self.root else ""}


PROC_ONLY = ProcessTreeControl(process_tree.PROC)


def choose(
    name: str,
    allowed: tuple[str, ...] = (process_tree.V2, process_tree.V1, process_tree.PROC),
    *,
    limiting: bool = False,
) -> ProcessTreeControl:
    """The best of the allowed ways that works here. ``name`` tells clusters on one machine apart.

    ``limiting``: if there is a way by which trees can be limited too, it is the best.
    """
    candidates = _candidates()
    if limiting:
        candidates = [*_limitable(candidates), *candidates]
    for mode, parent in candidates:
        if mode in allowed:
            hold = ProcessTreeControl(mode, parent / name)
            if is_usable(hold):
                return hold
    return PROC_ONLY


def _candidates() -> list[tuple[str, Path]]:
    own = own_cgroups()
    found: list[tuple[str, Path]] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount, kind = Path(left.split()[4]), right.split()[0]
        if kind == "cgroup2":
            found.append((process_tree.V2, mount / own.get("", "/").lstrip("/")))
        elif kind == "cgroup" and mount.name in _V1_HIERARCHIES:
            key = "name=systemd" if mount.name == "systemd" else mount.name
            found.append((process_tree.V1, mount / own.get(key, "/").lstrip("/")))
    # Those that do nothing else come first: the others may be wanted for limits.
    return sorted(found, key=lambda one: _order(*one))


def _limitable(candidates: list[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """Of v2, where groups that we make can be limited: our own, or the nearest above it that lets us."""
    for mode, own in candidates:
        if mode == process_tree.V2:
            found = own if can_limit(own) or (_move_to_leaf(own) and can_limit(own)) else None
            above = (parent for parent in own.parents if (parent / _CONTROL).exists())
            parent = found or next(filter(can_limit, above), None)
            if parent is not None:
                yield mode, parent


def can_limit(group: Path) -> bool:
    """Whether groups of v2 below this one have both controllers, or can be given them."""
    file = group / _CONTROL
    try:
        if not set(file.read_text().split()) >= _WANTED:
            file.write_text("+cpu +memory")
    except OSError:
        return False
    else:
        return True


def _move_to_leaf(own: Path) -> bool:
    """Into a group below our own: one with processes in it limits nobody. Only if nobody else is there."""
    if own.name == _SERVER:
        return False  # we have, for another engine: the group above is where it put its tasks
    try:
        has = set((own / "cgroup.controllers").read_text().split())
        if not has >= _WANTED or (own / "cgroup.procs").read_text().split() != [str(os.getpid())]:
            return False
        (own / _SERVER).mkdir(exist_ok=True)
        (own / _SERVER / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return False
    else:
        return True


def _order(mode: str, parent: Path) -> int:
    names = [name for name in _V1_HIERARCHIES if name in parent.parts]
    return (
        -1 if mode == process_tree.V2 else _V1_HIERARCHIES.index(names[0]) if names else len(_V1_HIERARCHIES)
    )


def own_cgroups() -> dict[str, str]:
    """Where this process is, by controller; with no name in the one hierarchy of v2."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    return own


def is_usable(control: ProcessTreeControl) -> bool:
    """Hold a real process for a moment: permissions, delegation and kernel are then known, not guessed."""
    group = control.cgroup(f"probe-{os.getpid()}")
    assert control.root is not None
    try:
        control.root.mkdir(exist_ok=True)
        group.create()
        if control.mode == process_tree.V2 and not os.access(f"{group.path}/cgroup.kill", os.W_OK):
            return False
        ready_r, ready_w = os.pipe()
        held_r, held_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(held_w)
                group.join()
                os.write(ready_w, b"1")
                # Until the server dies, should nobody kill us before: we have its lock on the home too.
                os.read(held_r, 1)
            finally:
                os._exit(1)
        os.close(ready_w)
        joined = os.read(ready_r, 1) == b"1"
        if joined:
            group.kill()
        else:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for fd in (ready_r, held_r, held_w):
            os.close(fd)
    except OSError:
        return False
    else:
        return joined
    finally:
        group.remove()
