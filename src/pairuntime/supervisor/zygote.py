"""A small process without threads from which supervisors are forked, already warm.

It reads gangs from a socket, one a line, the members apart by NUL, each ``folder<TAB>mode<TAB>cgroup``,
and answers each with a line: the supervisors' pids, or ``-errno`` when not all could be forked and
therefore none goes on.
When the socket closes (the server is gone) it ends; its supervisors go on.
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
    try:
        while True:
            data = os.read(fd, 65536)
            if not data:
                return 0
            *gangs, pending = (pending + data).split(b"\n")
            for gang in gangs:
                _send(fd, b" ".join(b"%d" % number for number in _launch(fd, gang.split(b"\0"))) + b"\n")
    except OSError:  # the server died with answers unread
        return 0


def _send(fd: "int", data: "bytes") -> "None":
    while data:
        data = data[os.write(fd, data) :]


def _launch(fd: "int", gang: "list[bytes]") -> "list[int]":
    """A supervisor for each of the gang, or none: they wait for each other before they claim anything."""
    go_r, go_w = os.pipe()
    pids = []  # type: list[int]
    try:
        for member in gang:
            folder, mode, path = (os.fsdecode(part) for part in member.split(b"\t"))
            cgroup = tree.Cgroup(mode, path)
            cgroup.make()
            pid = cgroup.fork()
            if pid == 0:
                os.close(go_w)
                _supervise_and_exit(fd, go_r, cgroup, folder)
            pids.append(pid)
        _send(go_w, b"g" * len(gang))
    except OSError as e:
        # Those that wait see the pipe close without a word, and leave.
        return [-(e.errno or 1)]
    finally:
        os.close(go_r)
        os.close(go_w)
    return pids


def _supervise_and_exit(fd: "int", go: "int", cgroup: "tree.Cgroup", folder: "str") -> "None":
    status = 1
    try:
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
