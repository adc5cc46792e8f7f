"""Attempt in a pod: the command runs in another container, behind the shim and its named pipes."""

import errno
import os
import select
import signal
import time

from pairuntime.kubernetes import shim
from pairuntime.supervisor import attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pairuntime.supervisor import process_tree

_READ_BYTES = 4096
_MAX_ERROR_BYTES = 4000
# Time that the upload of the end needs, of what Kubernetes gives a pod to end.
_END_RESERVE_S = 5.0
# The shell's exit status is 128 and the number of the signal that ended a program.
_SIGNALED = range(129, 193)


class PodAttempt(attempt.Attempt):
    """Supervises one task through the shim of its container."""

    def __init__(self, folder: "str", spec: "dict[str, object]", cgroup: "process_tree.Cgroup") -> "None":
        super(PodAttempt, self).__init__(folder, spec, cgroup)
        self._exchange = str(spec["exchange"])
        # Opened by the parent process, which has heard the shim's greeting.
        self._status_fd = int(spec["status_fd"])  # type: ignore[call-overload]
        self._control_fd = int(spec["control_fd"])  # type: ignore[call-overload]
        self._kill_wait_s = float(spec.get("kill_wait_s", 30))  # type: ignore[arg-type]
        self._unread = b""
        self._started = False
        self._errors = b""
        self._signalled = False
        self._ended_outside = False
        self._outputs_ended = False

    def install_signal_handlers(self) -> "None":
        super(PodAttempt, self).install_signal_handlers()
        attempt.set_handler(signal.SIGUSR2, self._on_stop_signal)

    def _on_stop_signal(self, signum: "int", frame: "object") -> "None":
        self._signalled = True

    # -- starting ------------------------------------------------------------------------------

    def _start(self) -> "str":
        for name in shim.OUTPUTS:
            fd = os.open(os.path.join(self._exchange, name), os.O_RDONLY | os.O_NONBLOCK)
            self._reads[fd] = name
            self._poll.register(fd, select.POLLIN | select.POLLHUP)
        self._poll.register(self._status_fd, select.POLLIN | select.POLLHUP)
        # Not a child process: the shim reports its end.
        self._main = 1
        self._say(shim.START)
        return ""

    def _say(self, word: "bytes") -> "None":
        try:
            os.write(self._control_fd, word + b"\n")
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.EPIPE):
                raise

    # -- watching ------------------------------------------------------------------------------

    def _read(self, fd: "int") -> "bool":
        if fd == self._status_fd:
            return self._read_status()
        return super(PodAttempt, self)._read(fd)

    def _read_status(self) -> "bool":
        try:
            data = os.read(self._status_fd, _READ_BYTES)
        except OSError as e:
            if e.errno in (errno.EAGAIN, errno.EINTR):
                return False
            raise
        if not data:
            # The first process of the container has ended, and with it all others.
            self._poll.unregister(self._status_fd)
            self._childless = True
            if self._status is None:
                self._status = signal.SIGKILL
            return False
        self._unread += data
        lines = self._unread.split(b"\n")
        self._unread = lines.pop()[-_READ_BYTES:]
        for line in lines:
            self._handle(line)
        return True

    def _handle(self, line: "bytes") -> "None":
        if line == shim.STARTED:
            self._started = True
        elif line.startswith(shim.EXIT + b" ") and line[5:].isdigit() and self._status is None:
            code = int(line[5:])
            self._status = code - 128 if code in _SIGNALED else (code & 255) << 8
            self._say(shim.CHECK)
        elif line == shim.EMPTY and self._status is not None:
            self._say(shim.END)
        elif line not in (shim.BUSY, shim.EMPTY, shim.HELLO) and not self._started:
            self._errors = (self._errors + line + b"\n")[:_MAX_ERROR_BYTES]

    def _reap(self) -> "None":
        """There is no process to reap. When the output ends, the last leftover has probably ended, too."""
        if self._status is not None and not self._reads and not self._childless and not self._outputs_ended:
            self._outputs_ended = True
            self._say(shim.CHECK)

    # -- ending --------------------------------------------------------------------------------

    def _signal_tree(self) -> "None":
        self._say(shim.TERM)
        self._note_sent(signal.SIGTERM)
        if self._status is not None:
            self._say(shim.CHECK)

    def _kill_all(self) -> "None":
        self._say(shim.KILL)
        self._note_sent(signal.SIGKILL)
        if self._status is not None:
            self._say(shim.CHECK)

    def abandon(self) -> "None":
        """After an unexpected error: the end of this process closes the control pipe, which ends the task."""

    def _outcome(self) -> "tuple[int | None, int | None, bool, str]":
        code, signum, oom, problem = super(PodAttempt, self)._outcome()
        if self._main and not self._started and self._stop is None and not self._timed_out:
            text = self._errors.decode("utf-8", "replace").strip()
            return None, None, False, text or "the shell of the image could not run the task"
        return code, signum, oom, problem

    def _stop_requested(self) -> "bool":
        if super(PodAttempt, self)._stop_requested():
            return True
        if self._signalled:
            # The server did not request it: the pod was deleted, evicted or preempted.
            self._ended_outside = True
            self._stop = {}
            self._grace_s = max(1.0, min(self._grace_s, self._kill_wait_s - _END_RESERVE_S))
            return True
        return False

    def _write_record(self, reserved: "int", record: "dict[str, object]") -> "None":
        if self._ended_outside:
            record = dict(record, stopped=False, ended_outside=True)
        super(PodAttempt, self)._write_record(reserved, record)


def wait_for_shim(status_fd: "int", is_ending: "object") -> "bool":
    """Wait until the shim has said hello. False: the pod is being ended first."""
    poll = select.poll()
    poll.register(status_fd, select.POLLIN)
    heard = b""
    while not heard.startswith(shim.HELLO + b"\n"):
        if is_ending():  # type: ignore[operator]
            return False
        if poll.poll(200):
            data = os.read(status_fd, len(shim.HELLO) + 1 - len(heard))
            if not data:  # the shim has ended again
                time.sleep(0.2)
            heard += data
    return True
