"""Attempt of a task in a container: the supervisor's child is the client of podman or docker.

No output of the task passes through that client. In the container a shell is the init process: it runs the
task with its output in named pipes that the supervisor reads, and reads stop requests from another one. The
supervisor holds that pipe open: if it dies the pipe closes, and the shell kills everything in the container.
Only killing the shell itself is left to the container program.
"""

import os
import select
import signal
import time

from pairuntime.supervisor import claim, conmon, process_tree
from pairuntime.supervisor.attempt import Attempt

# Output of the client; the task's own output is in the pipes.
CLIENT_ERRORS = "client.err"
# Before the number of the signal.
CLIENT_KILLED = "the container program was killed by signal"
CONTAINER_KILLED = "the container was killed before its program started"
# Names in the folder that supervisor and container share.
STOP_PIPE = "stop-requests"
STARTED = "started"
STATUS = "status"

_KILL_INTERVAL_S = 0.3
_MAX_KILLS = 30
_MAX_REMOVALS = 3
_MAX_EXIT_CODE = 255


class ContainerAttempt(Attempt):
    def __init__(self, folder: "str", spec: "dict[str, object]", cgroup: "process_tree.Cgroup") -> "None":
        super().__init__(folder, spec, cgroup)
        container = spec["container"]  # type: dict[str, object] # type: ignore[assignment]
        self._shared = str(container["shared"])
        self._kill_argv = container["kill"]  # type: list[str] # type: ignore[assignment]
        self._remove_argv = container["remove"]  # type: list[str] # type: ignore[assignment]
        self._stop_pipe = -1
        self._errors = -1
        self._killer = 0
        self._kills = 0
        self._killed_at = 0.0
        self._removals = 0
        self._gone = False

    def _become_subreaper(self) -> "None":
        """Do nothing: processes of the container program clean up after the container and must survive."""

    def _has_mount_namespace(self) -> "bool":
        """Never: a daemon that starts the container would not see what is mounted there."""
        return False

    def _start(self) -> "str":
        try:
            # Opened for reading and writing: requests wait in the pipe until the shell reads, and open never
            # blocks.
            self._stop_pipe = os.open(os.path.join(self._shared, STOP_PIPE), os.O_RDWR | os.O_NONBLOCK)
            for name in ("stdout", "stderr"):
                fd = os.open(os.path.join(self._shared, name), os.O_RDONLY | os.O_NONBLOCK)
                self._reads[fd] = name
                self._poll.register(fd, select.POLLIN | select.POLLHUP)
            errors = os.path.join(self._folder, CLIENT_ERRORS)
            self._errors = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.chdir("/")
            self._main = self._spawn(self._environment, self._errors, self._errors)
        except (OSError, ValueError) as e:
            return "cannot start %s: %s" % (self._argv[0], getattr(e, "strerror", None) or e)
        return ""

    # -- ending --------------------------------------------------------------------------------

    def _signal_tree(self) -> "None":
        if self._status is None:
            try:
                os.write(self._stop_pipe, b"stop\n")
            except OSError:
                pass  # the pipe is full of unread requests: the container will be killed
            self._note_sent(signal.SIGTERM)

    def _kill_all(self) -> "None":
        if self._status is not None or self._killer or time.monotonic() < self._killed_at + _KILL_INTERVAL_S:
            return
        self._kills += 1
        if self._kills > _MAX_KILLS:
            # The container survives every kill and the client waits for it: kill the client.
            process_tree.send(self._main, signal.SIGKILL)
            return
        self._killer = self._run(self._kill_argv)
        self._killed_at = time.monotonic()
        self._note_sent(signal.SIGKILL)

    def _reap(self) -> "None":
        while True:
            pid, status = self._next_exit()
            if pid == 0:
                break
            if pid == self._main:
                self._status = status
                # Closing the pipe makes the shell kill whatever is left in the container.
                os.close(self._stop_pipe)
            elif pid == self._killer:
                self._killer = 0
                self._gone = self._removals > 0 and status == 0
                if self._gone:
                    conmon.kill_left(str(self._remove_argv[-1]))
        if self._status is None or not self._childless or self._gone:
            return
        # The client waits for the container's end, but may itself be killed. The shell writes the status as
        # its last action, when nothing else runs in the container; without a status the container is removed.
        has_status = self._read_status()[0] is not None
        self._gone = (has_status and os.WIFEXITED(self._status)) or self._removals >= _MAX_REMOVALS
        if not self._gone:
            self._removals += 1
            self._killer = self._run(self._remove_argv)
            self._childless = not self._killer

    def _run(self, argv: "list[str]") -> "int":
        client_argv, self._argv = self._argv, argv
        nowhere = -1
        try:
            # It prints the container's name, which is no error.
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            return self._spawn(self._environment, nowhere, self._errors)
        except OSError:
            return 0
        finally:
            self._argv = client_argv
            if nowhere >= 0:
                os.close(nowhere)

    def abandon(self) -> "None":
        if self._main:
            self._run(self._remove_argv)

    # -- the end -------------------------------------------------------------------------------

    def _outcome(self) -> "tuple[int | None, int | None, bool, str]":
        if self._status is None:
            return None, None, False, ""
        code, oom = self._read_status()
        if code is None and os.path.exists(os.path.join(self._shared, STARTED)):
            # The disk was full, or the container was killed as a whole: take the client's exit status.
            code = os.WEXITSTATUS(self._status) if os.WIFEXITED(self._status) else 128 + signal.SIGKILL
        if code is None:
            if signal.SIGKILL in self._signals_sent or signal.SIGTERM in self._signals_sent:
                return None, int(signal.SIGKILL), False, ""
            return None, None, False, self._client_error()
        if code > 128 and code - 128 < signal.NSIG:
            # A shell reports a signal as 128 + number. Programs that exit with such a code mean the signal,
            # too.
            return None, code - 128, oom, ""
        return code, None, oom and code != 0, ""

    def _read_status(self) -> "tuple[int | None, bool]":
        # Root in the container can put anything there: a link out of the folder, a pipe without a writer.
        try:
            fd = os.open(os.path.join(self._shared, STATUS), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None, False
        try:
            fields = os.read(fd, 64).split()
            code = int(fields[0])
            # Others have a meaning for the cluster, as a preemption, or are too large for its database.
            if not 0 <= code <= _MAX_EXIT_CODE:
                return None, False
            return code, len(fields) > 1 and fields[1] == b"oom"
        except (OSError, ValueError, IndexError):
            return None, False
        finally:
            os.close(fd)

    def _client_error(self) -> "str":
        try:
            output = claim.read_file(os.path.join(self._folder, CLIENT_ERRORS))
        except OSError:
            output = b""
        if self._status is not None and os.WIFSIGNALED(self._status):
            return "Error: %s %d" % (CLIENT_KILLED, os.WTERMSIG(self._status))
        text = output[-3000:].decode("utf-8", "replace").strip()
        if text:
            return text
        if self._status is not None and os.WEXITSTATUS(self._status) == 128 + signal.SIGKILL:
            return "Error: %s" % CONTAINER_KILLED
        return "the container program exited without a message"
