"""Usage file: what the processes of a task have used so far, for the server, which is on another machine."""

import json
import os
import time

from pairuntime.supervisor import process_usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pairuntime.supervisor.gpu_driver import Reading

NAME = "usage.json"
# Written in place and padded to one size: NFS shows the content of a file that is opened again at once, but
# for up to a minute the file that was renamed away.
SIZE_BYTES = 1024


def write(folder: "str", pids: "list[int]", gpus: "dict[int, Reading]") -> "float":
    """Write what these processes have used, and their GPUs by number; returns the processor time it took."""
    started_s = time.process_time()
    usages = []
    for pid in pids:
        stat = process_usage.read_stat(pid)
        if stat is not None:
            usages.append((pid, stat[2]))
    cpu_s, memory, read, written = process_usage.sum_usage(usages)
    # Only differences of this clock count: those of two machines differ.
    content = {
        "at_s": time.monotonic(),
        "cpu_s": cpu_s,
        "memory": memory,
        "read": read,
        "written": written,
        "gpus": [[number, *reading] for number, reading in gpus.items()],
    }
    fd = os.open(os.path.join(folder, NAME), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.pwrite(fd, json.dumps(content).encode().ljust(SIZE_BYTES), 0)
    finally:
        os.close(fd)
    return time.process_time() - started_s
