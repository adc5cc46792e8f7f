"""A task in a container: its main process here is the container program's own client.

Nothing of the task passes through that client. Inside, a shell is the first process: it runs the task with
its output in named pipes that we read, and listens on another for our request to stop. We hold that
one open: when we are gone it closes, and the shell ends everything, whoever else still lives. Only what the
shell cannot do, to kill it, is asked of the container program.
"""

import os
import select
import signal
import time

from pairuntime.supervisor import claim, process_tree
from pairuntime.supervisor.attempt import Attempt

# What the client has to say for itself; the task's words are in the pipes.
CLIENT_ERRORS = "client.err"
# In the folder that both sides see.
STOP_PIPE = "ask"
STARTED = "started"
STATUS = "status"

_KILL_PAUSE_S = 0.3
_CLIENT_TIMEOUT_S = 30
_REMOVALS = 3


class ContainerAttempt(Attempt):
    def __init__(self, folder: "str", spec: "dict[str, object]", cgroup: "process_tree.Cgroup") -> "None":
        super().__init__(folder, spec, cgroup)
        box = spec["container"]  # type: dict[str, object] # type: ignore[assignment]
        self._shared = str(box["shared"])
        self._kill_argv = box["kill"]  # type: list[str] # type: ignore[assignment]
        self._remove_argv = box["remove"]  # type: list[str] # type: ignore[assignment]
        self._stop_pipe = -1
        self._errors = -1
        self._killer = 0
        self._kills = 0
        self._killed_at = 0.0
        self._removals = 0
        self._gone = False

    def _hold_tree(self) -> "None":
        """The container program's own processes are not ours to end: they tidy up after it."""

    def _start(self) -> "str":
        try:
            # Both ends: what we ask waits there until the shell listens, and we never wait for it.
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
                pass  # it has not listened to us for thousands of requests: it will be killed
            self._note_sent(signal.SIGTERM)

    def _kill_all(self) -> "None":
        if self._status is not None or self._killer or time.monotonic() < self._killed_at + _KILL_PAUSE_S:
            return
        self._kills += 1
        if self._kills > _CLIENT_TIMEOUT_S:
            # Neither does it let itself be killed nor does the client give up: whoever is to blame, go on.
            process_tree.send(self._main, signal.SIGKILL)
            return
        self._killer = self._run(self._kill_argv)
        self._killed_at = time.monotonic()
        self._note_sent(signal.SIGKILL)

    def _reap(self) -> "None":
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                break
            if pid == 0:
                self._childless = False
                break
            if pid == self._main:
                self._status = status
                # Whatever is left in there ends itself when nobody holds this any more.
                os.close(self._stop_pipe)
            elif pid == self._killer:
                self._killer = 0
                self._gone = self._removals > 0 and status == 0
        if self._status is None or not self._childless or self._gone:
            return
        # The client waits for the container's end, but may itself be ended. The last word of the shell
        # inside comes when nobody else is left there; without it we see to it ourselves.
        said = self._read_status()[0] is not None
        self._gone = (said and os.WIFEXITED(self._status)) or self._removals >= _REMOVALS
        if not self._gone:
            self._removals += 1
            self._killer = self._run(self._remove_argv)
            self._childless = not self._killer

    def _run(self, argv: "list[str]") -> "int":
        mine, self._argv = self._argv, argv
        try:
            return self._spawn(self._environment, self._errors, self._errors)
        except OSError:
            return 0
        finally:
            self._argv = mine

    def abandon(self) -> "None":
        if self._main:
            self._run(self._remove_argv)

    # -- the end -------------------------------------------------------------------------------

    def _outcome(self) -> "tuple[int | None, int | None, bool, str]":
        if self._status is None:
            return None, None, False, ""
        code, oom = self._read_status()
        if code is None and os.path.exists(os.path.join(self._shared, STARTED)):
            # It had no room to write, or was killed as a whole; the client passes its status on.
            code = os.WEXITSTATUS(self._status) if os.WIFEXITED(self._status) else 128 + signal.SIGKILL
        if code is None:
            if signal.SIGKILL in self._signals_sent or signal.SIGTERM in self._signals_sent:
                return None, int(signal.SIGKILL), False, ""
            return None, None, False, self._client_error()
        if code > 128 and code - 128 < signal.NSIG:
            # A shell has one number for both. Programs that give such a code mean the signal.
            return None, code - 128, oom, ""
        return code, None, oom and code != 0, ""

    def _read_status(self) -> "tuple[int | None, bool]":
        # Whoever is root inside can put anything there: a link to somewhere else, a pipe that nobody fills.
        try:
            fd = os.open(os.path.join(self._shared, STATUS), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None, False
        try:
            words = os.read(fd, 64).split()
            return int(words[0]), len(words) > 1 and words[1] == b"oom"
        except (OSError, ValueError, IndexError):
            return None, False
        finally:
            os.close(fd)

    def _client_error(self) -> "str":
        try:
            said = claim.read_file(os.path.join(self._folder, CLIENT_ERRORS))
        except OSError:
            said = b""
        text = said[-3000:].decode("utf-8", "replace").strip()
        return text or "the container program ended without a word"
