"""``submitit.DebugExecutor``: calls functions in this process, where a debugger sees them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import io
import itertools
import os
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from typing import Any, TextIO

from openpaisdk.functions.awaitable_job import AwaitableJob
from openpaisdk.functions.job_paths import JobPaths
from openpaisdk.functions.submitit_options import job_options
from openpaisdk.functions.usage_errors import WrongParameter
from pairuntime.task.delayed_call import DelayedSubmission
from pairuntime.task.job_environment import LOCAL_CALL

_numbers = itertools.count(1)


class DebugJob(concurrent.futures.Future[Any]):
    """A call that was made in this process. It has ended when its executor returns it."""

    num_tasks = 1
    task_id = 0

    def __init__(self, job_id: str, folder: str = ""):
        super().__init__()
        self.job_id = self.job = job_id
        self._folder = folder
        self._output = {"stdout": io.StringIO(), "stderr": io.StringIO()}

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the function. What it prints is shown, and kept for `stdout` and `stderr`."""
        self._submission = DelayedSubmission(function, *args, **kwargs)
        saved = os.environ.get(LOCAL_CALL)
        os.environ[LOCAL_CALL] = self.job_id
        try:
            with (
                contextlib.redirect_stdout(_Tee(sys.stdout, self._output["stdout"])),
                contextlib.redirect_stderr(_Tee(sys.stderr, self._output["stderr"])),
            ):
                value = function(*_with_results(args), **_with_results(kwargs))
                if inspect.iscoroutine(value):
                    value = _run_coroutine(value)
        except Exception as error:  # raised by `result`, as that of a task is
            self.set_exception(error)
        else:
            self.set_result(value)
        finally:
            os.environ.pop(LOCAL_CALL, None)
            if saved is not None:
                os.environ[LOCAL_CALL] = saved

    @property
    def state(self) -> str:
        return "FAILED" if self.exception() else "SUCCEEDED"

    @property
    def paths(self) -> JobPaths:
        return JobPaths(self, self._folder)

    def done(self, force_check: bool = False) -> bool:
        return super().done()

    def cancel(self, check: bool = True) -> bool:
        return super().cancel()

    def wait(self, timeout: float | None = None) -> None:
        """Nothing to wait for."""

    def results(self, timeout: float | None = None) -> list[Any]:
        return [self.result()]

    def task(self, index: int) -> DebugJob:
        if index:
            raise WrongParameter(f"There is no task {index}: the number must be between 0 and 0.")
        return self

    def submission(self) -> DelayedSubmission:
        return self._submission

    def stdout(self) -> str:
        return self._output["stdout"].getvalue()

    def stderr(self) -> str:
        return self._output["stderr"].getvalue()

    def awaitable(self) -> AwaitableJob:
        return AwaitableJob(self)

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        return f"<DebugJob {self.job_id}: {self._state.lower()}>"


class DebugExecutor(concurrent.futures.Executor):
    """Calls each function at once, in this process; there is no cluster. Parameters have no effect."""

    cluster = "debug"

    def __init__(self, folder: str | os.PathLike[str] = "", **parameters: Any):
        self._folder = os.fspath(folder)
        self.update_parameters(**parameters)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call the function; returns its result, or its exception, as that of a job."""
        job = DebugJob(f"DEBUG_{next(_numbers)}", self._folder)
        job.run(fn, args, kwargs)
        return job

    def map_array(self, fn: Callable[..., Any], *iterables: Iterable[Any]) -> list[DebugJob]:
        return [self.submit(fn, *group) for group in zip(*iterables, strict=False)]

    def submit_array(self, fns: Iterable[Callable[[], Any]]) -> list[DebugJob]:
        return [self.submit(fn) for fn in fns]

    def update_parameters(self, **parameters: Any) -> None:
        """Check the names of parameters, as executors of jobs do."""
        job_options(parameters)

    @contextlib.contextmanager
    def batch(self, allow_implicit_submissions: bool = False) -> Iterator[None]:
        yield


class _Tee(io.TextIOBase):
    """Standard output that is shown and kept."""

    def __init__(self, shown: TextIO, kept: io.StringIO):
        self._shown = shown
        self._kept = kept

    def __getattr__(self, name: str) -> Any:
        """Other attributes, such as ``buffer``, ``reconfigure`` and ``name``: those of the shown stream."""
        return getattr(self._shown, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._shown.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._shown.errors

    def write(self, text: str) -> int:
        self._kept.write(text)
        return self._shown.write(text)

    def flush(self) -> None:
        self._shown.flush()

    def fileno(self) -> int:
        return self._shown.fileno()

    def isatty(self) -> bool:
        return self._shown.isatty()

    def writable(self) -> bool:
        return True


def _run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    # A notebook has a running loop in this thread.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def _with_results(value: Any) -> Any:
    """Arguments, with results in place of futures, at any depth of lists, tuples and mappings."""
    if isinstance(value, concurrent.futures.Future):
        return value.result()
    if type(value) in (list, tuple):
        return type(value)(map(_with_results, value))
    if type(value) is dict:
        return {key: _with_results(item) for key, item in value.items()}
    return value
