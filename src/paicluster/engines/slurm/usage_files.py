"""Usage of tasks on Slurm's nodes, from the files in which their supervisors report it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from paicluster.engines.common import untrusted_files
from paicluster.engines.slurm.gang_folder import SlurmFolders
from paicluster.metrics.usage import UsageCounters, UsageReading
from pairuntime.reports import usage_file
from pairuntime.supervisor import exit_record

# Time for one reading: on a shared file system each file may take milliseconds. The next reading continues
# with the tasks that were left out.
_READ_TIMEOUT_S = 1.0
# A task that has not reported for so long is suspended, or its node is out of reach.
_MAX_AGE_S = 60.0


class _Report(NamedTuple):
    counters: UsageCounters
    seen_s: float


class UsageFiles:
    """Reads usage files, always by one thread at a time."""

    def __init__(
        self, home: SlurmFolders, *, max_age_s: float = _MAX_AGE_S, read_timeout_s: float = _READ_TIMEOUT_S
    ) -> None:
        self._home = home
        self._max_age_s = max_age_s
        self._read_timeout_s = read_timeout_s
        self._reports: dict[str, _Report] = {}
        # Tasks that the last reading had no time for.
        self._left_out: list[str] = []

    def read(self, uids: Sequence[str]) -> UsageReading:
        started_s = time.thread_time()
        now_s = time.monotonic()
        wanted = set(uids)
        first = [uid for uid in self._left_out if uid in wanted]
        queue = [*first, *wanted.difference(first)]
        self._left_out = []
        for at, uid in enumerate(queue):
            # Each reading gets further, however slow the files are.
            if at and time.monotonic() - now_s > self._read_timeout_s:
                self._left_out = queue[at:]
                break
            self._read_one(uid, now_s)
        # Old reports stay: the same counters, read again, are no news.
        self._reports = {uid: report for uid, report in self._reports.items() if uid in wanted}
        counters = {
            uid: report.counters
            for uid, report in self._reports.items()
            if now_s - report.seen_s <= self._max_age_s
        }
        return UsageReading(counters, cost_s=time.thread_time() - started_s)

    def _read_one(self, uid: str, now_s: float) -> None:
        folder = self._home.task(uid)
        counters = None if _has_ended(folder) else untrusted_files.read_usage(folder / usage_file.NAME)
        before = self._reports.get(uid)
        if counters is None:
            self._reports.pop(uid, None)
        elif before is None or before.counters != counters:
            self._reports[uid] = _Report(counters, now_s)


def _has_ended(folder: Path) -> bool:
    return os.path.lexists(folder / exit_record.NAME)
