"""Folders of a remote launch on a node: their lock, and the program that starts the bootstrap.

Travels as text in the batch script, in front of `bootstrap`: it can import nothing of this project.
"""

import fcntl
import os

# The variable that carries the bootstrap's text to every task of a gang, and the program that runs it.
BOOTSTRAP_VARIABLE = "PAI_SLURM_BOOT"
BOOTSTRAP_PROGRAM = "import os; exec(os.environ['%s'])" % BOOTSTRAP_VARIABLE
# In a folder on a node: holds the node's name, locked while a process uses the folder.
LOCK_FILE = "lock"


def host_name() -> "bytes":
    return os.uname()[1].encode()


def lock_folder(root: "str") -> "None":
    """Lock the folder while this process or a fork of it lives; executed programs do not inherit the lock."""
    temporary = os.path.join(root, "%s.%d" % (LOCK_FILE, os.getpid()))
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        pass  # no locks on this file system: use cannot be detected, and the folder stays
    os.write(fd, host_name())
    os.rename(temporary, os.path.join(root, LOCK_FILE))
