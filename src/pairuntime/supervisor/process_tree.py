"""Processes of one task: list them, signal them all, verify that none is left.

By the best of three mechanisms that the machine allows: cgroup v2 (also in hybrid mode), a cgroup v1
hierarchy, or the kernel's process table with the supervisor as the subreaper of the tree.
"""

import errno
import os
import signal

from pairuntime.supervisor.claim import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs memory
    from typing import Any, Callable, Container

V2 = "v2"
V1 = "v1"
PROC = "proc"

_PR_SET_CHILD_SUBREAPER = 36


_CLONE3 = 435
_CLONE_INTO_CGROUP = 0x200000000


def _clone3_call() -> "Callable[[int], int]":
    """A fork whose child starts in a cgroup (Linux 5.7).

    Moving a process into a cgroup afterwards waits for an RCU grace period of the whole machine: 20 ms and
    more. Starting there costs nothing.
    """
    import ctypes
    import struct

    # PyDLL keeps the GIL, so the child's interpreter is consistent. That Python does not know of the fork
    # does no harm: the child only prepares itself and calls exec.
    syscall = ctypes.PyDLL(None).syscall
    syscall.restype = ctypes.c_long
    # flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup
    request = struct.Struct("11Q")
    before = (_CLONE_INTO_CGROUP, 0, 0, 0, int(signal.SIGCHLD), 0, 0, 0, 0, 0)

    def clone3(cgroup: "int") -> "int":
        # Every page that is written here is copied again for the next fork: as few objects as possible.
        return syscall(_CLONE3, request.pack(*before, cgroup), request.size)  # type: ignore[no-any-return]

    return clone3


_clone3_known = []  # type: list[Callable[[int], int] | None]


def find_clone3() -> "Callable[[int], int] | None":
    """`clone3`, resolved on first use: the zygote does so at start, and its forks share the result."""
    if not _clone3_known:
        try:
            _clone3_known.append(_clone3_call())
        except (ImportError, OSError):  # a Python without ctypes: the child joins the cgroup itself
            _clone3_known.append(None)
    return _clone3_known[0]


def _find_prctl() -> "Callable[..., int] | None":
    """prctl by `_ctypes`: the import of `ctypes` takes three times as long."""
    try:
        import _ctypes

        address = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        call = _ctypes.call_function
        return lambda *arguments: int(call(address, arguments))
    except (ImportError, AttributeError, OSError):
        pass
    try:
        import ctypes

        return getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    except (ImportError, OSError):  # the tree is then found through /proc alone
        return None


_prctl = _find_prctl()


def become_subreaper(enabled: "bool" = True) -> "bool":
    """Make orphans of the tree children of this process instead of init's, so that none is missed."""
    return _prctl is not None and _prctl(_PR_SET_CHILD_SUBREAPER, int(enabled), 0, 0, 0) == 0


def ignored_signals() -> "list[int]":
    """Signals that this process ignores: those of Python, and those of a shell's `nohup` or `&`."""
    ignored = []
    for signum in range(1, signal.NSIG):
        try:
            if signal.getsignal(signum) == signal.SIG_IGN:
                ignored.append(signum)
        except (OSError, ValueError):
            pass  # not a signal on this machine
    return ignored


def take_account(account: "dict[str, Any]") -> "None":
    """Become the account of a task, with its groups.

    Python may be closed to it, as one below /root is: what this process still needs was imported before.
    """
    os.setgroups(account["groups"])
    os.setgid(account["gid"])
    os.setuid(account["uid"])


def may_enter(account: "dict[str, Any]", folder: "str") -> "bool":
    """Whether the account of a task, with its groups alone, may see what is in a folder. Asked by root."""
    gid, groups = os.getegid(), os.getgroups()
    try:
        os.setgroups(account["groups"])
        os.setegid(account["gid"])
        os.seteuid(account["uid"])
        return os.access(folder, os.X_OK, effective_ids=True)
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)


def send(pid: "int", signum: "int") -> "None":
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        pass


def children(pid: "int") -> "list[int]":
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid), "rb") as f:
            return [int(pid) for pid in f.read().split()]
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ESRCH) and os.path.exists(
            "/proc/self/task/%d/children" % os.getpid()
        ):
            return []
    return [child for child, parent in parents().items() if parent == pid]


def parents() -> "dict[int, int]":
    """Every process on the machine with its parent."""
    parent_of = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent_of[int(name)] = _parent_field(read_file("/proc/%s/stat" % name))
            except OSError:
                continue
    return parent_of


def descendants(pid: "int") -> "list[int]":
    pids = []  # type: list[int]
    seen = {pid}
    queue = [pid]
    while queue:
        for child in _children_of_threads(queue.pop()):
            if child not in seen:
                seen.add(child)
                pids.append(child)
                queue.append(child)
    return pids


def parents_first(pids: "set[int]") -> "list[int]":
    """Processes in the order to signal them: each before its children.

    A shell that handles a signal has to have it when a child that it waits for dies of the same signal; else
    it takes the child's end for a failed command. Numbers of processes give no such order: they start again
    at their maximum.
    """
    children_of = {}  # type: dict[int, list[int]]
    for pid in pids:
        children_of.setdefault(_parent(pid), []).append(pid)
    ordered = []  # type: list[int]
    queue = [pid for parent, children in children_of.items() if parent not in pids for pid in children]
    while queue:
        ordered += queue
        queue = [child for pid in queue for child in children_of.get(pid, ())]
    return ordered


def _parent(pid: "int") -> "int":
    """The parent of a process; 0 when it has exited."""
    try:
        return _parent_field(read_file("/proc/%d/stat" % pid))
    except OSError:
        return 0


def _parent_field(stat: "bytes") -> "int":
    return int(stat[stat.rindex(b")") + 2 :].split()[1])


def _children_of_threads(pid: "int") -> "list[int]":
    """Children of all threads of a process: the kernel lists a child under the thread that forked it."""
    pids = []  # type: list[int]
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return pids
    for thread in threads:
        try:
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as f:
                pids.extend(int(pid) for pid in f.read().split())
        except OSError:  # the thread has ended, or this kernel keeps no such list
            pids.extend(children(pid))
    return pids


def kill_below(pid: "int", spared: "Container[int]" = ()) -> "None":
    """Kill all descendants. They are stopped first, so that none forks meanwhile."""
    seen = set()  # type: set[int]
    while True:
        fresh = [child for child in descendants(pid) if child not in seen and child not in spared]
        if not fresh:
            break
        for child in fresh:
            send(child, signal.SIGSTOP)
        seen.update(fresh)
    for child in seen:
        send(child, signal.SIGKILL)


def pids_with_marker(marker: "bytes", work: "str" = "") -> "list[int]":
    """Processes whose environment has this ``NAME=value``.

    During exec a process has no environment for a moment. If its working folder is ``work`` then, it is
    counted too.
    """
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environment = read_file("/proc/%s/environ" % name)
                # The split only where it can matter: this is done for every process of the machine.
                if (marker in environment and marker in environment.split(b"\0")) or (
                    work and not environment and os.path.samefile("/proc/%s/cwd" % name, work)
                ):
                    pids.append(int(name))
            except OSError:
                continue
    return pids


def pids_with_open_file(path: "str") -> "list[int]":
    """Other processes that have this file open."""
    try:
        target = os.stat(path)
    except OSError:
        return []
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                for fd in os.listdir("/proc/%s/fd" % name):
                    try:
                        stat = os.stat("/proc/%s/fd/%s" % (name, fd))
                    except OSError:
                        continue
                    if (stat.st_ino, stat.st_dev) == (target.st_ino, target.st_dev):
                        pids.append(int(name))
                        break
            except OSError:
                continue
    return pids


_MAX_JOIN_RETRIES = 20


class Cgroup:
    """The cgroup directory of one task; without one ``path`` is empty.

    The supervisor is in it too, so that everything it starts is there from the first moment; unless the task
    has limits, which apply to the task alone.
    """

    def __init__(self, mode: "str", path: "str") -> "None":
        self.mode = mode
        self.path = path if mode != PROC else ""
        self._joined = False

    def create(self) -> "None":
        if self.path:
            try:
                os.makedirs(self.path)
            except FileExistsError:
                pass

    def fork(self) -> "int":
        """Fork a child that starts in the cgroup if possible; the child calls `join` in any case."""
        clone3 = find_clone3() if self.mode == V2 and self.path else None
        if clone3 is not None:
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                # It became empty and was removed by the sweep: `join` creates it again.
                return os.fork()
            pid = clone3(fd)
            if pid == 0:
                self._joined = True
            else:
                os.close(fd)
            if pid >= 0:
                return pid
        return os.fork()

    def join(self) -> "None":
        """Move this process into the cgroup, unless it started there."""
        if not self.path or self._joined:
            return
        for retries in range(_MAX_JOIN_RETRIES, -1, -1):
            try:
                fd = os.open(self.path + "/cgroup.procs", os.O_WRONLY)
                try:
                    os.write(fd, b"0")
                finally:
                    os.close(fd)
                return
            except OSError as e:
                # A server that started meanwhile found it empty and removed it, before the open or between
                # open and write.
                if e.errno not in (errno.ENOENT, errno.ENODEV) or not retries:
                    raise
                self.create()

    def members(self) -> "list[int]":
        if not self.path:
            return []
        try:
            with open(self.path + "/cgroup.procs", "rb") as f:
                return [int(pid) for pid in f.read().split()]
        except OSError:
            return []

    def kill(self) -> "None":
        """Kill all processes in it, the supervisor included: only after its death."""
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

    def kill_others(self, spared: "Container[int]" = ()) -> "None":
        """Kill all processes in it but the calling supervisor."""
        own = os.getpid()
        others = [pid for pid in self.members() if pid != own and pid not in spared]
        # Stopped first, so that none forks while the rest is being killed.
        for pid in others:
            send(pid, signal.SIGSTOP)
        for pid in others:
            send(pid, signal.SIGKILL)

    def remove(self) -> "None":
        if self.path:
            try:
                os.rmdir(self.path)
            except OSError:
                pass


def kill_orphaned(cgroup: "Cgroup", marker: "bytes", claim: "str", work: "str") -> "int":
    """Kill the processes that a dead supervisor left. Returns how many there were: call until it is 0.

    The tree is found by its cgroup, by the marker in its environment, and by descent. A child before exec has
    no marker but still has its parent's claim open; that is tested first, because exec goes from the one
    state to the other.
    """
    remaining = set(cgroup.members())
    if remaining:
        cgroup.kill()
    if cgroup.mode == V2:
        roots = pids_with_marker(marker)
    else:
        roots = pids_with_open_file(claim)
        roots += pids_with_marker(marker, work)
    remaining.update(roots, *(descendants(pid) for pid in roots))
    # Stopped first, so that none forks while the rest is being killed.
    for pid in remaining:
        send(pid, signal.SIGSTOP)
    for pid in remaining:
        send(pid, signal.SIGKILL)
    return len(remaining)
