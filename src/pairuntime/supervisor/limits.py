"""Cgroups that limit a task to the cores and the memory it requested, and to a number of processes.

If the cgroup of the task's tree can be limited, it is. Otherwise the task joins cgroups of its own in other
hierarchies. The supervisor is in none of them: memory that the task fills, even with files that stay after
it, must not keep the supervisor from recording what happened.
"""

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs memory
    from typing import Iterable


class Limits:
    """Limits of a task. ``groups``: mappings of ``path``, ``set`` (pairs of file and value) and ``join``."""

    def __init__(self, groups: "Iterable[dict[str, object]]" = ()) -> "None":
        self._groups = list(groups)

    def __bool__(self) -> "bool":
        return bool(self._groups)

    def create(self) -> "None":
        for group in self._groups:
            path = str(group["path"])
            os.makedirs(path, exist_ok=True)
            for name, value in group["set"]:  # type: ignore[attr-defined]
                try:
                    _write(os.path.join(path, name), value.encode())
                except OSError as e:
                    # More than a parent cgroup has: the parent limits it. And not every kernel counts swap.
                    if e.errno not in (errno.EINVAL, errno.ENOENT, errno.EBUSY, errno.EOPNOTSUPP):
                        raise

    def join(self) -> "None":
        for group in self._groups:
            if group["join"]:
                _write(os.path.join(str(group["path"]), "cgroup.procs"), b"0")

    def oom_killed(self) -> "bool":
        """Whether the kernel killed a process of these cgroups for lack of memory."""
        for group in self._groups:
            for name in ("memory.events", "memory.oom_control"):
                try:
                    with open(os.path.join(str(group["path"]), name), "rb") as f:
                        lines = f.read().splitlines()
                except OSError:
                    continue
                if any(line.startswith(b"oom_kill ") and int(line.split()[1]) > 0 for line in lines):
                    return True
        return False

    def forks_refused(self) -> "bool":
        """Whether the kernel refused a process or thread because there were as many as allowed."""
        for group in self._groups:
            try:
                with open(os.path.join(str(group["path"]), "pids.events"), "rb") as f:
                    lines = f.read().splitlines()
            except OSError:
                continue
            if any(line.startswith(b"max ") and int(line.split()[1]) > 0 for line in lines):
                return True
        return False

    def remove(self) -> "None":
        for group in self._groups:
            if group["join"]:
                try:
                    os.rmdir(str(group["path"]))
                except OSError:
                    pass


def _write(path: "str", value: "bytes") -> "None":
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, value)
    finally:
        os.close(fd)
