"""The file a running cluster leaves: where it listens, which process it is, and the owner's token."""

from __future__ import annotations

import os

FILE = "server.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Handshake:
    """What ``server.json`` says. Boot id, pid and start time together name one process and no other."""

    __slots__ = ("boot_id", "pid", "start_time", "token", "url", "user", "version")

    def __init__(
        self, url: str, pid: int, boot_id: str, start_time: int, version: str, user: str = "", token: str = ""
    ):
        self.url = url
        self.pid = pid
        self.boot_id = boot_id
        self.start_time = start_time
        self.version = version
        self.user = user
        self.token = token


def read_handshake(home: str) -> Handshake | None:
    """The handshake in a home; None where there is none, or only half of one."""
    try:
        with open(os.path.join(home, FILE), "rb") as f:
            text = f.read()
    except OSError:
        return None
    import json

    try:
        raw = json.loads(text)
        return Handshake(
            str(raw["url"]),
            int(raw["pid"]),
            str(raw["boot_id"]),
            int(raw["start_time"]),
            str(raw["version"]),
            str(raw.get("user") or ""),
            str(raw.get("token") or ""),
        )
    except (ValueError, KeyError, TypeError):
        return None


def is_alive(found: Handshake) -> bool:
    """Whether that very process runs: a token must never be sent to whoever got its port or its pid."""
    return boot_id() == found.boot_id and start_time(found.pid) == found.start_time


def boot_id() -> str:
    try:
        with open(BOOT_ID, encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return ""


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it does not run (any more)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            after_name = f.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(after_name) < 20 or after_name[0] in (b"Z", b"X"):
        return None
    return int(after_name[19])
