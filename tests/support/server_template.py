"""Servers forked from a process that has imported everything: most of a server's start is its imports.

One template runs for each process of the tests, and ends with it. A forked server runs the function of the
command `paicluster`, or a Python file, with its own arguments, variables and output. The command itself is
started by the tests of the server's start, and by every `pai` that starts the embedded cluster.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

COMMAND = (sys.executable, "-m", "paicluster")

_REQUEST_LIMIT = 1 << 20

# Python and the loader read these once, when a process starts.
_READ_AT_EXEC = ("PYTHON", "LD_")


class ForkedServer:
    """A running server, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, args: Sequence[str], status: socket.socket):
        self.pid = pid
        self.args = list(args)
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._is_reported(timeout):
            reported = self._status.recv(16)
            assert reported, "the template of the servers has died"
            self.returncode = int(reported)
            self._status.close()
        return self.returncode

    def _is_reported(self, timeout: float | None) -> bool:
        # `select.select` refuses descriptors above 1023, which the process of many tests may have.
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))


def can_fork(program: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether a forked server is like this program, started with these variables."""
    runs_here = program == COMMAND or _is_python_file(program)
    return runs_here and not any(name.startswith(_READ_AT_EXEC) for name in variables)


def _is_python_file(program: Sequence[str]) -> bool:
    return len(program) == 2 and program[0] == sys.executable and program[1].endswith(".py")


def fork_server(
    program: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str], output: BinaryIO
) -> ForkedServer:
    """Run a program with these arguments in a new process; output and errors go to one file."""
    template = _running_template()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        request = {
            "file": program[1] if _is_python_file(program) else "",
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            # As a child of this process would inherit it; the template may have been started under nohup.
            "ignores-hangup": signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,
        }
        fds = [output.fileno(), theirs.fileno()]
        socket.send_fds(template, [json.dumps(request).encode()], fds)
    return ForkedServer(int(ours.recv(16)), arguments, ours)


@cache
def _running_template() -> socket.socket:
    """The requests of this process's template, which ends when this end is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        # -P: the modules beside this one must not hide others.
        command = [sys.executable, "-P", str(Path(__file__)), str(theirs.fileno())]
        subprocess.Popen(command, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    return ours


class _Template:
    """The process that forks: reads requests, and reports the pid and later the status of each server."""

    def __init__(self, requests: socket.socket):
        self._requests = requests
        self._reports: dict[int, socket.socket] = {}

    def run(self) -> dict[str, Any] | None:
        """Fork servers; returns its request in a server's process, None when the tests have ended."""
        signal.signal(signal.SIGCHLD, lambda *_: self._report_ended())
        while True:
            text, fds, _, _ = socket.recv_fds(self._requests, _REQUEST_LIMIT, 2)
            if not text:
                return None
            request: dict[str, Any] = json.loads(text)
            output, report = fds[0], socket.socket(fileno=fds[1])
            # The status of a server that ends at once has to find its entry.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            pid = os.fork()
            if pid == 0:
                self._reports[0] = report
                self._become_server(request, output)
                return request
            os.close(output)
            report.send(str(pid).encode())
            self._reports[pid] = report
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])

    def _report_ended(self) -> None:
        while self._reports:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._reports.pop(pid) as report:
                report.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _become_server(self, request: dict[str, Any], output: int) -> None:
        os.dup2(output, 1)
        os.dup2(output, 2)
        for inherited in (self._requests, *self._reports.values()):
            inherited.detach()  # else it would close a descriptor of the server when it is collected
        os.closerange(3, 1 << 16)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        signal.signal(signal.SIGHUP, signal.SIG_IGN if request["ignores-hangup"] else signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        os.chdir(request["folder"])


def _main() -> int:
    gc.disable()
    import paicluster.cli.serve_options
    import paicluster.server.serve

    gc.freeze()
    gc.enable()
    request = _Template(socket.socket(fileno=int(sys.argv[1]))).run()
    if request is None:
        return 0
    if not request["file"]:
        return paicluster.cli.main(request["arguments"])
    sys.argv = [request["file"], *request["arguments"]]
    runpy.run_path(request["file"], run_name="__main__")
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
