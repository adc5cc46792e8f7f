"""Completion of futures: threads that wait for jobs and set the results of their calls."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import InvalidStateError
from typing import TYPE_CHECKING, Any

from openpaisdk.client.follow import follow
from openpaisdk.client.follow_stream import NO_LOG, FollowRequest
from openpaisdk.client.models import FINAL_STATES, text
from openpaisdk.errors import Forbidden, NotFound, PaiError
from openpaisdk.functions.task_errors import OtherPython, RemoteError, RemoteTraceback, task_error
from pairuntime.task import call_format

if TYPE_CHECKING:
    from openpaisdk.client.models import JobStatus
    from openpaisdk.functions.function_cluster import FunctionCluster
    from openpaisdk.functions.job_future import JobFuture

MAX_FOLLOWED_JOBS = 32
"""Jobs of one process that are followed, each over a connection of its own; more are polled."""
POLL_INTERVALS_S = (0.05, 1.0)
"""Shortest and longest pause between two requests for the state of a job that is polled."""
_followed = threading.BoundedSemaphore(MAX_FOLLOWED_JOBS)


class JobWatcher:
    """Waits for the job of some futures in a thread of its own, and completes them."""

    def __init__(self, cluster: FunctionCluster, futures: list[JobFuture]):
        self._cluster = cluster
        self._futures = {future.index: future for future in futures}
        self._job = futures[0].job

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"futures of {self._job}", daemon=True).start()

    def _run(self) -> None:
        try:
            if len(self._futures) > 1:
                self._poll_tasks()
            elif _followed.acquire(blocking=False):
                try:
                    self._follow()
                finally:
                    _followed.release()
            else:
                self._poll_tasks()
            self._complete_all()
        except PaiError as error:
            self._fail_all(error)
        except Exception as error:  # a future that never ends would be worse
            self._fail_all(error)

    def _follow(self) -> None:
        """Wait for the end of a job with one call."""
        # A connection of its own: the stream occupies it.
        client = self._cluster.cluster._open()
        for frame in follow(client, FollowRequest(self._job, stream=NO_LOG)):
            if frame.kind in ("state", "end") and text(frame.head, "state") == "RUNNING":
                self._set_running(*self._futures.values())

    def _poll_tasks(self) -> None:
        """Complete the calls of an array one by one, as their tasks end."""
        shortest, longest = POLL_INTERVALS_S
        pause = shortest
        while True:
            began = time.monotonic()
            status = self._cluster.client.job(self._job)
            ended = 0
            for task in status.tasks:
                future = self._futures.get(task.index)
                if future is None or future.done():
                    continue
                if task.state in FINAL_STATES:
                    complete(future, status)
                    ended += 1
                elif task.state == "RUNNING":
                    self._set_running(future)
            if status.state in FINAL_STATES or all(f.done() for f in self._futures.values()):
                return
            took = time.monotonic() - began
            pause = max(shortest, took) if ended else min(longest, pause * 1.5)
            time.sleep(pause)

    def _set_running(self, *futures: JobFuture) -> None:
        for future in futures:
            if not future.running() and not future.done():
                future.set_running_or_notify_cancel()

    def _complete_all(self) -> None:
        pending = [future for future in self._futures.values() if not future.done()]
        status = None
        for future in pending:
            status = complete(future, status)

    def _fail_all(self, error: BaseException) -> None:
        for future in self._futures.values():
            _set_exception(future, error)


def complete(future: JobFuture, status: JobStatus | None = None) -> JobStatus | None:
    """Set the result of a future whose task has ended. ``status``: of its job, where it is known."""
    try:
        data = future.cluster.read(future.result_path())
        if data is not None:
            _set_outcome(future, data)
            return status
        status = status or future.cluster.client.job(future.job)
    except NotFound as error:
        _set_exception(future, error)
        return status
    task = next((task for task in status.tasks if task.index == future.index), None)
    log_end = future.cluster.log_end(future.job, future.index)
    _set_exception(future, task_error(status, task, log_end))
    return status


def _set_outcome(future: JobFuture, data: bytes) -> None:
    fields, payload = call_format.read_result(data)
    status = fields["status"]
    if status == call_format.DONE:
        try:
            value = _loads(future, payload)
        except Exception as error:
            error.add_note(f"The result of {future.job_id} could not be unpickled here.")
            _set_exception(future, error)
        else:
            _set_result(future, value)
    elif status == call_format.OTHER_PYTHON:
        _set_exception(future, OtherPython(str(fields["message"]), job=future.job))
    else:
        _set_exception(future, _remote_exception(future, fields, payload))


def _remote_exception(future: JobFuture, fields: dict[str, Any], payload: memoryview) -> BaseException:
    """The exception that the function raised; as text if it cannot be rebuilt here."""
    name, message = str(fields.get("type")), str(fields.get("message"))
    error: BaseException
    try:
        error = _loads(future, payload) if len(payload) else RemoteError("", type_name=name)
    except Exception:
        error = RemoteError("", type_name=name)
    if isinstance(error, RemoteError) or not isinstance(error, Exception):
        # What would end this program (SystemExit, KeyboardInterrupt) ended the task only.
        error = RemoteError(f"{name}: {message}", type_name=name, job=future.job)
    error.__cause__ = RemoteTraceback(str(fields.get("traceback")))
    if note := fields.get("note"):
        error.add_note(str(note))
    return error


def _loads(future: JobFuture, payload: memoryview) -> Any:
    """Unpickle a result. Pickled data runs code: only what the user's own jobs wrote may be loaded."""
    owner = future.cluster.owner(future.result_path())
    if owner != future.cluster.user:
        raise Forbidden(
            f"The result of {future.job_id} was written by {owner or 'an unknown user'}: it is not loaded, "
            "because loading a pickle runs code."
        )
    return pickle.loads(payload)


def _set_result(future: JobFuture, value: object) -> None:
    if not future.running():
        future.set_running_or_notify_cancel()
    try:
        future.set_result(value)
    except InvalidStateError:
        pass  # cancelled in the meantime


def _set_exception(future: JobFuture, error: BaseException) -> None:
    if future.done():
        return
    if not future.running():
        future.set_running_or_notify_cancel()
    try:
        future.set_exception(error)
    except InvalidStateError:
        pass
