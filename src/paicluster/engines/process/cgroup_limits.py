"""Detection, by trial, of the cgroups that can limit cores, memory and processes of tasks on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from paicluster.engines.process import cgroups
from pairuntime.supervisor import process_tree
from pairuntime.supervisor.limits import Limits

_PERIOD_US = 100_000
# For each controller, the file that limits it, and a value to test it with.
_LIMIT_FILES = {
    "cpu": ("cpu.cfs_quota_us", 1 << 30),
    "memory": ("memory.limit_in_bytes", 1 << 30),
    "pids": ("pids.max", 1 << 10),
}


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """Folders with one cgroup for each attempt; None where a resource cannot be limited.

    A folder may be ``shared`` with the cgroups of the process trees: a process can only be in one cgroup of a
    hierarchy.
    """

    mode: str
    cpu: Path | None = None
    memory: Path | None = None
    pids: Path | None = None
    shared: Path | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Resources that cannot be limited here."""
        return tuple(name for name, root in (("cores", self.cpu), ("memory", self.memory)) if root is None)

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders used for limits alone."""
        roots = (self.cpu, self.memory, self.pids)
        return tuple(root for root in roots if root is not None and root != self.shared)

    def groups(self, uid: str, cpu: int, memory_mb: int, processes: int = 0) -> list[dict[str, object]]:
        """Cgroups of an attempt, as a part of the supervisor's spec."""
        v2 = self.mode == process_tree.V2
        groups: list[dict[str, object]] = []
        if self.cpu is not None and cpu > 0:
            quota = cpu * _PERIOD_US
            limit = (
                [("cpu.max", f"{quota} {_PERIOD_US}")]
                if v2
                else [("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", str(quota))]
            )
            groups.append({"path": str(self.cpu / uid), "set": limit, "join": self.cpu != self.shared})
        if self.memory is not None and memory_mb > 0:
            size = str(memory_mb << 20)
            # No swap in addition: it would exceed the request, too.
            limit = (
                [("memory.max", size), ("memory.swap.max", "0")]
                if v2
                else [("memory.limit_in_bytes", size), ("memory.memsw.limit_in_bytes", size)]
            )
            groups.append({"path": str(self.memory / uid), "set": limit, "join": self.memory != self.shared})
        if self.pids is not None and processes > 0:
            limit = [("pids.max", str(processes))]
            groups.append({"path": str(self.pids / uid), "set": limit, "join": self.pids != self.shared})
        return groups

    def remove(self, uid: str) -> None:
        """Remove the cgroups of an attempt without processes."""
        Limits({"path": str(root / uid), "join": True} for root in self.roots).remove()


def choose(name: str, tree_control: cgroups.ProcessTreeControl) -> CgroupLimits:
    """The best limits that work here. ``name`` distinguishes clusters on one machine."""
    if tree_control.mode == process_tree.V2 and tree_control.root is not None:
        limits = _of_v2(tree_control.root)
        if limits is not None:
            return limits
    shared = tree_control.root if tree_control.mode == process_tree.V1 else None
    working: dict[str, Path] = {}
    for controller, parent in _v1_parents().items():
        root = shared if shared is not None and shared.parent == parent else parent / name
        if _can_limit(root, *_LIMIT_FILES[controller]):
            working[controller] = root
    return CgroupLimits(
        process_tree.V1, working.get("cpu"), working.get("memory"), working.get("pids"), shared
    )


def _of_v2(root: Path) -> CgroupLimits | None:
    """The cgroups of the process trees, if both controllers can be enabled there."""
    probe = root / f"probe-limits-{os.getpid()}"
    try:
        root.mkdir(exist_ok=True)
        if not (cgroups.can_limit(root.parent) and cgroups.can_limit(root)):
            return None
        probe.mkdir()
        (probe / "cpu.max").write_text(f"{_PERIOD_US} {_PERIOD_US}")
        (probe / "memory.max").write_text(str(1 << 30))
    except OSError:
        return None
    else:
        pids = root if cgroups.can_limit_processes(root) else None
        return CgroupLimits(process_tree.V2, root, root, pids, root)
    finally:
        if probe.exists():
            probe.rmdir()


def _v1_parents() -> dict[str, Path]:
    """The server's cgroup in each hierarchy of v1, by controller."""
    own = cgroups.own_cgroups()
    parents = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        root, mount = left.split()[3:5]
        kind, _, options = right.split()[:3]
        if kind == "cgroup":
            for controller in _LIMIT_FILES.keys() & set(options.split(",")):
                below = own.get(controller, "/")
                # A mount may show only a part of the hierarchy, as in a container, where it begins at our
                # cgroup.
                below = below.removeprefix(root) if root != "/" else below
                path = Path(mount) / below.lstrip("/")
                parents[controller] = path if path.is_dir() else Path(mount)
    return parents


def _can_limit(root: Path, file: str, value: int) -> bool:
    """Whether a cgroup can be created there, joined, and limited."""
    probe = root / f"probe-limits-{os.getpid()}"
    try:
        root.mkdir(exist_ok=True)
        probe.mkdir()
        (probe / file).write_text(str(value))
    except OSError:
        return False
    finally:
        if probe.exists():
            probe.rmdir()
    return cgroups.is_usable(cgroups.ProcessTreeControl(process_tree.V1, root))
