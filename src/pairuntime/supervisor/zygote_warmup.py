"""Warm-up of the zygote: it runs some attempts to their end before it forks the first supervisor.

Python specializes its instructions for what they meet, and fills its caches. A supervisor that had to do this
itself would do it once, without benefit, and on pages that the kernel has to copy for it first.
"""

import os
import signal

from pairuntime.supervisor import attempt_factory, claim, exit_record, process_tree
from pairuntime.supervisor.attempt import HANDLED
from pairuntime.supervisor.shared_environment import SharedEnvironment

# Runs after which Python has specialized a function (a little over eight, in 3.11).
_RUNS = 10
# Upper bound of the descriptors that one run leaves open: a supervisor closes them by exiting.
_MAX_OPEN_FDS = 8
_PROGRAM = "/bin/true"
# A file system in memory: no record waits for a disk.
_FOLDER = "/dev/shm/pai-warmup.%d"


def warm_up(server_fd: "int") -> "None":
    """Run some attempts, then restore the process. Of the descriptors above 2, ``server_fd`` stays open."""
    mask = os.umask(0o077)
    handlers = [(signum, signal.getsignal(signum)) for signum in HANDLED]
    folder = _FOLDER % os.getpid()
    try:
        os.mkdir(folder, 0o700)
        for _ in range(_RUNS):
            _run_one(folder)
        os.rmdir(folder)
    except OSError:
        pass  # no such file system: supervisors then take a little longer
    finally:
        os.umask(mask)
        os.chdir("/")
        signal.set_wakeup_fd(-1)
        for signum, handler in handlers:
            signal.signal(signum, handler)
        process_tree.become_subreaper(False)
        os.closerange(3, server_fd)
        os.closerange(server_fd + 1, server_fd + 1 + _MAX_OPEN_FDS * _RUNS)


def _run_one(folder: "str") -> "None":
    spec = {
        "attempt": "warmup",
        "argv": [_PROGRAM],
        "cwd": folder,
        "env": {"PATH": os.defpath},
        "events": os.devnull,
        "secrets": ["warmup"],
    }
    attempt = attempt_factory.read_attempt(
        folder, process_tree.Cgroup(process_tree.PROC, ""), SharedEnvironment(), spec
    )
    attempt.install_signal_handlers()
    attempt.supervise()
    for name in (claim.NAME, exit_record.NAME):
        os.unlink(os.path.join(folder, name))
