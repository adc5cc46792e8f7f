"""What supervisors do, done a few times by the zygote itself before it forks any.

Python fits its instructions to what they meet, and notes in its caches what it found. A supervisor that had
all of it still to do would do so once, for nobody, in pages that have to be copied for it first.
"""

import os
import signal

from pairuntime.supervisor import attempt as supervise
from pairuntime.supervisor import claim, exit_record, process_tree

# After so many runs Python has fitted a function (eight and a few, in 3.11).
_TIMES = 10
# At most so many descriptors stay open in one: a supervisor leaves that to its end.
_OPENED = 8
_PROGRAM = "/bin/true"
# Where no record has to wait for a disk.
_IN_MEMORY = "/dev/shm/pai-rehearsal.%d"


def warm_up(kept: "int") -> "None":
    """Run some attempts to their end, and be as before; of the descriptors above 2 only ``kept`` stays."""
    mask = os.umask(0o077)
    handlers = [(signum, signal.getsignal(signum)) for signum in supervise.HANDLED]
    folder = _IN_MEMORY % os.getpid()
    try:
        os.mkdir(folder, 0o700)
        for _ in range(_TIMES):
            _run_one(folder)
        os.rmdir(folder)
    except OSError:
        pass  # there is no such place: supervisors then take a little longer
    finally:
        os.umask(mask)
        os.chdir("/")
        signal.set_wakeup_fd(-1)
        for signum, handler in handlers:
            signal.signal(signum, handler)
        process_tree.become_subreaper(False)
        os.closerange(3, kept)
        os.closerange(kept + 1, kept + 1 + _OPENED * _TIMES)


def _run_one(folder: "str") -> "None":
    spec = {
        "attempt": "rehearsal",
        "argv": [_PROGRAM],
        "cwd": folder,
        "env": {"PATH": os.defpath},
        "events": os.devnull,
        "mask": ["rehearsal"],
    }
    attempt = supervise.read(
        folder, process_tree.Cgroup(process_tree.PROC, ""), supervise.SharedEnvironment(), spec
    )
    attempt.install_signal_handlers()
    attempt.supervise()
    for name in (claim.NAME, exit_record.NAME):
        os.unlink(os.path.join(folder, name))
