"""When a task has ended: its results are brought to the storage, by a program that runs as the task did."""

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs memory
    from typing import Callable

# A result is worth waiting for, but not for ever; less when somebody wants the task gone.
_UPLOAD_TIMEOUT_S = 3600.0
_STOPPED_UPLOAD_TIMEOUT_S = 60.0


def has_outputs(upload: "dict[str, object] | None") -> "bool":
    """Whether there is anything to bring: files the job named, or something in the folder for results."""
    if not upload:
        return False
    if upload.get("named"):
        return True
    try:
        return bool(os.listdir(str(upload["folder"])))
    except OSError:
        return False


def wait_for(
    pid: "int", out: "int", write: "Callable[[bytes], None]", stop_requested: "Callable[[], bool]"
) -> "bool":
    """Copy the uploader's output to ``write`` until it exits. True if it succeeded."""
    began = time.monotonic()
    poll = select.poll()
    poll.register(out, select.POLLIN | select.POLLHUP)
    while True:
        limit = _STOPPED_UPLOAD_TIMEOUT_S if stop_requested() else _UPLOAD_TIMEOUT_S
        if time.monotonic() - began > limit:
            write(b"The results could not be brought to the storage in time.\n")
            os.kill(pid, 9)
            break
        if not poll.poll(1000):
            continue
        data = os.read(out, 65536)
        if not data:
            break
        write(data)
    _, status = os.waitpid(pid, 0)
    return status == 0
