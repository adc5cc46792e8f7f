"""Calls that share a task: one after the other in a worker process, which has loaded the function once.

An array with more calls than run at a time has one task for each of those that do. A task claims a call by a
file on the storage that is created by one of them only. It takes its own share first, every n-th call, and
then what the others have not claimed, so that no task waits while calls are left.

The process that the cluster started has none of the user's code in it: it watches its worker, enforces the
time limit of each call, which begins when the function does, and reports a call whose worker died. The next
worker goes on with the next call.
"""

import fcntl
import os
import select
import signal
import struct
import sys
import termios
import time
from functools import partial

from pairuntime.task.call_claims import CallClaims, indexes_in
from pairuntime.task.function_call import CONTINUES_IN_RETRY, FAILED, Call, Request, open_storage
from pairuntime.transport import call_format

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from types import FrameType
    from typing import Iterator

GRACE_PERIOD_S = 10.0
"""Between SIGTERM at the time limit of a call and SIGKILL, as for a task."""
LOADING_LIMIT_S = 600.0
"""For loading the function and its arguments, besides the time limit of the call."""
STOP_SIGNAL_DELAY_S = 1.0
"""At most between the signals to two processes of a task."""
MARK_DELAY_S = 0.5
"""At most for the supervisor to read what a call wrote, before the next call begins."""
_CGROUPS = "/sys/fs/cgroup"


def run(request: "Request") -> "int":
    return SharedTask(request).run()


class SharedTask:
    """The process that the cluster started: watches one worker after the other."""

    def __init__(self, request: "Request") -> "None":
        self._request = request
        self._queue = CallQueue(request)
        self._worker = 0
        self._is_stopping = False
        self._failed = 0

    def run(self) -> "int":
        wake, wake_up = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wake_up, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake_up)
        signal.signal(signal.SIGTERM, self._stop)
        self._queue.resume()
        while True:
            status = self._run_worker(wake)
            if status is not None:
                return status

    def _stop(self, number: "int", frame: "FrameType | None") -> "None":
        self._is_stopping = True
        if self._worker:
            _send(self._worker, signal.SIGTERM)

    def _run_worker(self, wake: "int") -> "int | None":
        """Run a worker until it ends; returns the exit status of the task, None if there is more to do."""
        messages, reports = os.pipe()
        out_of_memory = _oom_kills()
        self._worker = os.fork()
        if self._worker == 0:
            os.setpgid(0, 0)
            os.close(messages)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            _exit_after(Worker(self._request, self._queue, reports))
        os.close(reports)
        os.set_blocking(messages, False)
        watch = _Watch(self._worker, messages, wake, self._request.time_limit_s)
        code = watch.wait()
        os.close(messages)
        self._worker = 0
        self._failed += watch.failed
        self._queue.note_started(watch.started)
        if code == 0:
            return FAILED if self._failed else 0
        if watch.current is None or self._is_stopped(watch, code):
            return code
        if code == CONTINUES_IN_RETRY:
            self._queue.run_again(watch.current, continues=True)
        elif watch.is_next_after_timeout:
            self._queue.run_again(watch.current)
        elif self._queue.retry(watch.current):
            self._queue.run_again(watch.current)
        else:
            self._failed += 1
            self._report_end(watch.current, watch, code, _oom_kills() > out_of_memory)
        return None

    def _is_stopped(self, watch: "_Watch", code: "int") -> "bool":
        """Whether the worker ended because the whole task must stop."""
        by_request = code in (CONTINUES_IN_RETRY, 128 + signal.SIGTERM)
        if by_request and not watch.timed_out and not watch.is_next_after_timeout:
            # Each process of the task gets the signal: the worker may have ended before ours arrived.
            deadline = time.monotonic() + STOP_SIGNAL_DELAY_S
            while not self._is_stopping and time.monotonic() < deadline:
                time.sleep(0.01)
        return self._is_stopping

    def _report_end(self, index: "int", watch: "_Watch", code: "int", out_of_memory: "bool") -> "None":
        """Write the result of a call whose worker died."""
        reason = "its worker ended with status %d" % code
        if watch.timed_out:
            reason = "it reached its time limit of %g s" % self._request.time_limit_s
        elif out_of_memory:
            reason = "it needed more memory than the task has"
        elif code > 128:
            reason = "it was killed by signal %d" % (code - 128)
        sys.stderr.write("The call %d did not return: %s.\n" % (index, reason))
        Call(self._request.select(index), open_storage(self._request)).write_result(
            call_format.ENDED,
            message=reason,
            exit_code=code,
            timed_out=watch.timed_out,
            out_of_memory=out_of_memory and not watch.timed_out,
        )


class _Watch:
    """Follows one worker: the call it is at, the time that this may take, its end."""

    def __init__(self, pid: "int", messages: "int", wake: "int", time_limit_s: "float") -> "None":
        self._pid = pid
        self._messages = messages
        self._wake = wake
        self._time_limit_s = time_limit_s
        self._deadline = None  # type: float | None
        self._text = b""
        self.started = []  # type: list[int]
        self.current = None  # type: int | None
        self.timed_out = False
        self.is_next_after_timeout = False
        """A call ended right at its time limit, so that the signal reached the next one."""
        self.failed = 0

    def wait(self) -> "int":
        """Exit status of the worker, as a shell shows it."""
        descriptors = [self._messages, self._wake]
        while True:
            timeout = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            ready = select.select(descriptors, [], [], timeout)[0]
            if self._messages in ready and not self._read():
                descriptors = [self._wake]
            if self._wake in ready:
                _drain(self._wake)
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._read()
                # What the call left running must not disturb the next one.
                _send_group(self._pid, signal.SIGKILL)
                return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self._read()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                _send_group(self._pid, signal.SIGKILL if self.timed_out else signal.SIGTERM)
                self.timed_out = True
                self._deadline = time.monotonic() + GRACE_PERIOD_S

    def _read(self) -> "bool":
        """Read what the worker has reported; False at the end of the pipe."""
        data = _drain(self._messages)
        self._text += data or b""
        lines = self._text.split(b"\n")
        self._text = lines.pop()
        for line in lines:
            what, index = line.split()
            if what == b"start":
                self.current = int(index)
                self.started.append(self.current)
                self.is_next_after_timeout, self.timed_out = self.timed_out, False
                self._set_deadline(LOADING_LIMIT_S)
            elif what == b"call":
                self._set_deadline()
            else:
                self.current = self._deadline = None
                self.failed += what == b"failed"
        return data is not None

    def _set_deadline(self, additional_s: "float" = 0.0) -> "None":
        limit = self._time_limit_s
        self._deadline = time.monotonic() + limit + additional_s if limit else None


class Worker:
    """The process that runs calls: loads the function with the first one, and keeps it."""

    def __init__(self, request: "Request", queue: "CallQueue", reports: "int") -> "None":
        self._request = request
        self._queue = queue
        self._reports = reports

    def run(self) -> "int":
        files = open_storage(self._request)
        folder = os.getcwd()
        loaded = None  # type: Call | None
        for index, continues in self._queue.claimed():
            os.environ["PAI_CALL_INDEX"] = str(index)
            os.chdir(folder)
            self._tell("start", index)
            _mark(index)
            status = FAILED
            is_repeated = True
            while status not in (0, CONTINUES_IN_RETRY) and is_repeated:
                is_repeated = self._queue.retry(index)
                call = Call(self._request.select(index), files, loaded, continues, is_repeated)
                status = call.run(on_call=partial(self._tell, "call", index))
                loaded = call
            if status == CONTINUES_IN_RETRY:
                return status
            self._tell("failed" if status else "done", index)
        _mark(None)
        return 0

    def _tell(self, what: "str", index: "int") -> "None":
        os.write(self._reports, ("%s %d\n" % (what, index)).encode())


class CallQueue:
    """The calls of the array that this task may run, as far as it knows."""

    def __init__(self, request: "Request") -> "None":
        self._request = request
        self._files = open_storage(request)
        self._claims = CallClaims(request, self._files)
        self._started = set()  # type: set[int]
        self._again = []  # type: list[tuple[int, bool]]
        self._retries = {}  # type: dict[int, int]

    def resume(self) -> "None":
        """In a later attempt of the task: go on with the calls that the previous one did not finish."""
        if not self._request.is_later_attempt:
            return
        finished = indexes_in(self._files, self._request.results_folder)
        for index in sorted(self._claims.indexes() - finished):
            if self._claims.is_own(index):
                self._again.append((index, True))
        self._started.update(finished)

    def note_started(self, indexes: "list[int]") -> "None":
        """Note the calls that a worker has started: only its own copy of the queue knows them."""
        self._started.update(indexes)
        self._again = [(index, resumes) for index, resumes in self._again if index not in indexes]

    def run_again(self, index: "int", continues: "bool" = False) -> "None":
        self._again.insert(0, (index, continues))

    def retry(self, index: "int") -> "bool":
        """Count a retry of a failed call; False if it has no more."""
        used = self._retries.get(index, 0)
        if 0 <= self._request.retries <= used:
            return False
        self._retries[index] = used + 1
        return True

    def claimed(self) -> "Iterator[tuple[int, bool]]":
        """Calls to run now, and whether each may continue from a checkpoint. Each is claimed before."""
        for index, continues in self._again:
            self._started.add(index)
            yield index, continues
        request = self._request
        for index in range(request.task_index, request.calls, request.tasks):
            if index not in self._started and self._claim(index):
                yield index, False
        while True:
            taken = self._claims.indexes()
            unclaimed = [index for index in range(request.calls) if index not in taken]
            if not unclaimed:
                return
            # From the end: the task whose share this is comes from the beginning.
            claimed = next((index for index in reversed(unclaimed) if self._claim(index)), None)
            if claimed is not None:
                yield claimed, False

    def _claim(self, index: "int") -> "bool":
        if index in self._started or not self._claims.claim(index):
            return False
        self._started.add(index)
        return True


def _mark(index: "int | None") -> "None":
    """Begin the part of a call in the log: the SDK finds it by this line."""
    sys.stdout.flush()
    sys.stderr.flush()
    for descriptor in (1, 2):
        _wait_until_read()
        os.write(descriptor, call_format.log_mark(index).encode())
    _wait_until_read()


def _wait_until_read() -> "None":
    """Wait until the supervisor has read what was written: in the common log of both streams, what is still
    in one pipe would follow the mark that was written to the other."""
    deadline = time.monotonic() + MARK_DELAY_S
    while any(_unread_bytes(descriptor) for descriptor in (1, 2)) and time.monotonic() < deadline:
        time.sleep(0.0002)


def _unread_bytes(descriptor: "int") -> "int":
    """Bytes in a pipe; 0 for what is no pipe."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0])
    except OSError:
        return 0


def _exit_after(worker: "Worker") -> "None":
    """Run a worker in its own process, and end it without what the other one would do at its exit."""
    status = FAILED
    try:
        status = worker.run()
    except BaseException as error:  # noqa: BLE001 - it ends here
        sys.stderr.write("The function could not be called: %s\n" % error)
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def _send(pid: "int", number: "int") -> "None":
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _send_group(pid: "int", number: "int") -> "None":
    """Send a signal to a worker and to the processes that it started."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _drain(descriptor: "int") -> "bytes | None":
    """What can be read without waiting; None at the end."""
    parts = []  # type: list[bytes]
    while True:
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return b"".join(parts)
        if not data:
            return b"".join(parts) or None
        parts.append(data)


def _oom_kills() -> "int":
    """Processes of this task that the kernel killed for lack of memory; 0 where that cannot be read."""
    for path in _oom_counters():
        try:
            with open(path) as f:
                return sum(int(line.split()[1]) for line in f if line.startswith("oom_kill "))
        except (OSError, ValueError, IndexError):
            continue
    return 0


def _oom_counters(memberships: "str" = "/proc/self/cgroup") -> "list[str]":
    """Files that may have the count, the likeliest first: of the own group, else of what is mounted as root.

    The other hierarchies of cgroups v1 name other groups: their paths say nothing about memory.
    """
    own = []  # type: list[str]
    roots = []  # type: list[str]
    try:
        with open(memberships) as f:
            lines = [line.rstrip("\n").split(":", 2) for line in f]
    except OSError:
        lines = []
    for hierarchy, controllers, path in (fields for fields in lines if len(fields) == 3):
        if "memory" in controllers.split(","):
            folder, name = _CGROUPS + "/memory", "memory.oom_control"
        elif hierarchy == "0":
            folder, name = _CGROUPS, "memory.events"
        else:
            continue
        own.append(folder + os.path.join("/", path.rstrip("/"), name))
        # A container sees its own group as the root, and in v1 may get the path outside of it.
        roots.append(folder + "/" + name)
    return own + roots
