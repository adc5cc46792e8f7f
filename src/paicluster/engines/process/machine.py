"""What this machine has: cores, memory, GPUs, an address."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from paicluster.engines.interface import Node
from pairuntime.supervisor import claim


def this_machine(
    *,
    ip: str = "127.0.0.1",
    cpu: int | None = None,
    memory_mb: int | None = None,
    gpus: int | None = None,
) -> Node:
    """What is not declared is looked up."""
    return Node(
        name=socket.gethostname(),
        ip=ip,
        cpu=cpu if cpu is not None else len(os.sched_getaffinity(0)),
        memory_mb=memory_mb if memory_mb is not None else _memory_mb(),
        gpus=tuple(range(gpus)) if gpus is not None else _gpus(),
    )


def process_identity() -> dict[str, object]:
    """What tells this process from any other, also after its number was given to another one."""
    pid = os.getpid()
    return {"pid": pid, "boot_id": claim.boot_id(), "start_time": claim.start_time(pid)}


def _memory_mb() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 0


def _gpus() -> tuple[int, ...]:
    found = (re.fullmatch(r"nvidia(\d+)", name) for name in os.listdir("/dev"))
    return tuple(sorted(int(m.group(1)) for m in found if m))
