"""Upload of a task's outputs after its end, by a program that runs under the task's account."""

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs memory
    from typing import Callable

# Less time once a stop was requested.
_UPLOAD_TIMEOUT_S = 3600.0
_STOPPED_UPLOAD_TIMEOUT_S = 60.0


def has_outputs(upload: "dict[str, object] | None") -> "bool":
    """Whether there is anything to upload: the job has patterns, or the output folder is not empty."""
    if not upload:
        return False
    if upload.get("has_patterns"):
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
            write(b"The outputs could not be uploaded in time.\n")
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
