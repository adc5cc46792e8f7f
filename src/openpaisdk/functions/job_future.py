"""Future of a call that runs as a task of a job."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from openpaisdk.errors import NotFound, UsageError
from openpaisdk.functions.call_pickle import ResultReference
from openpaisdk.functions.task_errors import JobStopped
from pairuntime.task import call_format

if TYPE_CHECKING:
    from openpaisdk.functions.function_cluster import FunctionCluster
    from openpaisdk.functions.shared_tasks import SharedTasks

T = TypeVar("T")


class HasLog(Protocol):
    """A call whose output can be read."""

    @property
    def job_id(self) -> str: ...

    def stdout(self) -> str: ...

    def stderr(self) -> str: ...


class JobPaths:
    """Files of a call: its log, in the folder of its executor, and its result on the cluster's storage."""

    def __init__(self, call: HasLog, log_folder: str, result: PurePosixPath | None = None):
        """``result``: on the cluster's storage; without one it would be beside the log."""
        self._call = call
        # submitit has the name of the job for this in a folder.
        self._log_folder = log_folder and log_folder.replace("%j", call.job_id)
        self.result_pickle: PurePath = result or Path(self._log_folder, f"{call.job_id}_0_result.pkl")
        self.folder = self.result_pickle.parent

    @property
    def stdout(self) -> Path:
        """The standard output until now: a file, which is written each time this is asked for."""
        return self._write_log("out", self._call.stdout)

    @property
    def stderr(self) -> Path:
        """As `stdout`, of the standard error."""
        return self._write_log("err", self._call.stderr)

    def _write_log(self, ending: str, read: Callable[[], str]) -> Path:
        if not self._log_folder:
            raise UsageError(
                "This call has no folder for its log.",
                hint="Give the executor one, as AutoExecutor(folder=...), or use job.stdout().",
            )
        file = Path(self._log_folder, f"{self._call.job_id}_0_log.{ending}")
        try:
            text = read()
        except NotFound:
            if file.exists():
                return file  # the cluster has deleted the log, which was read before
            raise
        file.parent.mkdir(parents=True, exist_ok=True)
        # A program may read the file, and the disk may be full.
        partial = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            partial.write_text(text, "utf-8")
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)
        return file


class JobFuture(concurrent.futures.Future[Any], ResultReference):
    """A ``concurrent.futures.Future`` of one call; ``await`` works, too.

    Passed as an argument to another call, it makes that call wait for
    this one on the cluster, and the result goes from task to task.
    """

    def __init__(self, cluster: FunctionCluster):
        super().__init__()
        self.cluster = cluster
        self._job = ""
        self._results = ""
        self.index = 0
        self.tasks = 1
        self.gang: JobFutures | None = None
        """The futures of all tasks, where each of them makes the same call."""
        self.array: JobFutures | None = None
        """The futures of all calls of the array that this one belongs to."""
        self._is_cancelling = False
        self.shared: SharedTasks | None = None
        """Where the calls of the job share its tasks."""
        self.log_folder = ""
        """The folder of the executor, where ``paths.stdout`` is written."""
        self.pending_reason = ""
        """Why the job has not started, as far as the cluster has said."""

    def attach(
        self, job: str, results: str, index: int = 0, tasks: int = 1, shared: SharedTasks | None = None
    ) -> JobFuture:
        """Set the job of the call: the folder of its results, its index among that many calls."""
        self._job = job
        self._results = results
        self.index = index
        self.tasks = tasks
        self.shared = shared
        return self

    @property
    def job(self) -> str:
        """The name of the job."""
        if not self._job:
            raise UsageError("This call is in a batch: it is submitted when the batch ends.")
        return self._job

    @property
    def is_submitted(self) -> bool:
        """False for a call in a batch that has not ended."""
        return bool(self._job)

    # --- what submitit's jobs have ---

    @property
    def job_id(self) -> str:
        """The name of the job; in an array with the index of the task: ``sweep_ab12_3``."""
        return self.job if self.tasks == 1 else f"{self.job}_{self.index}"

    @property
    def state(self) -> str:
        """The state of the call: WAITING, RUNNING, SUCCEEDED, FAILED, STOPPED."""
        if self.shared is not None:
            return self.shared.state_of(self.index)
        if self.has_cancelled_claim():
            return "STOPPED"
        status = self.cluster.client.job(self.job)
        return next((task.state for task in status.tasks if task.index == self.index), status.state)

    @property
    def paths(self) -> JobPaths:
        return JobPaths(self, self.log_folder, PurePosixPath(self.result_path()))

    def done(self, force_check: bool = False) -> bool:
        """Whether the call has ended. ``force_check`` is submitit's, without effect."""
        return super().done()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the call has ended, however it ended."""
        concurrent.futures.wait([self], timeout)

    def results(self, timeout: float | None = None) -> list[Any]:
        """The results of all tasks of the call; with ``instances`` it has more than one."""
        return self.gang.results(timeout) if self.gang else [self.result(timeout)]

    def task(self, index: int) -> JobFuture:
        """The future of one of the tasks of the call."""
        return (self.gang or [self])[index]

    @property
    def num_tasks(self) -> int:
        return len(self.gang) if self.gang else 1

    def awaitable(self) -> AwaitableJob:
        """The same methods, for ``await``."""
        return AwaitableJob(self)

    def stdout(self) -> str:
        return self._log("stdout")

    def stderr(self) -> str:
        return self._log("stderr")

    # --- logs ---

    def logs(self, follow: bool = False) -> Iterator[str]:
        """The lines that the function printed; with ``follow`` also those to come, until it ends."""
        if follow and self.shared is not None:
            return self.shared.follow(self.index)
        if follow:
            return self.cluster.follow(self.job, self.index)
        return iter(self._log("all").splitlines(keepends=True))

    def log_end(self, lines: int = 15) -> str:
        """The last lines that the function printed."""
        if self.shared is not None:
            return "".join(self._log("all").splitlines(keepends=True)[-lines:])
        return self.cluster.log_end(self.job, self.index, lines)

    def _log(self, stream: str) -> str:
        if self.shared is not None:
            return self.shared.log(self.index, stream)
        return self.cluster.log(self.job, self.index, stream)

    # --- the result ---

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned; its exception is raised. After ``timeout`` seconds, a TimeoutError."""
        try:
            return super().result(timeout)
        except TimeoutError:
            if self.done():  # the function's own, or the call ended at this moment
                return super().result()
            raise self._time_out(timeout) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception of the function; None if it returned."""
        try:
            return super().exception(timeout)
        except TimeoutError:
            if self.done():  # the call ended at this moment
                return super().exception()
            raise self._time_out(timeout) from None

    def _time_out(self, timeout: float | None) -> TimeoutError:
        if not self.is_submitted:
            return TimeoutError("The call is in a batch: it is submitted when the batch ends.")
        return TimeoutError(f"{self.job_id} has not ended after {timeout:g} s, and goes on. {self.progress}")

    @property
    def progress(self) -> str:
        """A sentence about a call that has not ended: whether it runs, or why it does not."""
        return "It runs." if self.running() else f"It waits to start. {self.pending_reason}".strip()

    def result_folder(self) -> str:
        if self.shared is not None:
            return call_format.results_folder(self._results)
        folder = self._results if self.job else ""
        return folder if self.tasks == 1 else f"{folder}/main-{self.index}"

    def result_path(self) -> str:
        if self.shared is not None:
            return call_format.shared_result(self._results, self.index)
        return f"{self.result_folder()}/result.pickle"

    # --- control ---

    def cancel(self, check: bool = True) -> bool:
        """Stop the job of the call, also if it runs. False if the call has ended.

        Of the calls of an array, only one that has not begun can be cancelled; the others are kept.
        ``JobFutures.cancel`` stops all of them. ``check`` is submitit's, without effect.
        """
        if self.done() or not self.is_submitted:
            return self.set_cancelled()
        if self.gang:
            return self.gang.cancel()
        if self.tasks > 1:
            return self._cancel_item()
        self.cluster.client.stop(self.job)
        return self.set_stopped()

    def _cancel_item(self) -> bool:
        """Claim the call, so that no task runs it; False if a task has claimed it."""
        # The claim looks like a start to the thread that waits for the calls.
        self._is_cancelling = True
        try:
            if not self.cluster.files.create(self._claim_path(), call_format.CANCELLED_CLAIM):
                return False
            self.set_cancelled()
        finally:
            self._is_cancelling = False
        # For other programs, and for calls that have the result as an argument.
        self.cluster.write(self.result_path(), b"".join(call_format.pack_result(call_format.CANCELLED, b"")))
        if self.array and all(future.cancelled() for future in self.array):
            self.cluster.client.stop(self.job)  # it may wait for resources that no call needs
        return True

    def has_cancelled_claim(self) -> bool:
        """Whether a program has cancelled the call, and maybe ended before it could tell others."""
        return self.tasks > 1 and self.cluster.read(self._claim_path()) == call_format.CANCELLED_CLAIM

    def _claim_path(self) -> str:
        return call_format.claim_path(self._results, self.index)

    # --- states of concurrent.futures.Future ---

    def set_running(self) -> None:
        """Mark as running, unless it ended or was cancelled."""
        with self._condition:
            if not self._is_cancelling and not self.running() and not self.done():
                self.set_running_or_notify_cancel()

    def set_cancelled(self) -> bool:
        """Mark as cancelled; False if it runs or has ended otherwise."""
        with self._condition:
            if not self.done() and super().cancel():
                self.set_running_or_notify_cancel()
            return self.cancelled()

    def set_stopped(self) -> bool:
        """Mark as cancelled; a call that runs already ends with ``JobStopped``."""
        if not self.set_cancelled():
            try:
                self.set_exception(JobStopped(f"The job {self.job} was stopped on request.", job=self.job))
            except concurrent.futures.InvalidStateError:
                return False
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        return f"<JobFuture {self.job_id if self._job else 'in a batch'}: {self._state.lower()}>"

    def _repr_html_(self) -> str:
        from openpaisdk.functions.future_views import html_of_call

        return html_of_call(self)

    def _ipython_display_(self) -> None:
        from openpaisdk.functions.future_views import show_call

        show_call(self)


class AwaitableJob:
    """``JobFuture`` with awaitable methods. ``poll_interval`` is submitit's, without effect."""

    def __init__(self, future: Any):
        self._future = future

    async def result(self, poll_interval: float = 1) -> Any:
        return await asyncio.wrap_future(self._future)

    async def results(self, poll_interval: float = 1) -> list[Any]:
        return [await asyncio.wrap_future(future) for future in self._future.gang or [self._future]]

    async def wait(self, poll_interval: float = 1) -> None:
        await asyncio.wait([asyncio.wrap_future(self._future)])


class JobFutures(list[JobFuture]):
    """The futures of all calls of one job, in the order of the items."""

    def __reduce__(self) -> tuple[type, tuple[list[JobFuture]]]:
        """As an argument of another call it is a list of results: the task need not have this class."""
        return list, (list(self),)

    @property
    def job(self) -> str:
        return self[0].job if self else ""

    def results(self, timeout: float | None = None) -> list[Any]:
        """The results of all calls; as soon as one has failed, its exception is raised."""
        ended, pending = concurrent.futures.wait(
            self, timeout, return_when=concurrent.futures.FIRST_EXCEPTION
        )
        for future in self:
            if future in ended and not future.cancelled() and future.exception() is not None:
                future.result()
        if pending:
            waiting = [future for future in self if not (future.running() or future.done())]
            reason = next((future.pending_reason for future in waiting if future.pending_reason), "")
            raise TimeoutError(
                f"{len(pending)} of {len(self)} calls have not ended after {timeout:g} s"
                + (f", and {len(waiting)} wait to start. {reason}".rstrip() if waiting else ".")
            )
        return [future.result() for future in self]

    def cancel(self) -> bool:
        """Stop the job with all its calls."""
        pending = [future for future in self if not future.done()]
        if not pending:
            return False
        pending[0].cluster.client.stop(self.job)
        stopped = [future.set_stopped() for future in pending]
        return all(stopped)

    def __repr__(self) -> str:
        from openpaisdk.functions.future_views import count_states

        counts = ", ".join(f"{count} {state}" for state, count in count_states(self).items() if count)
        return f"<JobFutures {self.job}: {counts}>" if self and self[0].is_submitted else super().__repr__()

    def _repr_html_(self) -> str:
        from openpaisdk.functions.future_views import html_of_calls

        return html_of_calls(self)

    def _ipython_display_(self) -> None:
        from openpaisdk.functions.future_views import show_calls

        show_calls(self)


def as_completed(futures: Iterable[JobFuture], timeout: float | None = None) -> Iterator[JobFuture]:
    """The futures in the order in which they end."""
    return iter(concurrent.futures.as_completed(futures, timeout))  # type: ignore[arg-type]
