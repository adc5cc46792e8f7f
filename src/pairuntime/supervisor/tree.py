"""The processes of one task: who they are, signalling them all, and knowing that none is left.

Three ways, the best one that the machine allows: cgroup v2 (also in hybrid mode), a cgroup v1
hierarchy, or the kernel's process table with this process as the subreaper of the tree.
"""

import errno
import os
import signal

V2 = "v2"
V1 = "v1"
PROC = "proc"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _libc() -> "object":
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


# Loaded once in the zygote and shared by all supervisors.
try:
    _prctl = getattr(_libc(), "prctl", None)
except (ImportError, OSError):  # a Python without ctypes: the tree is then found through /proc alone
    _prctl = None


def become_subreaper() -> "bool":
    """Orphans of the tree become our children instead of init's, so none can slip away."""
    return _prctl is not None and _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent() -> "None":
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def send(pid: "int", signum: "int") -> "None":
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        pass


def children(pid: "int") -> "list[int]":
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid), "rb") as f:
            return [int(word) for word in f.read().split()]
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ESRCH) and os.path.exists(
            "/proc/self/task/%d/children" % os.getpid()
        ):
            return []
    return [child for child, parent in parents().items() if parent == pid]


def parents() -> "dict[int, int]":
    """Every process on the machine with its parent."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as f:
                    data = f.read()
            except OSError:
                continue
            found[int(name)] = int(data[data.rindex(b")") + 2 :].split()[1])
    return found


def descendants(pid: "int") -> "list[int]":
    found = []  # type: list[int]
    seen = set()  # type: set[int]
    queue = children(pid)
    while queue:
        child = queue.pop()
        if child in seen:
            continue
        seen.add(child)
        found.append(child)
        # A thread other than the first may have forked: its children are listed under it.
        try:
            threads = os.listdir("/proc/%d/task" % child)
        except OSError:
            continue
        for thread in threads:
            try:
                with open("/proc/%d/task/%s/children" % (child, thread), "rb") as f:
                    queue.extend(int(word) for word in f.read().split())
            except OSError:
                queue.extend(children(child))
                break
    return found


def marked(marker: "bytes") -> "list[int]":
    """Processes of ours whose environment carries this ``NAME=value``."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/environ" % name, "rb") as f:
                    if marker in f.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue
    return found


class Cgroup:
    """One cgroup directory for one task; ``path`` empty means that there is none."""

    def __init__(self, mode: "str", path: "str") -> "None":
        self.mode = mode
        self.path = path if mode != PROC else ""

    def make(self) -> "None":
        if self.path:
            try:
                os.mkdir(self.path)
            except FileExistsError:
                pass

    def join(self) -> "None":
        """Called by the child before it becomes the user's program."""
        if self.path:
            fd = os.open(self.path + "/cgroup.procs", os.O_WRONLY)
            os.write(fd, b"0")
            os.close(fd)

    def members(self) -> "list[int]":
        if not self.path:
            return []
        try:
            with open(self.path + "/cgroup.procs", "rb") as f:
                return [int(word) for word in f.read().split()]
        except OSError:
            return []

    def kill(self) -> "None":
        if not self.path:
            return
        if self.mode == V2:
            try:
                fd = os.open(self.path + "/cgroup.kill", os.O_WRONLY)
            except OSError:
                pass
            else:
                try:
                    os.write(fd, b"1")
                    return
                except OSError:
                    pass
                finally:
                    os.close(fd)
        for pid in self.members():
            send(pid, signal.SIGKILL)

    def remove(self) -> "None":
        if self.path:
            try:
                os.rmdir(self.path)
            except OSError:
                pass


def kill_orphaned(cgroup: "Cgroup", marker: "bytes") -> "int":
    """Kill what a dead supervisor left behind. Gives how many were still there: call until it is 0.

    Without a cgroup the tree is known by the mark in its environment, and by descent from there.
    """
    left = cgroup.members()
    if left:
        cgroup.kill()
    if not cgroup.path:
        roots = marked(marker)
        left = sorted(set(roots).union(*(descendants(pid) for pid in roots)))
        # Stopped first, so that nothing forks away while the rest is being killed.
        for pid in left:
            send(pid, signal.SIGSTOP)
        for pid in left:
            send(pid, signal.SIGKILL)
    return len(left)
