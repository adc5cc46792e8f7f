"""Future of a call that runs as a task of a job."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar

from openpaisdk.functions.awaitable_job import AwaitableJob
from openpaisdk.functions.call_pickle import ResultReference
from openpaisdk.functions.job_paths import JobPaths
from openpaisdk.functions.task_errors import JobNeverStarts, JobStopped
from openpaisdk.functions.usage_errors import CallUsageError, NotSubmitted, WrongParameter
from pairuntime.transport import call_format

if TYPE_CHECKING:
    import os

    from openpaisdk.connect import ClusterConnection
    from openpaisdk.functions.function_cluster import FunctionCluster
    from openpaisdk.functions.shared_tasks import SharedTasks
    from pairuntime.task.delayed_call import DelayedSubmission


class _JobType(type):
    """Metaclass of jobs: a call of the base class opens a job that was submitted earlier."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is AnyJob:
            return AnyJob._open(*args, **kwargs)
        return super().__call__(*args, **kwargs)


class AnyJob(metaclass=_JobType):
    """``submitit.Job``: what executors return. ``Job(folder, job_id)`` opens an earlier one."""

    _open: ClassVar[Callable[..., JobFuture]]
    """Opens an earlier one. Set by ``function_job``, which makes futures of jobs."""

    @classmethod
    def __class_getitem__(cls, item: Any) -> GenericAlias:
        """``Job[int]`` in annotations."""
        return GenericAlias(cls, item)

    if TYPE_CHECKING:

        def __init__(
            self,
            folder: str | os.PathLike[str],
            job_id: str,
            tasks: Sequence[int] = (),
            *,
            cluster: ClusterConnection | str | None = None,
        ): ...


class JobFuture(concurrent.futures.Future[Any], ResultReference, AnyJob):
    """A ``concurrent.futures.Future`` of one call; ``await`` works, too.

    Passed as an argument to another call, it makes that call wait for
    this one on the cluster, and the result goes from task to task.
    """

    def __init__(self, cluster: FunctionCluster):
        concurrent.futures.Future.__init__(self)
        self.cluster = cluster
        self._job = ""
        self._results = ""
        self.index = 0
        self.tasks = 1
        self.gang: JobFuture | None = None
        """The future of the call, where this is one of several tasks that make it together."""
        self.array: JobFutures | None = None
        """The futures of all calls of the array that this one belongs to."""
        self._is_cancelling = False
        self.shared: SharedTasks | None = None
        """Where the calls of the job share its tasks."""
        self.submit_batch: Callable[[], None] | None = None
        """Submits the batch of the call, where asking for its job may do that."""
        self.log_folder = ""
        """The folder of the executor, where ``paths.stdout`` is written."""
        self.joins_streams = False
        """Whether standard error is part of standard output, as with ``stderr_to_stdout``."""
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
        self._submit_batch_if_asked()
        if not self._job:
            raise NotSubmitted("This call is in a batch: it is submitted when the batch ends.")
        return self._job

    @property
    def is_submitted(self) -> bool:
        """False for a call in a batch that has not ended."""
        return bool(self._job)

    def _submit_batch_if_asked(self) -> None:
        if not self._job and self.submit_batch is not None:
            self.submit_batch()

    @property
    def all_tasks(self) -> Sequence[JobFuture]:
        """The futures of all tasks of the call."""
        return (self,)

    def keep_logs_in(self, folder: str, *, joins_streams: bool = False) -> None:
        """Set the folder of the executor, and whether both streams are one."""
        for future in {self, *self.all_tasks}:
            future.log_folder, future.joins_streams = folder, joins_streams

    # --- what submitit's jobs have ---

    @property
    def job_id(self) -> str:
        """The name of the job; in an array with the index of the call: ``sweep_ab12_3``."""
        return f"{self.job}_{self.index}" if self._is_item() else self.job

    @property
    def task_id(self) -> int:
        """The number of the task among those that make the call."""
        return self.index if self.gang else 0

    def _is_item(self) -> bool:
        """Whether this is one of several calls of an array."""
        return self.tasks > 1 and self.gang is None

    @property
    def state(self) -> str:
        """The state of the call: WAITING, RUNNING, SUCCEEDED, FAILED, STOPPED."""
        if self.shared is not None and not self._never_starts():
            return self.shared.state_of(self.index)
        if self._never_starts():
            return "FAILED"
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
        self._submit_batch_if_asked()
        concurrent.futures.wait([self], timeout)

    def results(self, timeout: float | None = None) -> list[Any]:
        """The results of all tasks of the call; with ``instances`` it has more than one."""
        result = self.result(timeout)  # the failure of any task is raised
        others = [task.result() for task in self.all_tasks[1:]]
        return [result, *others]

    def task(self, index: int) -> JobFuture:
        """The future of one of the tasks of the call."""
        if not 0 <= index < self.num_tasks:
            raise WrongParameter(
                f"There is no task {index}: the number must be between 0 and {self.num_tasks - 1}."
            )
        return self.all_tasks[index]

    @property
    def num_tasks(self) -> int:
        return len(self.all_tasks)

    def awaitable(self) -> AwaitableJob:
        """The same methods, for ``await``."""
        return AwaitableJob(self)

    def stdout(self) -> str:
        """What all tasks of the call have written, in all attempts."""
        return self._log("all" if self.joins_streams else "stdout")

    def stderr(self) -> str | None:
        """As `stdout`, of the standard error; None if that is part of the standard output."""
        return None if self.joins_streams else self._log("stderr")

    def get_logs_path(self, name: str) -> Path:
        """The file of ``stdout`` or ``stderr`` in the folder of the executor."""
        if name not in ("stdout", "stderr"):
            raise WrongParameter(f"There is no log {name!r}: the logs are stdout and stderr.")
        return self.paths.stdout if name == "stdout" else self.paths.stderr

    def submission(self) -> DelayedSubmission:
        """The call as it was submitted: ``function``, ``args`` and ``kwargs``."""
        from openpaisdk.functions.stored_call import load_call

        return load_call(self.cluster, self.job, self.index if self._is_item() else 0)

    def _interrupt(self, timeout: bool = False) -> None:
        """Interrupt the tasks of the call as a preemption does, for tests of checkpoints.

        ``timeout``: as the end of the time limit does, after which only a function with a checkpoint goes on.
        """
        for task in self.all_tasks:
            task._interrupt_task(timeout)

    def _interrupt_task(self, at_time_limit: bool) -> None:
        from openpaisdk.functions.interruption import interrupt

        call = 0 if self.gang else self.index
        task = self.index if self.shared is None else self.shared.task_of(call)
        if task is None or not interrupt(self.cluster.client, self.job, task, call, at_time_limit):
            raise CallUsageError(
                f"{self.job_id} cannot be interrupted: the call does not run.",
                hint="Wait until the function has begun, for example for its first line in job.stdout().",
            )

    # --- logs ---

    def logs(self, follow: bool = False) -> Iterator[str]:
        """The lines that the function printed, in all attempts; with ``follow`` also those to come, until it
        ends."""
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
        if self._never_starts():
            return ""
        if self.shared is not None:
            return self.shared.log(self.index, stream)
        return self.cluster.log(self.job, self.index, stream)

    # --- the result ---

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned; its exception is raised. After ``timeout`` seconds, a TimeoutError."""
        self._submit_batch_if_asked()
        try:
            return super().result(timeout)
        except TimeoutError:
            if self.done():  # the function's own, or the call ended at this moment
                return super().result()
            raise self._time_out(timeout) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception of the function; None if it returned."""
        self._submit_batch_if_asked()
        try:
            return super().exception(timeout)
        except TimeoutError:
            if self.done():  # the call ended at this moment
                return super().exception()
            raise self._time_out(timeout) from None

    def _never_starts(self) -> bool:
        """Whether the cluster refused the job: there is none to ask about."""
        return self.done() and not self.cancelled() and isinstance(super().exception(), JobNeverStarts)

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
        if self._is_item():
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
        return self._is_item() and self.cluster.read(self._claim_path()) == call_format.CANCELLED_CLAIM

    def _claim_path(self) -> str:
        return call_format.claim_path(self._results, self.index)

    # --- states of concurrent.futures.Future ---

    def set_running(self) -> None:
        """Mark as running, unless it ended or was cancelled."""
        with self._condition:
            if not self._is_cancelling and not self.running() and not self.done():
                self.set_running_or_notify_cancel()
        if self.gang:
            self.gang.set_running()

    def note_pending(self, reason: str) -> None:
        """Set why the job has not started."""
        self.pending_reason = reason
        if self.gang:
            self.gang.pending_reason = reason

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
        task = f", task {self.index}" if self.gang else ""
        return f"<JobFuture {self.job_id if self._job else 'in a batch'}{task}: {self._state.lower()}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled future is opened again from its job, also by another program."""
        tasks = (self.index,) if self.gang else ()
        return AnyJob._open, (self.log_folder, self.job_id, tasks, self.cluster.alias)

    def _repr_html_(self) -> str:
        from openpaisdk.functions.future_views import html_of_call

        return html_of_call(self)

    def _ipython_display_(self) -> None:
        from openpaisdk.functions.future_views import show_call

        show_call(self)


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
        """Stop the job with all its calls; where each call has several tasks, the job of each call."""
        pending = [future for future in self if not future.done()]
        if not pending:
            return False
        for job in dict.fromkeys(future.job for future in pending):
            pending[0].cluster.client.stop(job)
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


def as_completed(
    jobs: Iterable[JobFuture], timeout: float | None = None, poll_frequency: float = 10
) -> Iterator[JobFuture]:
    """The futures in the order in which they end. ``poll_frequency`` is submitit's, without effect."""
    return iter(concurrent.futures.as_completed(jobs, timeout))  # type: ignore[arg-type]
