"""What an attempt's folder tells of a task in a container, to whoever finds it later.

Read for every attempt, with an image or without: nothing heavy may be imported here.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pairuntime.supervisor import attempt

# Written first: what is in this folder is a container's.
CONTAINER_FILE = "box.json"
REJECTION_FILE = "refused.json"
# How folders with logins begin, for as long as a pull takes.
PULL_PREFIX = "pull-"


def remove_logins(scratch: Path) -> None:
    """What a server that was killed while it pulled has left."""
    for left in scratch.glob(f"{PULL_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)


def is_container(folder: Path) -> bool:
    return (folder / CONTAINER_FILE).exists()


def exec_command(folder: Path, command: Sequence[str], *, terminal: bool) -> list[str]:
    """What runs a command beside the task of this folder."""
    kept = json.loads((folder / CONTAINER_FILE).read_text())
    return [*kept["inside"]["terminal" if terminal else "plain"], *command]


def remove_command(folder: Path) -> tuple[list[str], dict[str, str]] | None:
    """The words that make sure nothing of the container is left, and the environment to run them in."""
    try:
        spec = json.loads((folder / attempt.SPEC).read_text())
        return [str(word) for word in spec["container"]["remove"]], dict(spec["env"])
    except (OSError, ValueError, KeyError):
        return None


def write_rejection(folder: Path, message: str, code: int) -> None:
    """Leave word of why the attempt will never run. It is then to be buried."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(folder / REJECTION_FILE, json.dumps({"message": message, "code": code}))


def read_rejection(folder: Path) -> tuple[str, int] | None:
    try:
        kept = json.loads((folder / REJECTION_FILE).read_text())
        return str(kept["message"]), int(kept["code"])
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
