"""Calls that share the tasks of their array: which have started and ended, and their parts of the logs.

The tasks claim calls and write results as files on the storage (``pairuntime.task.shared_calls``).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from openpaisdk.client.models import FINAL_STATES
from pairuntime.transport import call_format

if TYPE_CHECKING:
    from openpaisdk.functions.function_cluster import FunctionCluster

CALLS_FOR_EACH_TASK = 4
"""Calls share tasks if there are at least this many times as many as may run at a time. With fewer of them a
task of its own for each costs little, and is what users see in lists of jobs."""
_CLAIM_INTERVAL_S = 0.2
_MARK = re.compile(r"\n--- (?:call (\d+)|no more calls) ---\n")


def number_of_tasks(calls: int, limit: int) -> int:
    """Tasks of an array with that many calls, of which ``limit`` run at a time; 0 for all."""
    return limit if 0 < limit * CALLS_FOR_EACH_TASK <= calls else calls


class SharedTasks:
    """The calls of one job whose tasks share them."""

    def __init__(self, cluster: FunctionCluster, job: str, folder: str):
        self._cluster = cluster
        self._job = job
        self._folder = folder

    def started(self) -> set[int]:
        return self._indexes(call_format.claims_folder(self._folder))

    def ended(self) -> set[int]:
        """Calls that have a result."""
        return self._indexes(call_format.results_folder(self._folder))

    def task_of(self, index: int) -> int | None:
        """Index of the task that runs a call; None if the call has not started."""
        claim = self._cluster.read(call_format.claim_path(self._folder, index))
        return int(claim) if claim and claim.isdigit() else None

    def state_of(self, index: int) -> str:
        result = self._cluster.read(call_format.shared_result(self._folder, index))
        if result is not None:
            status = call_format.read_result(result)[0]["status"]
            return {call_format.DONE: "SUCCEEDED", call_format.CANCELLED: "STOPPED"}.get(status, "FAILED")
        job = self._cluster.client.job(self._job)
        if job.state in FINAL_STATES:
            return "STOPPED" if job.state == "STOPPED" else "FAILED"
        return "RUNNING" if self.task_of(index) is not None else "WAITING"

    def log(self, index: int, stream: str) -> str:
        """What a call wrote."""
        task = self.task_of(index)
        return "" if task is None else part_of_log(self._cluster.log(self._job, task, stream), index)

    def follow(self, index: int) -> Iterator[str]:
        """The lines of a call as it writes them, until it ends."""
        task = self._wait_for_start(index)
        if task is None:
            return
        yield from lines_of_call(self._cluster.follow(self._job, task), index)

    def _wait_for_start(self, index: int) -> int | None:
        while (task := self.task_of(index)) is None:
            if self._cluster.client.job(self._job).state in FINAL_STATES:
                return self.task_of(index)
            time.sleep(_CLAIM_INTERVAL_S)
        return task

    def _indexes(self, folder: str) -> set[int]:
        names = (name.partition(".")[0] for name in self._cluster.names(folder))
        return {int(name) for name in names if name.isdigit()}


def part_of_log(text: str, index: int) -> str:
    """The part of a task's log that one of its calls wrote; of several attempts, all."""
    parts = _MARK.split(text)
    return "".join(part for mark, part in zip(parts[1::2], parts[2::2], strict=True) if mark == str(index))


def lines_of_call(lines: Iterable[str], index: int) -> Iterator[str]:
    """The lines of a task's log that one of its calls wrote, as they come; ends with the next call."""
    is_own = has_begun = is_blank_held = False
    for line in lines:
        mark = _MARK.fullmatch("\n" + line)
        if mark is not None:
            # The line break before a mark belongs to the mark.
            is_blank_held = False
            is_own = mark[1] == str(index)
            if has_begun and not is_own:
                return
            has_begun = has_begun or is_own
        elif is_own:
            if is_blank_held:
                yield "\n"
            is_blank_held = line == "\n"
            if not is_blank_held:
                yield line
    if is_blank_held:
        yield "\n"
