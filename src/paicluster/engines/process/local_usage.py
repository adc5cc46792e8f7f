"""Usage of this machine and of the tasks on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from paicluster.engines.common import attempt_folder
from paicluster.engines.process.cgroup_limits import CgroupLimits
from paicluster.engines.process.task_processes import TaskProcesses
from paicluster.metrics.usage import GpuReading, NodeReading, UsageCounters, UsageReading
from pairuntime.supervisor import claim, process_tree
from pairuntime.supervisor.claim import read_file
from pairuntime.supervisor.gpu_driver import GpuDriver

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class LocalUsage:
    """Reads usage, always by one thread at a time.

    ``tasks``: the folder with all attempt folders. ``is_container(folder)``: whether a task has a container.
    """

    def __init__(
        self, node: str, tasks: Path, limits: CgroupLimits | None, is_container: Callable[[Path], bool]
    ) -> None:
        self._node = node
        self._tasks = tasks
        self._limits = limits
        self._is_container = is_container
        self._processes = TaskProcesses()
        # Pids of supervisors, and whether their tasks are in containers.
        self._supervisors: dict[str, tuple[int, bool]] = {}
        # Opened by the first reading; None: there is no driver.
        self._gpus: GpuDriver | None = None
        self._is_open = False

    def read(self, uids: Sequence[str]) -> UsageReading:
        started_s = time.thread_time()
        self._supervisors = {
            uid: supervisor for uid in uids if (supervisor := self._supervisor_of(uid)) is not None
        }
        tasks = self._processes.sample(
            {uid: pid for uid, (pid, _) in self._supervisors.items()},
            {uid for uid, (_, is_container) in self._supervisors.items() if is_container},
        )
        if self._limits is not None:
            tasks = {uid: self._with_memory_of_cgroup(uid, counters) for uid, counters in tasks.items()}
        node = NodeReading(_read_node(), self._read_gpus())
        return UsageReading(tasks, {self._node: node}, time.thread_time() - started_s)

    def _supervisor_of(self, uid: str) -> tuple[int, bool] | None:
        known = self._supervisors.get(uid)
        if known is None:
            folder = attempt_folder.path_of(self._tasks, uid)
            owner = attempt_folder.owner_of(folder) or {}
            pid = owner.get("pid")
            if not isinstance(pid, int) or owner.get("boot_id") != claim.boot_id():
                return None
            known = pid, self._is_container(folder)
        return known

    def _with_memory_of_cgroup(self, uid: str, counters: UsageCounters) -> UsageCounters:
        """The kernel's own count where the task has a limit: what the limit is compared with, less cache."""
        assert self._limits is not None
        if self._limits.memory is None or self._supervisors[uid][1]:
            return counters
        is_v2 = self._limits.mode == process_tree.V2
        folder = self._limits.memory / uid
        try:
            total = int(read_file(f"{folder}/{'memory.current' if is_v2 else 'memory.usage_in_bytes'}"))
            cache = _field_of(
                read_file(f"{folder}/memory.stat"), "inactive_file" if is_v2 else "total_inactive_file"
            )
        except (OSError, ValueError):
            return counters
        return UsageCounters(
            counters.cpu_s, max(0, total - cache), counters.read_bytes, counters.written_bytes
        )

    def _read_gpus(self) -> dict[int, GpuReading]:
        if not self._is_open:
            self._is_open = True
            self._gpus = GpuDriver.open()
        if self._gpus is None:
            return {}
        readings = ((index, self._gpus.read(index)) for index in range(self._gpus.count() or 0))
        return {index: GpuReading(*reading) for index, reading in readings if reading is not None}


def _read_node() -> UsageCounters:
    """The machine as a whole, not only its tasks."""
    times = [int(field) for field in read_file("/proc/stat").split(b"\n", 1)[0].split()[1:9]]
    # Without idle and waiting for storage; what guests use is contained in the others.
    busy = sum(times) - times[3] - times[4]
    memory = read_file("/proc/meminfo")
    used_kb = _field_of(memory, "MemTotal:") - _field_of(memory, "MemAvailable:")
    paging = read_file("/proc/vmstat")
    return UsageCounters(
        busy / _TICKS_PER_S,
        used_kb << 10,
        _field_of(paging, "pgpgin") << 10,
        _field_of(paging, "pgpgout") << 10,
    )


def _field_of(lines: bytes, name: str) -> int:
    """Number of a line ``name number``; 0 without one."""
    start = (b"\n" + lines).find(b"\n" + name.encode() + b" ")
    return int(lines[start:].split(None, 2)[1]) if start >= 0 else 0
