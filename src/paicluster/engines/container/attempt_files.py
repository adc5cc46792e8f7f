"""Marker files in the attempt folder of a task in a container.

Used for every attempt, with an image or without: nothing heavy may be imported here.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from paiprotocol.errors import NotFound
from pairuntime.supervisor import attempt

# Written first: marks the folder of a container.
CONTAINER_FILE = "container.json"
REJECTION_FILE = "rejected.json"
# Prefix of folders with registry logins, which exist during a pull.
PULL_PREFIX = "pull-"


def remove_logins(scratch: Path) -> None:
    """Remove logins that a server left when it was killed during a pull."""
    for folder in scratch.glob(f"{PULL_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)


def is_container(folder: Path) -> bool:
    return (folder / CONTAINER_FILE).exists()


def exec_command(folder: Path, command: Sequence[str], *, terminal: bool) -> list[str]:
    """Command line that runs a command in the container of this folder."""
    content = json.loads((folder / CONTAINER_FILE).read_text())
    return [*content["exec"]["terminal" if terminal else "plain"], *command]


def pid_command(folder: Path) -> list[str]:
    """Command line that prints the number of the container's first process; 0 if it does not run."""
    try:
        return list(json.loads((folder / CONTAINER_FILE).read_text())["pid"])
    except KeyError:
        raise NotFound(
            "An earlier version of the cluster started this task: its ports cannot be forwarded. "
            "Submit the job again to forward its ports."
        ) from None


def remove_command(folder: Path) -> tuple[list[str], dict[str, str]] | None:
    """Command that removes the container, and the environment to run it with."""
    try:
        spec = json.loads((folder / attempt.SPEC).read_text())
        return [str(argument) for argument in spec["container"]["remove"]], dict(spec["env"])
    except (OSError, ValueError, KeyError):
        return None


def write_rejection(folder: Path, message: str, code: int) -> None:
    """Record why the attempt will never run. The caller then writes the tombstone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(folder / REJECTION_FILE, json.dumps({"message": message, "code": code}))


def read_rejection(folder: Path) -> tuple[str, int] | None:
    try:
        content = json.loads((folder / REJECTION_FILE).read_text())
        return str(content["message"]), int(content["code"])
    except (OSError, ValueError, KeyError):
        return None


def requested_image(folder: Path) -> str:
    try:
        return str(json.loads((folder / CONTAINER_FILE).read_text())["image"])
    except (OSError, ValueError, KeyError):
        return ""


def write(path: Path, text: str, mode: int = 0o600) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.fchmod(fd, mode)
        data = text.encode()
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)
