"""The processes of one task: who they are, signalling them all, and knowing that none is left.

Three ways, the best one that the machine allows: cgroup v2 (also in hybrid mode), a cgroup v1
hierarchy, or the kernel's process table with this process as the subreaper of the tree.
"""

import errno
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers believe in; importing typing costs memory
    from typing import Callable

V2 = "v2"
V1 = "v1"
PROC = "proc"

_PR_SET_CHILD_SUBREAPER = 36


_CLONE3 = 435
_CLONE_INTO_CGROUP = 0x200000000


def _clone3_call() -> "Callable[[int], int]":
    """A fork whose child is born in a cgroup (Linux 5.7).

    Moving a process into a cgroup afterwards waits for the whole machine to pass through a quiet
    state: 20 ms and more. Being born there costs nothing.
    """
    import ctypes
    import struct

    # PyDLL keeps the interpreter's lock, so the child finds everything as it was. That it is a copy
    # nobody told it of does no harm: it only prepares itself and becomes another program.
    syscall = ctypes.PyDLL(None).syscall
    syscall.restype = ctypes.c_long
    # flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup
    request = struct.Struct("11Q")
    before = (_CLONE_INTO_CGROUP, 0, 0, 0, int(signal.SIGCHLD), 0, 0, 0, 0, 0)

    def clone3(cgroup: "int") -> "int":
        # Every page that is written here is copied once more for the next one: plain words only.
        return syscall(_CLONE3, request.pack(*before, cgroup), request.size)  # type: ignore[no-any-return]

    return clone3


_clone3_known = []  # type: list[Callable[[int], int] | None]


def find_clone3() -> "Callable[[int], int] | None":
    """Looked for when first wanted: the zygote does so before all else, and its copies share it."""
    if not _clone3_known:
        try:
            _clone3_known.append(_clone3_call())
        except (ImportError, OSError):  # a Python without ctypes: the child joins by itself
            _clone3_known.append(None)
    return _clone3_known[0]


def _find_prctl() -> "Callable[..., int] | None":
    """By the inner half of ctypes: the outer one takes thrice as long to load."""
    try:
        import _ctypes

        address = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        call = _ctypes.call_function
        return lambda *words: int(call(address, words))
    except (ImportError, AttributeError, OSError):
        pass
    try:
        import ctypes

        return getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    except (ImportError, OSError):  # the tree is then found through /proc alone
        return None


_prctl = _find_prctl()


def become_subreaper(enabled: "bool" = True) -> "bool":
    """Orphans of the tree become our children instead of init's, so none can slip away."""
    return _prctl is not None and _prctl(_PR_SET_CHILD_SUBREAPER, int(enabled), 0, 0, 0) == 0


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
    seen = {pid}
    queue = [pid]
    while queue:
        for child in _children_of_threads(queue.pop()):
            if child not in seen:
                seen.add(child)
                found.append(child)
                queue.append(child)
    return found


def _children_of_threads(pid: "int") -> "list[int]":
    """A thread other than the first may have forked: its children are listed under it."""
    found = []  # type: list[int]
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return found
    for thread in threads:
        try:
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as f:
                found.extend(int(word) for word in f.read().split())
        except OSError:  # the thread has ended, or this kernel keeps no such list
            found.extend(children(pid))
    return found


def kill_below(pid: "int") -> "None":
    """Kill all descendants. They are stopped first, so that nothing forks away from under us."""
    seen = set()  # type: set[int]
    while True:
        fresh = [child for child in descendants(pid) if child not in seen]
        if not fresh:
            break
        for child in fresh:
            send(child, signal.SIGSTOP)
        seen.update(fresh)
    for child in seen:
        send(child, signal.SIGKILL)


def pids_with_marker(marker: "bytes", work: "str" = "") -> "list[int]":
    """Processes of ours whose environment carries this ``NAME=value``.

    For a moment, while a process becomes another program, it has no environment at all. If it is then
    in the folder ``work``, it is taken for one of them.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/environ" % name, "rb") as f:
                    environment = f.read()
                if marker in environment.split(b"\0") or (
                    work and not environment and os.path.samefile("/proc/%s/cwd" % name, work)
                ):
                    found.append(int(name))
            except OSError:
                continue
    return found


def pids_with_open_file(path: "str") -> "list[int]":
    """Other processes that have this file open."""
    try:
        wanted = os.stat(path)
    except OSError:
        return []
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                for fd in os.listdir("/proc/%s/fd" % name):
                    try:
                        about = os.stat("/proc/%s/fd/%s" % (name, fd))
                    except OSError:
                        continue
                    if (about.st_ino, about.st_dev) == (wanted.st_ino, wanted.st_dev):
                        found.append(int(name))
                        break
            except OSError:
                continue
    return found


_JOIN_TRIES = 20


class Cgroup:
    """One cgroup directory for one task; ``path`` empty means that there is none.

    The supervisor is in it too: what it starts is then there from the first moment. Unless the task has
    limits, which are its own.
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
        """A fork whose child is born in the group where that can be; else it must still `join`."""
        clone3 = find_clone3() if self.mode == V2 and self.path else None
        if clone3 is not None:
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                # Whoever else was in it has left, and it was swept away: `join` makes it again.
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
        """Put this process into the group, unless it was born there."""
        if not self.path or self._joined:
            return
        for left in range(_JOIN_TRIES, -1, -1):
            try:
                fd = os.open(self.path + "/cgroup.procs", os.O_WRONLY)
                try:
                    os.write(fd, b"0")
                finally:
                    os.close(fd)
                return
            except OSError as e:
                # A server that started meanwhile found it empty and swept it away, before we had opened
                # it or between that and our first word to it.
                if e.errno not in (errno.ENOENT, errno.ENODEV) or not left:
                    raise
                self.create()

    def members(self) -> "list[int]":
        if not self.path:
            return []
        try:
            with open(self.path + "/cgroup.procs", "rb") as f:
                return [int(word) for word in f.read().split()]
        except OSError:
            return []

    def kill(self) -> "None":
        """Everyone in it, the supervisor as well: for when that one is dead already."""
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

    def kill_others(self) -> "None":
        """Everyone in it but the supervisor that calls."""
        own = os.getpid()
        others = [pid for pid in self.members() if pid != own]
        # Stopped first, so that nothing forks away while the rest is being killed.
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
    """Kill what a dead supervisor left behind. Gives how many were still there: call until it is 0.

    The tree is known by its cgroup, by the mark in its environment, and by descent from there. A child
    that has yet to become the program has no mark, but still has its parent's claim open; that is looked
    for first, because it goes from the one state to the other.
    """
    left = set(cgroup.members())
    if left:
        cgroup.kill()
    if cgroup.mode == V2:
        roots = pids_with_marker(marker)
    else:
        roots = pids_with_open_file(claim)
        roots += pids_with_marker(marker, work)
    left.update(roots, *(descendants(pid) for pid in roots))
    # Stopped first, so that nothing forks away while the rest is being killed.
    for pid in left:
        send(pid, signal.SIGSTOP)
    for pid in left:
        send(pid, signal.SIGKILL)
    return len(left)
