"""Future of a call that several tasks make together."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from openpaisdk.functions.job_future import JobFuture, JobFutures
from openpaisdk.functions.job_paths import JobPaths
from openpaisdk.functions.task_errors import first_cause

if TYPE_CHECKING:
    from openpaisdk.functions.function_cluster import FunctionCluster


class GangFuture(JobFuture):
    """The future of a call that several tasks make together: it fails if any of them does.

    It has ended when all tasks have; its result is that of the first task.
    """

    def __init__(self, cluster: FunctionCluster):
        super().__init__(cluster)
        self.members = JobFutures()

    def attach_tasks(self, job: str, results: str, tasks: int) -> JobFutures:
        """Set the job of the call; returns the futures of its tasks, which complete this one."""
        super().attach(job, results, 0, tasks)
        self.members = JobFutures(JobFuture(self.cluster) for _ in range(tasks))
        for index, member in enumerate(self.members):
            member.attach(job, results, index, tasks)
            member.gang = self
            member.log_folder, member.joins_streams = self.log_folder, self.joins_streams
        for member in self.members:
            member.add_done_callback(self._complete)
        return self.members

    @property
    def all_tasks(self) -> Sequence[JobFuture]:
        return self.members

    @property
    def job_id(self) -> str:
        return self.job

    @property
    def state(self) -> str:
        """The state of the job: SUCCEEDED if all tasks have."""
        return "FAILED" if self._never_starts() else self.cluster.client.job(self.job).state

    @property
    def paths(self) -> JobPaths:
        return self.members[0].paths

    def logs(self, follow: bool = False) -> Iterator[str]:
        if follow:
            return self.cluster.follow_tasks(self.job, len(self.members))
        return iter(self._log("all").splitlines(keepends=True))

    def log_end(self, lines: int = 15) -> str:
        return "".join(self._log("all").splitlines(keepends=True)[-lines:])

    def _log(self, stream: str) -> str:
        texts = [task._log(stream) for task in self.members]
        return "".join(text if text.endswith("\n") or not text else f"{text}\n" for text in texts)

    def _is_item(self) -> bool:
        return False

    def cancel(self, check: bool = True) -> bool:
        """Stop the job with all its tasks."""
        return self.members.cancel() if self.is_submitted else self.set_cancelled()

    def _complete(self, _: concurrent.futures.Future[Any]) -> None:
        """Complete this future once all tasks have ended."""
        if not all(task.done() for task in self.members):
            return
        ended = [task for task in self.members if not task.cancelled()]
        errors = [error for task in ended if (error := task.exception()) is not None]
        try:
            if errors:
                self.set_running()
                self.set_exception(first_cause(errors))
            elif len(ended) < len(self.members):
                self.set_stopped()
            else:
                self.set_running()
                self.set_result(self.members[0].result())
        except concurrent.futures.InvalidStateError:
            pass  # the last two tasks ended at the same time
