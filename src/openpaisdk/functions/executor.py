"""Executor of functions as jobs: Python's ``concurrent.futures.Executor``, with submitit's names added."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openpaisdk.functions.function_cluster import function_cluster
from openpaisdk.functions.function_job import FunctionOptions, check_arguments, new_future, submit_calls
from openpaisdk.functions.job_future import JobFuture, JobFutures
from openpaisdk.functions.submitit_options import job_options
from openpaisdk.functions.usage_errors import CallUsageError
from openpaisdk.jobs.caller_notice import warn_caller
from paiprotocol.errors import PaiError
from pairuntime.task.delayed_call import call

if TYPE_CHECKING:
    from openpaisdk.connect import ClusterConnection
    from openpaisdk.functions.function_job import Call

    BatchedCall = tuple[JobFuture, tuple[Any, ...], dict[str, Any]]

_CANCEL_THREADS = 8


class Executor(concurrent.futures.Executor):
    """Runs functions as jobs of one cluster.

    ``with Executor(gpu=1) as executor: executor.submit(train, 0.1)`` waits for all of them at the end.
    The options are those of ``openpaisdk.submit``.
    """

    def __init__(self, cluster: ClusterConnection | str | None = None, **options: Any):
        self._cluster = function_cluster(cluster)
        self._options = FunctionOptions(**options).with_names_of_its_own()
        self._futures: list[JobFuture] = []
        self._batch: list[BatchedCall] | None = None
        self._submits_on_access = False
        self._batches = 0
        self._is_shut_down = False
        self._log_folder = ""

    # --- concurrent.futures ---

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call the function as a job; returns its future."""
        self._check_open()
        if self._batch is not None:
            check_arguments(fn, args, kwargs)
            future = new_future(self._cluster, self._options)
            if self._submits_on_access:
                future.submit_batch = self._submit_batch
            self._batch.append((future, (fn, *args), kwargs))
            return future
        return self._keep(submit_calls(self._cluster, fn, [(args, kwargs)], self._options))[0]

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Any]:
        """The results of calls with the items of the iterables, in their order: one array job.

        The job is submitted at once; the iterator waits for each result as it is asked for.
        """
        return _results_in_order(self._map(fn, *iterables), timeout, time.monotonic())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut_down = True
        if cancel_futures:
            _cancel_waiting(self._futures)
        if wait:
            concurrent.futures.wait(self._futures)

    # --- submitit ---

    def map_array(self, fn: Callable[..., Any], *iterables: Iterable[Any]) -> JobFutures:
        """One call for each group of items, as one array job; returns the futures."""
        futures = self._map(fn, *iterables)
        if not futures:
            warn_caller("The array has no calls: there is nothing to submit.")
        return futures

    def _map(self, fn: Callable[..., Any], *iterables: Iterable[Any]) -> JobFutures:
        self._check_open()
        calls: list[Call] = [(group, {}) for group in zip(*iterables, strict=False)]
        if not calls:
            return JobFutures()
        return self._keep(submit_calls(self._cluster, fn, calls, self._options, array=True))

    def submit_array(self, fns: Iterable[Callable[[], Any]]) -> JobFutures:
        """Functions without arguments, as one array job; returns the futures."""
        return self.map_array(call, fns)

    def update_parameters(self, **parameters: Any) -> None:
        """Change options of the jobs to come, by our names or by submitit's (``timeout_min`` ...)."""
        if self._batch is not None:
            raise CallUsageError(
                'The parameters of the jobs in a batch cannot be changed inside "with executor.batch()".'
            )
        options = job_options(parameters)
        if "slurm_partition" in parameters or "partition" in parameters:
            self._drop_unknown_partition(options)
        self._options = self._options.updated(**options).with_names_of_its_own()

    def _drop_unknown_partition(self, options: dict[str, Any]) -> None:
        """A partition of Slurm that is no virtual cluster here has no effect, as in submitit elsewhere."""
        name = options.get("virtual_cluster")
        if name is None or any(vc.name == name for vc in self._cluster.client.virtual_clusters()):
            return
        del options["virtual_cluster"]
        warn_caller(
            f"The cluster {self._cluster.alias} has no virtual cluster {name!r}: "
            "slurm_partition has no effect."
        )

    @property
    def cluster(self) -> str:
        """The alias of the cluster that runs the jobs."""
        return self._cluster.alias

    @contextlib.contextmanager
    def batch(self, allow_implicit_submissions: bool = False) -> Iterator[None]:
        """All ``submit`` inside the block become one array job when the block ends.

        With ``allow_implicit_submissions`` those until then are one as soon as a job of them is asked for its
        name, its state or its result.
        """
        self._check_open()
        if self._batch is not None:
            raise CallUsageError("Batches cannot be nested.")
        self._batch = []
        self._submits_on_access = allow_implicit_submissions
        number = self._batches
        try:
            yield
            if not self._batch and number == self._batches:
                warn_caller('Nothing was submitted inside "with executor.batch()".', RuntimeWarning)
            self._submit_batch()
        except BaseException:
            for future, _, _ in self._batch:  # none of them is submitted
                future.cancel()
            raise
        finally:
            self._batch = None
            self._submits_on_access = False

    def _submit_batch(self) -> None:
        """Submit the calls of the batch until now."""
        delayed = [one for one in self._batch or () if not one[0].cancelled()]
        self._batch = []
        self._batches += 1
        if not delayed:
            return
        calls: list[Call] = [(args, kwargs) for _, args, kwargs in delayed]
        futures = JobFutures(future for future, _, _ in delayed)
        for future in futures:
            future.submit_batch = None
        try:
            submit_calls(self._cluster, call, calls, self._options, array=True, futures=futures)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        self._keep(futures)

    def _keep(self, futures: JobFutures) -> JobFutures:
        self._futures = [future for future in self._futures if not future.done()] + futures
        for future in futures:
            future.keep_logs_in(self._log_folder, joins_streams=self._options.stderr_to_stdout)
        return futures

    def _check_open(self) -> None:
        if self._is_shut_down:
            raise RuntimeError("The executor was shut down: no calls can be submitted any more.")


def _results_in_order(futures: JobFutures, timeout: float | None, began: float) -> Iterator[Any]:
    """Each result when it is there. What has not begun when the caller stops asking is cancelled."""
    try:
        for future in futures:
            try:
                result = future.result(
                    None if timeout is None else max(0.0, began + timeout - time.monotonic())
                )
            except TimeoutError:
                if future.done():  # the function's own
                    raise
                raise TimeoutError(
                    f"{future.job_id} has not ended after {timeout:g} s. {future.progress} "
                    "Calls that have not begun are cancelled."
                ) from None
            yield result
    finally:
        with contextlib.suppress(PaiError):  # it must not hide why the caller stops
            _cancel_waiting(futures)


def _cancel_waiting(futures: Sequence[JobFuture]) -> None:
    """Cancel the calls that have not begun: several at a time, because each takes two requests."""
    waiting = [future for future in futures if not future.running() and not future.done()]
    if waiting:
        with concurrent.futures.ThreadPoolExecutor(_CANCEL_THREADS) as threads:
            list(threads.map(JobFuture.cancel, waiting))


class AutoExecutor(Executor):
    """``submitit.AutoExecutor``. ``job.paths.stdout`` and ``stderr`` are written into the folder; all other
    files are on the cluster's storage."""

    def __new__(
        cls,
        folder: str | os.PathLike[str] = "",
        max_num_timeout: int = 3,
        cluster: ClusterConnection | str | None = None,
        **parameters: Any,
    ) -> Any:
        """With ``cluster="debug"``, a `DebugExecutor`."""
        if cluster == "debug":
            from openpaisdk.functions.debug_executor import DebugExecutor

            return DebugExecutor(folder, **parameters)
        return super().__new__(cls)

    def __init__(
        self,
        folder: str | os.PathLike[str] = "",
        max_num_timeout: int = 3,
        cluster: ClusterConnection | str | None = None,
        **parameters: Any,
    ):
        # submitit's names of kinds of clusters, which are no aliases of ours.
        super().__init__(None if cluster in ("local", "slurm", "auto") else cluster)
        self._log_folder = os.fspath(folder)
        self.folder = Path(folder).expanduser().absolute()
        if parameters:
            self.update_parameters(**parameters)
