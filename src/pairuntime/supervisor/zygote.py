"""A small process without threads from which supervisors are forked, already warm.

It reads attempt folders, one a line, from a socket, forks for each, and answers ``pid folder`` or
``-errno folder``. When the socket closes (the server is gone) it ends; its supervisors go on.
"""

import gc
import os
import signal
import sys

from pairuntime.supervisor import supervise


def serve(fd: "int") -> "int":
    # Children are nobody's concern here: the kernel forgets them at once.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.disable()
    # What is there now is never looked at again by a collection: its pages stay shared (since 3.7).
    getattr(gc, "freeze", int)()
    pending = b""
    while True:
        try:
            data = os.read(fd, 65536)
        except ConnectionError:  # the server died with answers unread
            return 0
        if not data:
            return 0
        pending += data
        answer = []
        while True:
            line, newline, rest = pending.partition(b"\n")
            if not newline:
                break
            pending = rest
            answer.append(b"%d %s\n" % (_launch(fd, line), line))
        _send(fd, b"".join(answer))


def _send(fd: "int", data: "bytes") -> "None":
    while data:
        data = data[os.write(fd, data) :]


def _launch(fd: "int", folder: "bytes") -> "int":
    try:
        pid = os.fork()
    except OSError as e:
        return -(e.errno or 1)
    if pid == 0:
        _supervise_and_exit(fd, folder)
    return pid


def _supervise_and_exit(fd: "int", folder: "bytes") -> "None":
    status = 1
    try:
        os.close(fd)
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status = supervise.supervise(os.fsdecode(folder))
    except BaseException:
        # The attempt is then claimed without a record, or unclaimed: both are told apart from the
        # folder. Why it happened belongs in the server's log.
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)
