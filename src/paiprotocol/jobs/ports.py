"""Ports by hash: a task's uid determines its ports, so no coordination is needed."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import md5

PORT_START = 15000
PORT_END = 40000
"""Exclusive end of the port range."""


def draw_port(uid: str, label: str, i: int, start: int = PORT_START, end: int = PORT_END) -> int:
    """The ``i``-th port of ``label`` for the task with this uid, in ``start .. end - 1``."""
    digest = md5(f"[{uid}][{label}][{i}]".encode(), usedforsecurity=False).hexdigest()
    return (int(digest[:12], 16) + int(digest[12:24], 16) + int(digest[24:], 16)) % (end - start) + start


def draw_ports(
    uid: str, counts: Mapping[str, int], among: range = range(PORT_START, PORT_END)
) -> dict[str, tuple[int, ...]]:
    """All ports of a task: ``counts`` has the number per label."""
    return {
        label: tuple(draw_port(uid, label, i, among.start, among.stop) for i in range(count))
        for label, count in counts.items()
    }
