"""conmon of podman: what the removal of a container leaves if its client was killed while it created it.

podman does not know then that conmon was started. conmon waits for the container's first process, and that
for its start, which never comes.
"""

import os
import signal

from pairuntime.supervisor import claim, process_tree


def kill_left(container: "str") -> "None":
    """Kill the conmon of a removed container, with all of its processes."""
    left = _conmons(container)
    if not left:
        return
    parents = process_tree.parents()
    tree = set(left)
    while True:
        more = {pid for pid, parent in parents.items() if parent in tree} - tree
        if not more:
            break
        tree |= more
    # conmon first: it would call podman when its child ends.
    for pid in left + sorted(tree.difference(left)):
        process_tree.send(pid, signal.SIGKILL)


def _conmons(container: "str") -> "list[int]":
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _is_conmon(name, container)]


def _is_conmon(pid: "str", container: "str") -> "bool":
    try:
        line = claim.read_file("/proc/%s/cmdline" % pid)
    except OSError:
        return False
    is_named = b"\0-n\0" + container.encode() + b"\0" in line
    return is_named and os.path.basename(line.partition(b"\0")[0]) == b"conmon"
