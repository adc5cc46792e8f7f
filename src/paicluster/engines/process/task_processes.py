"""Usage of the running tasks of this machine, from one look at the process table.

A process belongs to an attempt if it is its supervisor or descends from one of its processes; the supervisor
adopts orphans, so descent finds every process on the host. Those of a container do not descend from the
supervisor: the first of them is found by the marker in its environment, which the engine gave it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from paicluster.engines.common.attempt_folder import environment_marker
from paicluster.metrics.usage import UsageCounters
from pairuntime.supervisor import process_usage
from pairuntime.supervisor.claim import read_file

# Processes that belong to no task are looked at again after so many samples, and in the first samples after a
# task has started: a container's process has its environment only after some moments.
_RESCAN_SAMPLES = 12
_SCANS_AFTER_START = 3
_MARKER = environment_marker("").encode()
NO_TASK = ""


@dataclass(slots=True)
class _Process:
    parent: int
    start_time: int
    cpu_s: float
    attempt: str | None = None


class TaskProcesses:
    """Processes of tasks, remembered from sample to sample."""

    def __init__(self) -> None:
        self._known: dict[int, _Process] = {}
        self._attempts: set[str] = set()
        self._scans_due = 0
        self._samples = 0

    def sample(self, supervisors: Mapping[str, int], marked: Collection[str]) -> dict[str, UsageCounters]:
        """Usage by attempt. ``supervisors``: pids by attempt; ``marked``: attempts in containers."""
        current = set(supervisors)
        if current - self._attempts:
            self._scans_due = _SCANS_AFTER_START
        self._attempts = current
        self._samples += 1
        is_scan = self._scans_due > 0 or self._samples % _RESCAN_SAMPLES == 0
        self._scans_due = max(0, self._scans_due - 1)
        if not supervisors:
            self._known = {}
            return {}
        self._known = self._read_table(is_scan)
        for uid, pid in supervisors.items():
            if pid in self._known:
                self._known[pid].attempt = uid
        members: dict[str, list[tuple[int, float]]] = {}
        for pid in self._known:
            attempt = self._attempt_of(pid, marked if is_scan else ())
            if attempt in current:
                members.setdefault(attempt, []).append((pid, self._known[pid].cpu_s))
        return {uid: UsageCounters(*process_usage.sum_usage(processes)) for uid, processes in members.items()}

    def _read_table(self, is_scan: bool) -> dict[int, _Process]:
        table: dict[int, _Process] = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            pid = int(name)
            known = self._known.get(pid)
            if known is not None and known.attempt == NO_TASK and not is_scan:
                table[pid] = known
                continue
            stat = process_usage.read_stat(pid)
            if stat is None:
                continue
            process = table[pid] = _Process(*stat)
            if known is not None and known.start_time == process.start_time and known.attempt != NO_TASK:
                process.attempt = known.attempt
        return table

    def _attempt_of(self, pid: int, marked: Collection[str]) -> str:
        """Attempt of a process: that of its nearest known ancestor, else that of a marker.

        Descent comes first: a task can give its processes any marker.
        """
        chain: list[int] = []
        attempt = NO_TASK
        while (process := self._known.get(pid)) is not None and pid not in chain:
            if process.attempt is not None:
                attempt = process.attempt
                break
            chain.append(pid)
            pid = process.parent
        for descendant in reversed(chain):
            if attempt == NO_TASK and marked and (marker := _read_marker(descendant)) in marked:
                attempt = marker
            self._known[descendant].attempt = attempt
        return attempt


def _read_marker(pid: int) -> str:
    try:
        variables = read_file(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return NO_TASK
    marker = next((variable for variable in variables if variable.startswith(_MARKER)), _MARKER)
    return marker[len(_MARKER) :].decode(errors="replace")
