"""What a task's account has written, read with care: as root the server reads what others may have put there.

A link is not followed, a pipe not waited for, and nobody's numbers and words get further than where they make
sense. What makes none counts as not written.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paicluster.engines.interface import Loss, Placement
from paicluster.logs.reader import STREAMS, LogReader
from pairuntime.slurm import placement as placing
from pairuntime.supervisor import claim, exit_record

# Environments of large gangs are not in these files.
_LARGEST = 1 << 20
_LONGEST = 4000
_LATEST = 1 << 52
_MANY = 4096


def tail(path: Path, size: int = _LARGEST) -> bytes:
    """The end of a file; OSError when there is none that is one."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        return os.pread(fd, size, max(0, found.st_size - size))
    finally:
        os.close(fd)


def sanitize(value: object, longest: int = _LONGEST) -> str:
    """Words that any database and any terminal takes."""
    return "".join(one if one.isprintable() else " " for one in str(value)[:longest])


def json_of(path: Path) -> dict[str, Any] | None:
    """None: nothing is there. Empty: something is, and makes no sense."""
    try:
        found = json.loads(tail(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: object, most: int) -> int | None:
    right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
    return int(value) if right else None  # type: ignore[call-overload]


def read_claim(path: Path) -> dict[str, Any] | None:
    """Who owns an attempt; None: nobody. Empty: somebody."""
    said = json_of(path / claim.NAME)
    if not said:
        return said
    found: dict[str, Any] = {"claimed_ms": _number(said.get("claimed_ms"), _LATEST)}
    if "pid" in said:
        found["pid"] = _number(said["pid"], _LATEST) or 0
    if said.get("lost"):
        losses = {loss.value: loss for loss in Loss}
        found["lost"] = losses.get(str(said["lost"]), Loss.UNKNOWN)
    return found


def read_exit_record(path: Path) -> dict[str, Any] | None:
    """How an attempt ended; None: it has not said so."""
    said = json_of(path / exit_record.NAME)
    if not said:
        return None
    sent = said.get("signals_sent")
    return {
        "started_ms": _number(said.get("started_ms"), _LATEST) or 0,
        "ended_ms": _number(said.get("ended_ms"), _LATEST) or 0,
        "exit_code": _number(said.get("exit_code"), 255),
        "signal": _number(said.get("signal"), 64),
        "signals_sent": [one for one in sent if _number(one, 64)] if isinstance(sent, list) else [],
        "start_error": "\n".join(map(sanitize, str(said.get("start_error") or "")[:_LONGEST].split("\n"))),
        **{key: bool(said.get(key)) for key in ("stopped", "timed_out", "oom", "ended_by_slurm")},
        # What could not be kept leaves a log shorter than it was.
        "log_sizes": {} if said.get("log_dropped") else _sizes(said.get("log_sizes")),
    }


def _sizes(said: object) -> dict[str, int]:
    found = said if isinstance(said, dict) else {}
    return {stream: _number(found.get(stream), _LATEST) or 0 for stream in STREAMS}


def whole_log_is_shown(path: Path, ended: Mapping[str, Any]) -> bool:
    """A file system may show that a task ended before the last it wrote."""
    try:
        return all(LogReader(path, stream).size() >= size for stream, size in ended["log_sizes"].items())
    except OSError:  # what cannot be looked at is not waited for
        return True


def place_of(path: Path) -> Placement | None:
    said = json_of(path / placing.PLACE)
    if not said:
        return None
    ports, gpus = said.get("ports"), said.get("gpus")
    return Placement(
        sanitize(said.get("node", ""), 256),
        sanitize(said.get("ip", ""), 256),
        {sanitize(label, 256): _numbers(some, 65535) for label, some in list(ports.items())[:_MANY]}
        if isinstance(ports, dict)
        else {},
        _numbers(gpus, _MANY),
    )


def _numbers(some: object, most: int) -> tuple[int, ...]:
    if not isinstance(some, list):
        return ()
    return tuple(number for one in some[:_MANY] if (number := _number(one, most)) is not None)


def allocation_of(path: Path) -> tuple[str, str]:
    """The job of Slurm that an attempt runs in, and which part of it; empty when it does not say so."""
    said = json_of(path / placing.PLACE) or {}
    job, part = str(said.get("job", "")), str(said.get("part", ""))
    return (job, part if part.isdecimal() else "") if job.isdecimal() else ("", "")
