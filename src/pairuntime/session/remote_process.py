"""The command of a session: started in the task, with pipes or a terminal, and ended with all it started."""

import os
import signal
import sys
import time

from pairuntime import exec_in_task
from pairuntime.supervisor import process_tree

# Every process of a session has this variable: those that left its process tree are found by it.
MARKER = "PAI_EXEC_SESSION"

# After SIGHUP, before SIGKILL.
_GRACE_S = 2.0
# For a client program (podman, srun) to notice that the command has ended, before it is killed.
_CLIENT_EXIT_S = 5.0
_CHECK_INTERVAL_S = 0.02

# Sets the variables of the session, then becomes the command: where only a command line reaches the task.
_SET_VARIABLES = 'export %s="$1"; [ -z "$2" ] || export TERM="$2"; shift 2; exec "$@"' % MARKER

# The user's shell, in which the environment of the task stays: a login shell (-l) would set PATH anew.
LOGIN_SHELL = (
    "/bin/sh",
    "-c",
    'if [ -n "$SHELL" ] && [ -x "$SHELL" ]; then exec "$SHELL"; fi; '
    "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh",
)


class Entrance:
    """How a command gets into the task.

    ``folder``: that of an attempt whose processes are on this machine. Otherwise ``prefix`` is a command line
    that runs what is appended to it in the task.
    """

    def __init__(self, folder: "str" = "", prefix: "tuple[str, ...]" = ()) -> "None":
        self.folder = folder
        self.prefix = prefix


class Terminal:
    """Type and size of the client's terminal."""

    def __init__(self, term: "str", rows: "int", columns: "int") -> "None":
        self.term = term
        self.rows = rows
        self.columns = columns


class RemoteProcess:
    """``stdin``: descriptor to write to. ``outputs``: descriptors to read from, by stream of the session."""

    def __init__(
        self, entrance: "Entrance", session: "str", command: "list[str]", terminal: "Terminal | None"
    ) -> "None":
        self._entrance = entrance
        self._marker = "%s=%s" % (MARKER, session)
        self._term = terminal.term if terminal is not None else ""
        # Orphans of the tree become our children, so that none is missed.
        process_tree.become_subreaper()
        self._terminal_fd = -1
        if terminal is not None:
            self._terminal_fd, slave = os.openpty()
            self.resize(terminal.rows, terminal.columns)
            child_fds = (slave, slave, slave)
            self.stdin, self.outputs = self._terminal_fd, {1: self._terminal_fd}
        else:
            child_in, self.stdin = os.pipe()
            out, child_out = os.pipe()
            err, child_err = os.pipe()
            child_fds = (child_in, child_out, child_err)
            self.outputs = {1: out, 2: err}
        # Forked into the cgroup: to join it afterwards would take up to 20 ms.
        cgroup = exec_in_task.cgroup_of(entrance.folder) if entrance.folder else None
        self.pid = os.fork() if cgroup is None else cgroup.fork()
        if self.pid == 0:
            self._become(command, child_fds, cgroup)
        for fd in set(child_fds):
            os.close(fd)

    def _become(
        self,
        command: "list[str]",
        fds: "tuple[int, int, int]",
        cgroup: "process_tree.Cgroup | None",
    ) -> "None":
        """In the child: become the command."""
        status = 127
        try:
            os.setsid()
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
            if self._terminal_fd >= 0:
                _take_terminal()
            name, _, session = self._marker.partition("=")
            if self._entrance.folder:
                variables = {name: session}
                if self._term:
                    variables["TERM"] = self._term
                status = exec_in_task.run(self._entrance.folder, command, variables, cgroup)
            else:
                prefix = [*self._entrance.prefix, "/bin/sh", "-c", _SET_VARIABLES, "sh", session, self._term]
                exec_in_task.restore_signals()
                os.execvp(prefix[0], prefix + command)
        except Exception as e:  # noqa: BLE001 - whatever it is, this process must not go on as a host
            sys.stderr.write("The command could not be started: %s\n" % e)
        finally:
            sys.stderr.flush()
            os._exit(status)

    def resize(self, rows: "int", columns: "int") -> "None":
        if self._terminal_fd >= 0:
            _set_size(self._terminal_fd, rows, columns)

    def send_signal(self, signum: "int") -> "None":
        if self._entrance.folder:
            try:
                os.killpg(self.pid, signum)
            except (ProcessLookupError, PermissionError):
                pass
            return
        marked = self._marked()
        for pid in marked:
            process_tree.send(pid, signum)
        if not marked:
            # On another machine: its client program passes signals on.
            process_tree.send(self.pid, signum)

    def end_leftovers(self) -> "None":
        """The command has exited: kill what it left behind."""
        if self._entrance.folder:
            # Looked for only where there is something: the whole process table is searched.
            if process_tree.children(os.getpid()):
                self._kill(lambda: [*process_tree.descendants(os.getpid()), *self._marked()])
        else:
            self._kill(self._marked)

    def end(self) -> "None":
        """The client is gone: SIGHUP for the whole tree, then SIGKILL."""
        self.send_signal(signal.SIGCONT)
        self.send_signal(signal.SIGHUP)
        deadline = time.time() + _GRACE_S
        while self._is_left() and time.time() < deadline:
            time.sleep(_CHECK_INTERVAL_S)
        self._kill(self._marked)
        if not self._entrance.folder:
            # It reports the end of the command to its own bookkeeping: killed at once, it would leave traces.
            deadline = time.time() + _CLIENT_EXIT_S
            while self._reap() and time.time() < deadline:
                time.sleep(_CHECK_INTERVAL_S)
        self._kill(lambda: process_tree.descendants(os.getpid()))

    def _is_left(self) -> "bool":
        children = self._reap()
        return children if self._entrance.folder else bool(self._marked()) or children

    def _reap(self) -> "bool":
        """Collect the exit status of children that have ended; whether any is left."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    def _kill(self, find: "object") -> "None":
        """Kill until nothing is found, or for as long as a killed process can take to disappear."""
        deadline = time.time() + _GRACE_S
        while True:
            self._reap()
            found = find()  # type: ignore[operator]
            # Stopped first, so that none forks while the rest is being killed.
            for signum in (signal.SIGSTOP, signal.SIGKILL):
                for pid in found:
                    process_tree.send(pid, signum)
            if not found or time.time() > deadline:
                return
            time.sleep(_CHECK_INTERVAL_S / 4)

    def _marked(self) -> "list[int]":
        """Processes of the session on this machine, also in a container."""
        roots = process_tree.pids_with_marker(self._marker.encode())
        return list(set(roots).union(*(process_tree.descendants(pid) for pid in roots)))


# Imported where there is a terminal: most commands have none, and wait for the imports of their host.


def _take_terminal() -> "None":
    """Make the terminal on stdin that of this process's session."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _set_size(terminal: "int", rows: "int", columns: "int") -> "None":
    import fcntl
    import struct
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
