"""The command of a session: started in the task, with pipes or a terminal, and ended with all it started."""

import os
import signal
import sys
import time

from pairuntime import exec_in_task
from pairuntime.supervisor import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs time
    from typing import Any

# Every process of a session has this variable: those that left its process tree are found by it.
MARKER = "PAI_EXEC_SESSION"

# After SIGHUP, before SIGKILL.
_GRACE_S = 2.0
# For a client program (podman, srun) to notice that the command has ended, before it is killed.
_CLIENT_EXIT_S = 5.0
_CHECK_INTERVAL_S = 0.02

# For a command that has announced itself to appear in the process table; also where it may be that of another
# machine.
_APPEAR_S = 5.0
_APPEAR_ON_NODE_S = 0.5
_MAX_EARLY_SIGNALS = 64

# Sets the variables of the session, announces the command, and becomes it: where only a command line reaches
# the task. Before that there is nothing that a signal could be sent to.
_BEGIN = 'export %s="$1"; [ -z "$2" ] || export TERM="$2"; shift 2; echo "$%s" >&2; exec "$@"' % (
    MARKER,
    MARKER,
)

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
    that runs what is appended to it in the task; with ``passes_signals`` on another machine, where signals
    get only through the program of that command line. ``account``: the one under which that program runs;
    None: that of this process.
    """

    def __init__(
        self,
        folder: "str" = "",
        prefix: "tuple[str, ...]" = (),
        *,
        passes_signals: "bool" = False,
        account: "dict[str, Any] | None" = None,
    ) -> "None":
        self.folder = folder
        self.prefix = prefix
        self.passes_signals = passes_signals
        self.account = account


def account_from(text: "str") -> "dict[str, Any] | None":
    """The account that a command line names, as `1000:1000`; `:` for none."""
    user, _, group = text.partition(":")
    return {"uid": int(user), "gid": int(group), "groups": []} if user else None


class Terminal:
    """Type and size of the client's terminal."""

    def __init__(self, term: "str", rows: "int", columns: "int") -> "None":
        self.term = term
        self.rows = rows
        self.columns = columns


class RemoteProcess:
    """``stdin``: descriptor to write to. ``outputs``: descriptors to read from, by stream of the session.

    ``announcement``: the line of output with which the command begins, on the stream of its errors or on its
    terminal; empty if it does not announce itself. The host removes the line, and calls `begin`.
    """

    def __init__(
        self, entrance: "Entrance", session: "str", command: "list[str]", terminal: "Terminal | None"
    ) -> "None":
        self._entrance = entrance
        self._marker = "%s=%s" % (MARKER, session)
        self.announcement = b"" if entrance.folder else session.encode()
        self._early_signals = []  # type: list[int]
        self._sent_signals = set()  # type: set[int]
        # Whether the command was not found, as one whose environment cannot be read or is another.
        self._is_hidden = False
        self._has_exited = False
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
        cgroup, self._account = None, entrance.account
        if entrance.folder:
            cgroup, self._account = exec_in_task.cgroup_and_account(entrance.folder)
        # Forked into the cgroup: to join it afterwards would take up to 20 ms.
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
                prefix = [*self._entrance.prefix, "/bin/sh", "-c", _BEGIN, "sh", session, self._term]
                exec_in_task.restore_signals()
                os.execvp(prefix[0], prefix + command)
        except Exception as e:  # noqa: BLE001 - whatever it is, this process must not go on as a host
            sys.stderr.write("The command could not be started: %s\n" % e)
        finally:
            sys.stderr.flush()
            os._exit(status)

    def take_account(self) -> "None":
        """Change this process to the account of the command, which is all that it still acts on.

        It reads what the client and the command send. The last step of the start: the account may not be
        able to read what Python would have to import.
        """
        if self._account is not None and os.geteuid() == 0:
            process_tree.take_account(self._account)

    def resize(self, rows: "int", columns: "int") -> "None":
        if self._terminal_fd >= 0:
            _set_size(self._terminal_fd, rows, columns)

    def begin(self) -> "None":
        """Called when the command has announced itself: send it the signals that came before."""
        self.announcement = b""
        signals, self._early_signals = self._early_signals, []
        for signum in signals:
            self.send_signal(signum)

    def send_signal(self, signum: "int") -> "None":
        self._sent_signals.add(signum)
        if self._has_exited:
            return
        if self._entrance.folder:
            try:
                os.killpg(self.pid, signum)
            except ProcessLookupError:
                # Just forked, it has no group of its own yet.
                process_tree.send(self.pid, signum)
            except PermissionError:
                pass
        elif self.announcement:
            if len(self._early_signals) < _MAX_EARLY_SIGNALS:
                self._early_signals.append(signum)
        else:
            self._send_to_marked(signum)

    def _send_to_marked(self, signum: "int") -> "None":
        deadline = time.time() + (_APPEAR_ON_NODE_S if self._entrance.passes_signals else _APPEAR_S)
        while not (self._is_hidden or self._marked() or self._has_client_exited()):
            # Meanwhile the host serves nothing else: it waits once.
            self._is_hidden = time.time() > deadline
            time.sleep(_CHECK_INTERVAL_S / 4)
        # If there is none here, the command is on another machine: its client program passes signals on.
        for pid in self._marked() or [self.pid]:
            process_tree.send(pid, signum)

    def _has_client_exited(self) -> "bool":
        """Whether the program of the command line has ended; it is reaped elsewhere."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def exited(self, wait_status: "int") -> "tuple[int, int]":
        """Exit status as a shell has it, and the signal that ended the command, or 0; from a wait status."""
        self._has_exited = True
        if os.WIFSIGNALED(wait_status):
            return 128 + os.WTERMSIG(wait_status), os.WTERMSIG(wait_status)
        status = os.WEXITSTATUS(wait_status)
        # Client programs exit with what a shell would say. A command that exits with such a number itself is
        # not taken for one that a signal ended, unless this host has sent that signal.
        was_ended = not self._entrance.folder and status - 128 in self._sent_signals
        return status, status - 128 if was_ended else 0

    def end_leftovers(self) -> "None":
        """Kill what a command left behind that has exited."""
        if self._entrance.folder:
            # Looked for only where there is something: the whole process table is searched.
            if process_tree.children(os.getpid()):
                self._kill(lambda: [*process_tree.descendants(os.getpid()), *self._marked()])
        else:
            self._kill(self._marked)

    def end(self) -> "None":
        """End the command of a client that is gone: SIGHUP for the whole tree, then SIGKILL."""
        for signum in (signal.SIGCONT, signal.SIGHUP):
            if self.announcement:
                process_tree.send(self.pid, signum)
            else:
                self.send_signal(signum)
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
            pids = find()  # type: ignore[operator]
            # Stopped first, so that none forks while the rest is being killed.
            for signum in (signal.SIGSTOP, signal.SIGKILL):
                for pid in pids:
                    process_tree.send(pid, signum)
            if not pids or time.time() > deadline:
                return
            time.sleep(_CHECK_INTERVAL_S / 4)

    def _marked(self) -> "list[int]":
        """Processes of the session on this machine, also in a container, in the order to signal them."""
        roots = process_tree.pids_with_marker(self._marker.encode())
        pids = set(roots).union(*(process_tree.descendants(pid) for pid in roots))
        return process_tree.parents_first(pids)


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
