"""Detection, by trial, of the best mechanism of this machine to control a process tree."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pairuntime.supervisor import process_tree

_CONTROL = "cgroup.subtree_control"
_CONTROLLERS = {"cpu", "memory"}
_SERVER = "paicluster"
_JOIN_AND_WAIT = 'echo 0 > "$1" && echo joined && read -r line'
_V1_HIERARCHIES = ("pids", "freezer", "systemd", "memory", "cpu")


@dataclass(frozen=True, slots=True)
class ProcessTreeControl:
    """Mechanism for process trees: ``root`` is the folder with one cgroup for each attempt."""

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
    """The best allowed mechanism that works here. ``name`` distinguishes clusters on one machine.

    ``limiting``: prefer one in which trees can be limited, too.
    """
    candidates = _candidates()
    if limiting:
        candidates = [*_limitable(candidates), *candidates]
    for mode, parent in candidates:
        if mode in allowed:
            control = ProcessTreeControl(mode, parent / name)
            if is_usable(control):
                return control
    return PROC_ONLY


def _candidates() -> list[tuple[str, Path]]:
    own = own_cgroups()
    candidates: list[tuple[str, Path]] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount, kind = Path(left.split()[4]), right.split()[0]
        if kind == "cgroup2":
            candidates.append((process_tree.V2, mount / own.get("", "/").lstrip("/")))
        elif kind == "cgroup" and mount.name in _V1_HIERARCHIES:
            key = "name=systemd" if mount.name == "systemd" else mount.name
            candidates.append((process_tree.V1, mount / own.get(key, "/").lstrip("/")))
    # Hierarchies without a resource controller come first: the others may be needed for limits.
    return sorted(candidates, key=lambda candidate: _order(*candidate))


def _limitable(candidates: list[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """cgroups of v2 whose children can be limited: the server's own, or the nearest parent that allows it."""
    for mode, own in candidates:
        if mode == process_tree.V2:
            limitable = own if can_limit(own) or (_move_to_leaf(own) and can_limit(own)) else None
            above = (parent for parent in own.parents if (parent / _CONTROL).exists())
            parent = limitable or next(filter(can_limit, above), None)
            if parent is not None:
                yield mode, parent


def can_limit(group: Path) -> bool:
    """Whether both controllers are enabled for the children of a v2 cgroup, or can be enabled."""
    file = group / _CONTROL
    try:
        if not set(file.read_text().split()) >= _CONTROLLERS:
            file.write_text("+cpu +memory")
    except OSError:
        return False
    else:
        return True


def can_limit_processes(group: Path) -> bool:
    """Whether the number of processes can be limited for the children of a v2 cgroup that `can_limit`."""
    for each in (group.parent, group):
        file = each / _CONTROL
        try:
            if "pids" not in file.read_text().split():
                file.write_text("+pids")
        except OSError:
            return False
    return True


def _move_to_leaf(own: Path) -> bool:
    """Move the server into a child cgroup: v2 enables controllers only below cgroups without processes.

    Only if no other process is in the cgroup.
    """
    if own.name == _SERVER:
        return False  # done already, for another engine: its tasks are in the parent
    try:
        available = set((own / "cgroup.controllers").read_text().split())
        if not available >= _CONTROLLERS or (own / "cgroup.procs").read_text().split() != [str(os.getpid())]:
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
    """Cgroups of this process by controller; the key of the v2 hierarchy is empty."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    return own


def is_usable(control: ProcessTreeControl) -> bool:
    """Test with a real process: permissions, delegation and kernel are then known, not guessed."""
    group = control.cgroup(f"probe-{os.getpid()}")
    assert control.root is not None
    try:
        control.root.mkdir(exist_ok=True)
        group.create()
        if control.mode == process_tree.V2 and not os.access(f"{group.path}/cgroup.kill", os.W_OK):
            return False
        # Not a fork of the server, which has threads. Its input ends with the server at the latest.
        command = ["/bin/sh", "-c", _JOIN_AND_WAIT, "sh", f"{group.path}/cgroup.procs"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            joined = process.stdout.readline() == b"joined\n"
            if joined:
                group.kill()
            else:
                process.kill()
    except OSError:
        return False
    else:
        return joined
    finally:
        group.remove()


def remove_empty(root: Path) -> None:
    """Remove cgroups without processes; the kernel refuses the others."""
    for path in root.iterdir():
        if path.is_dir():
            try:
                path.rmdir()
            except OSError:
                pass
