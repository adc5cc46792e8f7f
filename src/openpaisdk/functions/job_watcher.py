"""Completion of futures: threads that wait for jobs and set the results of their calls."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, InvalidStateError
from typing import TYPE_CHECKING, Any

from openpaisdk.client.follow import follow
from openpaisdk.client.follow_stream import NO_LOG, RECONNECT_TIMEOUT_S, FollowRequest
from openpaisdk.client.models import FINAL_STATES, is_pending_event, text
from openpaisdk.functions.task_errors import (
    DependencyFailed,
    OtherPython,
    RemoteError,
    RemoteTraceback,
    ended_error,
    task_error,
    with_source_lines,
)
from openpaisdk.jobs.job_notices import WAITING
from paiprotocol.errors import ConnectionFailed, Forbidden, NotFound, TooManyRequests, Unavailable
from pairuntime.transport import call_format

if TYPE_CHECKING:
    from openpaisdk.client.models import JobStatus
    from openpaisdk.functions.function_cluster import FunctionCluster
    from openpaisdk.functions.job_future import JobFuture
    from openpaisdk.functions.shared_tasks import SharedTasks

MAX_FOLLOWED_JOBS = 32
"""Jobs of one process that are followed, each over a connection of its own; more are polled."""
POLL_INTERVALS_S = (0.05, 1.0)
"""Shortest and longest pause between two requests for the state of a job that is polled."""
REASON_INTERVALS_S = (0.5, 10.0)
"""Shortest and longest pause between two questions why a job that is polled waits. It grows while the cluster
has not said so; a known reason seldom changes."""
RECONNECT_INTERVAL_S = 1.0
"""Pause before the cluster is asked again for a job after it could not be reached."""
_followed = threading.BoundedSemaphore(MAX_FOLLOWED_JOBS)


class JobWatcher:
    """Waits for the job of some futures in a thread of its own, and completes them."""

    def __init__(self, cluster: FunctionCluster, futures: list[JobFuture]):
        self._cluster = cluster
        self._futures = {future.index: future for future in futures}
        self._job = futures[0].job
        self._shared = futures[0].shared
        self._next_reason_at = 0.0
        self._reason_pause = REASON_INTERVALS_S[0]
        self._reached_at = 0.0

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"futures of {self._job}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._watch_with_retries()
        except Exception as error:  # a future that never ends would be worse
            self._fail_all(error)

    def _watch_with_retries(self) -> None:
        """Watch the job, again if the cluster cannot be reached: it may restart, and the job goes on."""
        self._reached_at = time.monotonic()
        while True:
            try:
                self._watch()
            except (ConnectionFailed, TooManyRequests, Unavailable):
                if time.monotonic() - self._reached_at > RECONNECT_TIMEOUT_S:
                    raise
                time.sleep(RECONNECT_INTERVAL_S)
            else:
                return

    def _watch(self) -> None:
        """Wait for the end of the job, and complete the futures."""
        if self._shared is not None:
            self._poll_calls(self._shared)
        elif len(self._futures) > 1:
            self._poll_tasks()
        elif _followed.acquire(blocking=False):
            try:
                self._follow()
            finally:
                _followed.release()
        else:
            self._poll_tasks()
        self._complete_all()

    def _follow(self) -> None:
        """Wait for the end of a job with one call."""
        # A connection of its own: the stream occupies it.
        client = self._cluster.connection.open_client()
        for frame in follow(client, FollowRequest(self._job, stream=NO_LOG)):
            if frame.kind != "lost":
                self._reached_at = time.monotonic()
            if frame.kind in ("state", "end") and text(frame.head, "state") == "RUNNING":
                self._set_running(*self._futures.values())
            elif frame.kind == "event" and is_pending_event(frame.head):
                for future in self._futures.values():
                    future.note_pending(text(frame.head, "message"))

    def _poll_tasks(self) -> None:
        """Complete the calls of an array one by one, as their tasks end."""
        for _ in self._pauses():
            status = self._cluster.client.job(self._job)
            self._note_pending_reason(status.state)
            for task in status.tasks:
                future = self._futures.get(task.index)
                if future is None or future.done():
                    continue
                if task.state in FINAL_STATES:
                    complete(future, status)
                elif task.state == "RUNNING":
                    self._set_running(future)
            if status.state in FINAL_STATES:
                return

    def _poll_calls(self, shared: SharedTasks) -> None:
        """Complete calls that share tasks, as their results are written."""
        for _ in self._pauses():
            # The state first: what the tasks wrote before they ended is then seen.
            state = self._cluster.client.job(self._job).state
            self._note_pending_reason(state)
            ended = shared.ended()
            for index in sorted(ended):
                if not self._futures[index].done():
                    complete(self._futures[index])
            if state in FINAL_STATES:
                return
            if waiting := [f for f in self._futures.values() if not f.running() and not f.done()]:
                started = shared.started()
                self._set_running(*(future for future in waiting if future.index in started))

    def _note_pending_reason(self, state: str) -> None:
        """Ask why the job waits, soon after it was submitted and then now and then."""
        if state != WAITING:
            reason = ""
        elif time.monotonic() < self._next_reason_at:
            return
        else:
            reason = self._cluster.pending_reason(self._job)
            longest = REASON_INTERVALS_S[1]
            self._reason_pause = longest if reason else min(longest, self._reason_pause * 2)
            self._next_reason_at = time.monotonic() + self._reason_pause
        for future in self._futures.values():
            future.note_pending(reason)

    def _pauses(self) -> Iterator[None]:
        """Yields before each poll until all calls have ended, with a pause that grows while none does."""
        shortest, longest = POLL_INTERVALS_S
        pause = shortest
        pending = len(self._futures)
        while pending:
            began = time.monotonic()
            yield
            self._reached_at = time.monotonic()
            took = self._reached_at - began
            unfinished = sum(not future.done() for future in self._futures.values())
            pause = max(shortest, took) if unfinished < pending else min(longest, pause * 1.5)
            pending = unfinished
            if pending:
                time.sleep(pause)

    def _set_running(self, *futures: JobFuture) -> None:
        for future in futures:
            future.set_running()

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
        if future.has_cancelled_claim():
            _set_cancelled(future)
            return status
        status = status or future.cluster.client.job(future.job)
    except NotFound as error:
        _set_exception(future, error)
        return status
    index: int | None = future.index
    if future.shared is not None:
        index = future.shared.task_of(future.index)
    task = next((task for task in status.tasks if task.index == index), None)
    _set_exception(future, task_error(status, task, future.log_end()))
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
        version = str(fields.get("pickled_by") or "")
        hint = (
            f'Choose an image with Python {version}, for example image="python:{version}".' if version else ""
        )
        _set_exception(future, OtherPython(str(fields["message"]), job=future.job, hint=hint))
    elif status == call_format.DEPENDENCY_FAILED:
        message = f"The function was not called ({future.job_id}). {fields['message']}"
        _set_exception(future, DependencyFailed(message, job=future.job))
    elif status == call_format.CANCELLED:
        _set_cancelled(future)
    elif status == call_format.ENDED:
        _set_exception(
            future, ended_error(fields, job=future.job, call=future.job_id, log_end=future.log_end())
        )
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
    error.__cause__ = RemoteTraceback(with_source_lines(str(fields.get("traceback"))))
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
    future.set_running()
    try:
        future.set_result(value)
    except InvalidStateError:
        pass  # cancelled in the meantime


def _set_exception(future: JobFuture, error: BaseException) -> None:
    future.set_running()
    try:
        future.set_exception(error)
    except InvalidStateError:
        pass  # cancelled, or completed by another thread


def _set_cancelled(future: JobFuture) -> None:
    """Mark a call that another program cancelled."""
    if not future.set_cancelled():
        _set_exception(future, CancelledError())
