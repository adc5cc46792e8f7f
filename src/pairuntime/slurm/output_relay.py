"""Relay for the output of a command that srun starts: it arrives at once, and the command writes to pipes.

Slurm holds back the part of a line, unless a step is unbuffered; then it gives the step a terminal for its
output, which programs would notice. The relay has that terminal, and the command has pipes.
"""

import os
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Mapping

_READ_BYTES = 1 << 16
# srun passes these on to all processes of the step: the command decides what they mean.
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# How soon the end of a command is noticed whose output stays open: other processes have it, too.
_CHECK_INTERVAL_MS = 100


def run(command: "list[str]", environment: "Mapping[str, str]") -> "int":
    """Run the command to its end; returns its exit status, or ends by the signal that ended it."""
    pipes = {1: os.pipe(), 2: os.pipe()}
    # A signal that comes too early is for the command.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    pid = os.fork()
    if pid == 0:
        _become(command, environment, {target: pipe[1] for target, pipe in pipes.items()})
    for signum in _SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    for pipe in pipes.values():
        os.close(pipe[1])
    status = _copy(pid, {pipe[0]: target for target, pipe in pipes.items()})
    if os.WIFSIGNALED(status):
        ending = os.WTERMSIG(status)
        if ending != signal.SIGKILL:
            signal.signal(ending, signal.SIG_DFL)
        os.kill(os.getpid(), ending)
    return os.WEXITSTATUS(status)


def _become(command: "list[str]", environment: "Mapping[str, str]", fds: "dict[int, int]") -> "None":
    """In the child: become the command."""
    try:
        for target, fd in fds.items():
            os.dup2(fd, target)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.execvpe(command[0], command, environment)
    except OSError as e:
        sys.stderr.write("%s: %s\n" % (command[0], os.strerror(e.errno or 0)))
        sys.stderr.flush()
    finally:
        os._exit(127)


def _copy(pid: "int", targets: "dict[int, int]") -> "int":
    """Copy until all is read, or the command has ended and nothing more is there; returns its status."""
    poll = select.poll()
    for fd in targets:
        poll.register(fd, select.POLLIN)
    status = None  # type: int | None
    while targets:
        ready = poll.poll(0 if status is not None else _CHECK_INTERVAL_MS)
        for fd, _ in ready:
            if not _copy_once(fd, targets[fd]):
                poll.unregister(fd)
                os.close(fd)
                del targets[fd]
        if status is not None and not ready:
            return status
        if status is None and not ready:
            exited, waited = os.waitpid(pid, os.WNOHANG)
            status = waited if exited else None
    return os.waitpid(pid, 0)[1] if status is None else status


def _copy_once(source: "int", target: "int") -> "bool":
    """Copy what can be read now; returns whether more may follow."""
    data = os.read(source, _READ_BYTES)
    try:
        while data:
            data = data[os.write(target, data) :]
            if not data:
                return True
    except OSError:  # srun is gone: the command gets SIGPIPE
        pass
    return False
