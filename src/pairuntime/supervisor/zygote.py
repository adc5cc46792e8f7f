"""A small process without threads from which supervisors are forked, already warm.

It reads lines from a socket. ``fork N members`` asks for a gang, the members apart by NUL, each
``folder<TAB>mode<TAB>cgroup``, and is answered with a line: the supervisors' pids, or ``-errno`` when not all
could be forked and therefore none goes on. They wait and touch nothing until ``go N``; on ``no N`` they
leave.
When the socket closes (the server is gone) it ends; supervisors that wait leave, the others go on.
"""

import gc
import os
import signal

from pairuntime.supervisor import contained, supervise, tree

# Loaded here, so that no supervisor has to.
_LOADED = (contained,)
# Why a supervisor died, where it could still say so.
FAILURE = "supervisor.err"


def serve(fd: "int") -> "int":
    # A descriptor below 3 that came closed would become one of ours, and then the program's.
    while True:
        spare = os.open(os.devnull, os.O_RDWR)
        if spare > 2:
            os.close(spare)
            break
    # Children are nobody's concern here: the kernel forgets them at once.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tree.find_clone3()
    gc.collect()
    gc.disable()
    # What is there now is never looked at again by a collection: its pages stay shared (since 3.7).
    getattr(gc, "freeze", int)()
    pending = b""
    waiting = {}  # type: dict[bytes, Gang]
    try:
        while True:
            data = os.read(fd, 65536)
            if not data:
                return 0
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                word, _, rest = line.partition(b" ")
                number, _, members = rest.partition(b" ")
                if word == b"fork":
                    gang = Gang()
                    pids = gang.fork(members.split(b"\0"), fd, waiting)
                    if pids[0] > 0:
                        waiting[number] = gang
                    _send(fd, b" ".join(b"%d" % pid for pid in pids) + b"\n")
                elif number in waiting:
                    waiting.pop(number).part(go=word == b"go")
    except OSError:  # the server died with answers unread
        return 0


def _send(fd: "int", data: "bytes") -> "None":
    while data:
        data = data[os.write(fd, data) :]


class Gang:
    """Supervisors that wait for the same word before they claim anything."""

    def __init__(self) -> "None":
        self.ends = os.pipe()
        self._size = 0

    def fork(self, members: "list[bytes]", fd: "int", others: "dict[bytes, Gang]") -> "list[int]":
        """One for each member, or none. They keep nothing of ours, so that they notice when we are gone."""
        wait, go = self.ends
        ours = [fd, go]
        for other in others.values():
            ours.extend(other.ends)
        pids = []  # type: list[int]
        try:
            for member in members:
                folder, mode, path = (os.fsdecode(part) for part in member.split(b"\t"))
                cgroup = tree.Cgroup(mode, path)
                cgroup.make()
                pid = cgroup.fork()
                if pid == 0:
                    _supervise_and_exit(ours, wait, cgroup, folder)
                pids.append(pid)
        except OSError as e:
            self.part(go=False)
            return [-(e.errno or 1)]
        self._size = len(pids)
        return pids

    def part(self, go: "bool") -> "None":
        """Let them go. Or not: they see the pipe close without a word, and leave."""
        if go:
            _send(self.ends[1], b"g" * self._size)
        for end in self.ends:
            os.close(end)


def _supervise_and_exit(ours: "list[int]", go: "int", cgroup: "tree.Cgroup", folder: "str") -> "None":
    status = 1
    try:
        for fd in ours:
            os.close(fd)
        os.setsid()
        # The server's terminal or pipe must not stay open for as long as the last task runs.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 2)
        os.close(nothing)
        supervise.set_handler(signal.SIGCHLD, supervise.DEFAULT)
        if os.read(go, 1):
            os.close(go)
            cgroup.join()
            status = supervise.supervise(folder, cgroup)
    except BaseException:
        # The attempt is then claimed without a record, or unclaimed: both are told apart from the
        # folder. Why it happened is said there too.
        import traceback

        try:
            fd = os.open(os.path.join(folder, FAILURE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "w") as f:
                traceback.print_exc(file=f)
        except OSError:
            pass
    finally:
        os._exit(status)
