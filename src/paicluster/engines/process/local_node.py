"""The local node: cores, memory, GPUs, address, ports."""

from __future__ import annotations

import os
import re
import socket
from functools import cache
from pathlib import Path

from paicluster.engines.interface import Node
from paiprotocol.jobs.ports import PORT_END, PORT_START
from pairuntime.supervisor import claim
from pairuntime.supervisor.gpu_driver import GpuDriver

_FIRST_UNPRIVILEGED_PORT = 1024
_MIN_PORTS = 2000


def detect_node(
    *,
    ip: str = "127.0.0.1",
    cpu: int | None = None,
    memory_mb: int | None = None,
    gpus: int | None = None,
) -> Node:
    """The local node. Resources that are not given are detected."""
    return Node(
        name=socket.gethostname(),
        ip=ip,
        cpu=cpu if cpu is not None else len(os.sched_getaffinity(0)),
        memory_mb=memory_mb if memory_mb is not None else machine_memory_mb(),
        gpus=tuple(range(gpus)) if gpus is not None else gpu_indexes(),
        non_ephemeral_ports=non_ephemeral_ports(*_ephemeral_range()[:2]),
    )


def process_identity() -> dict[str, object]:
    """Identity of this process that stays unique when its pid is reused."""
    pid = os.getpid()
    return {"pid": pid, "boot_id": claim.boot_id(), "start_time": claim.start_time(pid)}


def machine_memory_mb(proc: Path = Path("/proc")) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 0


def is_ephemeral(port: int) -> bool:
    """Whether the kernel may use this port for an outgoing connection."""
    first, last, reserved = _ephemeral_range()
    return first <= port <= last and port not in reserved


def non_ephemeral_ports(first: int, last: int) -> range:
    """Ports outside ``first`` to ``last``: part of the default range, else the larger remaining range."""
    usual = range(PORT_START, min(first, PORT_END))
    if len(usual) >= _MIN_PORTS:
        return usual
    return max(range(_FIRST_UNPRIVILEGED_PORT, first), range(last + 1, 1 << 16), key=len)


@cache
def _ephemeral_range() -> tuple[int, int, frozenset[int]]:
    settings = Path("/proc/sys/net/ipv4")
    first, last = (int(text) for text in (settings / "ip_local_port_range").read_text().split())
    reserved: set[int] = set()
    for part in (settings / "ip_local_reserved_ports").read_text().strip().split(","):
        if part:
            low, _, high = part.partition("-")
            reserved.update(range(int(low), int(high or low) + 1))
    return first, last, frozenset(reserved)


def gpu_indexes() -> tuple[int, ...]:
    """GPU indexes as in CUDA_VISIBLE_DEVICES: from the driver's library, else from the device files."""
    driver = GpuDriver.open()
    if driver is not None:
        try:
            count = driver.count()
        finally:
            driver.close()
        if count is not None:
            return tuple(range(count))
    matches = (re.fullmatch(r"nvidia(\d+)", name) for name in os.listdir("/dev"))
    return tuple(sorted(int(match[1]) for match in matches if match))
