"""Handshake file of a running server: its address, its process and the owner's token."""

from __future__ import annotations

import os

FILE = "server.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Handshake:
    """Content of ``server.json``. Boot id, pid and start time together identify one process."""

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
    """The handshake in a home folder; None if it is missing or incomplete."""
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


def is_alive(handshake: Handshake) -> bool:
    """Whether exactly that process is running: the token must not go to a process that reuses its port."""
    return boot_id() == handshake.boot_id and start_time(handshake.pid) == handshake.start_time


def is_listening(handshake: Handshake) -> bool:
    """Whether the server accepts connections. One that is exiting does not, and may still be alive."""
    import socket

    host, _, port = handshake.url.rpartition("//")[2].partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except (OSError, ValueError):
        return False
    return True


def boot_id() -> str:
    try:
        with open(BOOT_ID, encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return ""


def start_time(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None if it is not running."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            after_name = f.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(after_name) < 20 or after_name[0] in (b"Z", b"X"):
        return None
    return int(after_name[19])
