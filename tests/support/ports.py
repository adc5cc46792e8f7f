"""Free ports, for servers that cannot choose one themselves and for addresses where nothing listens.

A port that the kernel calls free may be the local port of any connection a moment later, so these are below
the range of such ports, and below the ports of tasks. Each stays reserved for its process: no other worker
gets it.
"""

from __future__ import annotations

import random
import socket

from paiprotocol.jobs.ports import PORT_START

_FIRST = 10_000
_ATTEMPTS = 1000
# One for each reserved port. The kernel takes them back when the process ends, however it ends.
_reservations: list[socket.socket] = []


def free_port() -> int:
    """A port that nothing uses and that no other process of the tests gets."""
    for port in (random.SystemRandom().randrange(_FIRST, PORT_START) for _ in range(_ATTEMPTS)):
        if _reserve(port):
            return port
    raise AssertionError(f"none of {_ATTEMPTS} ports from {_FIRST} to {PORT_START - 1} is free")


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def _reserve(port: int) -> bool:
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0pai-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("", port))
    except OSError:
        reservation.close()
        return False
    _reservations.append(reservation)
    return True
