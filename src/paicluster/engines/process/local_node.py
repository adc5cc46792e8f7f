"""What this machine has: cores, memory, GPUs, an address."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

from openpaisdk.protocol.ports import PORT_END, PORT_START
from paicluster.engines.interface import Node
from paicluster.engines.process.gpus import gpu_indexes
from pairuntime.supervisor import claim

_FIRST_FREE_TO_ALL = 1024
_ENOUGH_PORTS = 2000


def detect_node(
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
        gpus=tuple(range(gpus)) if gpus is not None else gpu_indexes(),
        non_ephemeral_ports=non_ephemeral_ports(*_ephemeral()[:2]),
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


def is_ephemeral(port: int) -> bool:
    """Whether the kernel may give this port to anybody who connects somewhere."""
    first, last, reserved = _ephemeral()
    return first <= port <= last and port not in reserved


def non_ephemeral_ports(first: int, last: int) -> range:
    """The ports beside those from ``first`` to ``last``: of the usual ones, else where most are."""
    usual = range(PORT_START, min(first, PORT_END))
    if len(usual) >= _ENOUGH_PORTS:
        return usual
    return max(range(_FIRST_FREE_TO_ALL, first), range(last + 1, 1 << 16), key=len)


@cache
def _ephemeral() -> tuple[int, int, frozenset[int]]:
    settings = Path("/proc/sys/net/ipv4")
    first, last = (int(word) for word in (settings / "ip_local_port_range").read_text().split())
    reserved: set[int] = set()
    for part in (settings / "ip_local_reserved_ports").read_text().strip().split(","):
        if part:
            low, _, high = part.partition("-")
            reserved.update(range(int(low), int(high or low) + 1))
    return first, last, frozenset(reserved)
