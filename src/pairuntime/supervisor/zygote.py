"""A small process without threads from which supervisors are forked, already warm.

It reads lines from a socket, each a part of a gang: ``number<TAB>what``, then its members, each behind a NUL:
``folder<TAB>mode<TAB>cgroup``. It forks a supervisor for each, and answers with a line: their pids, or
``-errno`` when not all could be forked. They wait for each other before they claim anything: after ``wait``
more of the gang or a word follows, with ``go`` that was all and they go on, with ``drop`` none of them does.
When the socket closes (the server is gone) it ends; supervisors that wait leave, the others go on.
"""

import gc
import os
import signal

from pairuntime.supervisor import attempt as supervise
from pairuntime.supervisor import claim, container_attempt, process_tree, zygote_warmup

# Loaded here, so that no supervisor has to.
_LOADED = (container_attempt,)
# Why a supervisor died, where it could still say so.
FAILURE = "supervisor.err"

# Between two forks every page that is written has to be copied: so many are made ready at a time. Not more,
# because each supervisor keeps what was made ready with it, though shared with those.
_AT_ONCE = 10

WAIT = b"wait"
GO = b"go"
DROP = b"drop"


def serve(fd: "int") -> "int":
    # A descriptor below 3 that came closed would become one of ours, and then the program's.
    while True:
        spare = os.open(os.devnull, os.O_RDWR)
        if spare > 2:
            os.close(spare)
            break
    zygote_warmup.warm_up(fd)
    # Children are nobody's concern here: the kernel forgets them at once.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_tree.find_clone3()
    gc.collect()
    gc.disable()
    # What is there now is never looked at again by a collection: its pages stay shared (since 3.7).
    getattr(gc, "freeze", int)()
    nursery = ForkServer(fd)
    pending = b""
    try:
        while True:
            data = os.read(fd, 65536)
            if not data:
                return 0
            *parts, pending = (pending + data).split(b"\n")
            for part in parts:
                _send(fd, b" ".join(b"%d" % number for number in nursery.launch(part)) + b"\n")
    except OSError:  # the server died with answers unread
        return 0


def _send(fd: "int", data: "bytes") -> "None":
    while data:
        data = data[os.write(fd, data) :]


class ForkGroup:
    """Some that wait for each other: for a word each from this pipe, or for its end, which means no."""

    def __init__(self) -> "None":
        self.go_r, self.go_w = os.pipe()
        self.size = 0
        self.common = supervise.SharedEnvironment()

    def go(self) -> "None":
        _send(self.go_w, b"g" * self.size)

    def close(self) -> "None":
        os.close(self.go_r)
        os.close(self.go_w)


class ForkServer:
    """``fd`` is where questions come from: nothing for supervisors."""

    def __init__(self, fd: "int") -> "None":
        self._fd = fd
        self._gangs = {}  # type: dict[bytes, ForkGroup]

    def launch(self, part: "bytes") -> "list[int]":
        """A supervisor for each member of this part of a gang; all of the gang go on, or none."""
        head, *members = part.split(b"\0")
        number, what = head.split(b"\t")
        if number not in self._gangs:
            self._gangs[number] = ForkGroup()
        gang = self._gangs[number]
        try:
            pids = self._fork_all(gang, members)
            if what == GO:
                gang.go()
        except OSError as e:
            pids = [-(e.errno or 1)]
            what = DROP
        if what != WAIT:
            # Those that wait see the pipe close without a word, and leave.
            self._gangs.pop(number).close()
        return pids

    def _fork_all(self, gang: "ForkGroup", members: "list[bytes]") -> "list[int]":
        pids = []  # type: list[int]
        for start in range(0, len(members), _AT_ONCE):
            ready = [_Member(gang, member) for member in members[start : start + _AT_ONCE]]
            for member in ready:
                pid = member.cgroup.fork()
                if pid == 0:
                    self._leave(gang)
                    member.supervise_and_exit(gang.go_r)
                pids.append(pid)
        gang.size += len(pids)
        return pids

    def _leave(self, own: "ForkGroup") -> "None":
        """In the child: only what it waits for stays open."""
        os.close(self._fd)
        os.close(own.go_w)
        for gang in self._gangs.values():
            if gang is not own:
                gang.close()


class _Member:
    def __init__(self, gang: "ForkGroup", member: "bytes") -> "None":
        folder, mode, path = (os.fsdecode(part) for part in member.split(b"\t"))
        self.folder = folder
        self.cgroup = process_tree.Cgroup(mode, path)
        self.cgroup.create()
        self.attempt = None  # type: supervise.Attempt | None
        try:
            self.attempt = supervise.read(folder, self.cgroup, gang.common)
        except Exception:  # noqa: BLE001 - what is wrong with it its own supervisor finds out, and says
            pass

    def supervise_and_exit(self, go: "int") -> "None":
        status = 1
        try:
            os.setsid()
            # The server's terminal or pipe must not stay open for as long as the last task runs.
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 2)
            os.close(nothing)
            supervise.set_handler(signal.SIGCHLD, supervise.DEFAULT)
            try:
                attempt = self.attempt or supervise.read(
                    self.folder, self.cgroup, supervise.SharedEnvironment()
                )
            except Exception:
                if os.read(go, 1):
                    # Claimed, it is lost; unclaimed it would be launched again, and again.
                    claim.acquire(self.folder, os.path.basename(self.folder))
                raise
            attempt.install_signal_handlers()
            if os.read(go, 1):
                os.close(go)
                self.cgroup.join()
                status = attempt.supervise()
        except BaseException:
            # The attempt is then claimed without a record, or unclaimed: both are told apart from the
            # folder. Why it happened is said there too.
            import traceback

            try:
                fd = os.open(os.path.join(self.folder, FAILURE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(fd, "w") as f:
                    traceback.print_exc(file=f)
            except OSError:
                pass
        finally:
            os._exit(status)
