"""The zygote: a small process without threads from which warmed-up supervisors are forked.

It reads lines from a socket, each a part of a gang: ``number<TAB>command``, then the members, each after a
NUL: ``folder<TAB>mode<TAB>cgroup``. It forks a supervisor for each and replies with a line: their pids, or
``-errno`` if not all could be forked. Supervisors wait for their whole gang before they claim anything:
``wait`` announces another request for the gang, ``go`` starts all of them, ``drop`` makes all of them exit.
When the socket closes (the server has exited) the zygote exits; waiting supervisors exit too, running ones
stay.
"""

import gc
import os
import signal

from pairuntime.supervisor import attempt_factory, claim, container_attempt, process_tree, zygote_warmup
from pairuntime.supervisor.attempt import DEFAULT, Attempt, set_handler  # noqa: F401 - Attempt: type comment
from pairuntime.supervisor.shared_environment import SharedEnvironment

# Loaded here, so that no supervisor has to.
_LOADED = (container_attempt,)
# Traceback of a supervisor that failed.
FAILURE = "supervisor.err"

# Attempts read before they are forked, one batch at a time: between two forks every page that is written has
# to be copied. Not more, because each supervisor keeps the memory of its batch, shared with that batch only.
_FORK_BATCH = 10

WAIT = b"wait"
GO = b"go"
DROP = b"drop"


def serve(fd: "int") -> "int":
    # If stdin, stdout or stderr were closed, one of our descriptors would take its number and reach the
    # program.
    while True:
        spare = os.open(os.devnull, os.O_RDWR)
        if spare > 2:
            os.close(spare)
            break
    zygote_warmup.warm_up(fd)
    # Nothing waits for the children: the kernel reaps them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_tree.find_clone3()
    gc.collect()
    gc.disable()
    # Collections skip all objects that exist now, so that their pages stay shared (since 3.7).
    getattr(gc, "freeze", int)()
    server = ForkServer(fd)
    pending = b""
    try:
        while True:
            data = os.read(fd, 65536)
            if not data:
                return 0
            *parts, pending = (pending + data).split(b"\n")
            for part in parts:
                _send(fd, b" ".join(b"%d" % number for number in server.launch(part)) + b"\n")
    except OSError:  # the server died with replies unread
        return 0


def _send(fd: "int", data: "bytes") -> "None":
    while data:
        data = data[os.write(fd, data) :]


class ForkGroup:
    """Supervisors of one gang. Each waits for a byte from this pipe; end of file means to exit."""

    def __init__(self) -> "None":
        self.go_r, self.go_w = os.pipe()
        self.size = 0
        self.shared = SharedEnvironment()

    def go(self) -> "None":
        _send(self.go_w, b"g" * self.size)

    def close(self) -> "None":
        os.close(self.go_r)
        os.close(self.go_w)


class ForkServer:
    """Forks supervisors. ``fd`` is the socket of the server: supervisors close it."""

    def __init__(self, fd: "int") -> "None":
        self._fd = fd
        self._gangs = {}  # type: dict[bytes, ForkGroup]

    def launch(self, part: "bytes") -> "list[int]":
        """Fork a supervisor for each member of this part of a gang; the whole gang starts, or none of it."""
        head, *members = part.split(b"\0")
        number, command = head.split(b"\t")
        if number not in self._gangs:
            self._gangs[number] = ForkGroup()
        gang = self._gangs[number]
        try:
            pids = self._fork_all(gang, members)
            if command == GO:
                gang.go()
        except OSError as e:
            pids = [-(e.errno or 1)]
            command = DROP
        if command != WAIT:
            # Waiting supervisors read end of file and exit.
            self._gangs.pop(number).close()
        return pids

    def _fork_all(self, gang: "ForkGroup", members: "list[bytes]") -> "list[int]":
        pids = []  # type: list[int]
        for start in range(0, len(members), _FORK_BATCH):
            ready = [_Member(gang, member) for member in members[start : start + _FORK_BATCH]]
            for member in ready:
                pid = member.cgroup.fork()
                if pid == 0:
                    self._close_inherited(gang)
                    member.supervise_and_exit(gang.go_r)
                pids.append(pid)
        gang.size += len(pids)
        return pids

    def _close_inherited(self, own: "ForkGroup") -> "None":
        """In the child: close everything but the pipe it waits for."""
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
        self.attempt = None  # type: Attempt | None
        try:
            self.attempt = attempt_factory.read_attempt(folder, self.cgroup, gang.shared)
        except Exception:  # noqa: BLE001 - the supervisor of this attempt meets the error again, and records it
            pass

    def supervise_and_exit(self, go: "int") -> "None":
        status = 1
        try:
            os.setsid()
            # The server's terminal or pipe must not stay open for as long as the last task runs.
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 2)
            os.close(null)
            set_handler(signal.SIGCHLD, DEFAULT)
            try:
                attempt = self.attempt or attempt_factory.read_attempt(
                    self.folder, self.cgroup, SharedEnvironment()
                )
            except Exception:
                if os.read(go, 1):
                    # Claimed, the attempt is lost; unclaimed, it would be launched again forever.
                    claim.acquire(self.folder, os.path.basename(self.folder))
                raise
            attempt.install_signal_handlers()
            if os.read(go, 1):
                os.close(go)
                self.cgroup.join()
                status = attempt.supervise()
        except BaseException:
            # The attempt is then claimed without a record, or unclaimed: the folder shows which. The
            # traceback is left there too.
            import traceback

            try:
                fd = os.open(os.path.join(self.folder, FAILURE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(fd, "w") as f:
                    traceback.print_exc(file=f)
            except OSError:
                pass
        finally:
            os._exit(status)
