"""Untrusted files: reads what a task's account has written, which a server running as root must not trust.

Links are not followed, pipes are not waited for, and every value is checked. An invalid value counts as not
written.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paicluster.engines.interface import Loss, Placement
from paicluster.logs.reader import STREAMS, LogReader
from paicluster.metrics.usage import GpuReading, UsageCounters
from pairuntime.reports import placement as placing
from pairuntime.slurm import gpu_usage
from pairuntime.supervisor import claim, exit_record

# Environments of large gangs are not in these files.
_MAX_FILE_BYTES = 1 << 20
_MAX_TEXT = 4000
_MAX_NUMBER = 1 << 52
_MAX_ITEMS = 4096
# Of an exit record.
_FLAGS = ("stopped", "timed_out", "oom", "ended_by_slurm", "ended_outside")


def tail(path: Path, size: int = _MAX_FILE_BYTES) -> bytes:
    """The end of a regular file; OSError if there is none."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        return os.pread(fd, size, max(0, status.st_size - size))
    finally:
        os.close(fd)


def sanitize(value: object, limit: int = _MAX_TEXT) -> str:
    """Printable text, safe for any database and terminal."""
    return "".join(char if char.isprintable() else " " for char in str(value)[:limit])


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no file, {} if it is invalid."""
    try:
        value = json.loads(tail(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object, maximum: int) -> int | None:
    is_valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= maximum
    return int(value) if is_valid else None  # type: ignore[call-overload]


def read_claim(path: Path) -> dict[str, Any] | None:
    """The claim file's content; None if unclaimed, {} if claimed but unreadable."""
    content = read_json(path / claim.NAME)
    if not content:
        return content
    found: dict[str, Any] = {"claimed_ms": _number(content.get("claimed_ms"), _MAX_NUMBER)}
    if "pid" in content:
        found["pid"] = _number(content["pid"], _MAX_NUMBER) or 0
    if content.get("lost"):
        losses = {loss.value: loss for loss in Loss}
        found["lost"] = losses.get(str(content["lost"]), Loss.UNKNOWN)
    return found


def read_exit_record(path: Path) -> dict[str, Any] | None:
    """The exit record of an attempt; None if there is none yet."""
    content = read_json(path / exit_record.NAME)
    if not content:
        return None
    sent = content.get("signals_sent")
    return {
        "started_ms": _number(content.get("started_ms"), _MAX_NUMBER) or 0,
        "ended_ms": _number(content.get("ended_ms"), _MAX_NUMBER) or 0,
        "exit_code": _number(content.get("exit_code"), 255),
        "signal": _number(content.get("signal"), 64),
        "signals_sent": [number for number in sent if _number(number, 64)] if isinstance(sent, list) else [],
        "start_error": "\n".join(
            map(sanitize, str(content.get("start_error") or "")[:_MAX_TEXT].split("\n"))
        ),
        **{
            key: bool(content.get(key))
            for key in ("stopped", "timed_out", "oom", "ended_by_slurm", "ended_outside")
        },
        # If parts could not be kept, the log is shorter than recorded.
        "log_sizes": {} if content.get("log_dropped") else _sizes(content.get("log_sizes")),
    }


def read_usage(file: Path) -> UsageCounters | None:
    """What a task reports to have used so far; None if there is no valid report."""
    content = read_json(file)
    if not content:
        return None
    values = [content.get(key) for key in ("cpu_s", "memory", "read", "written", "at_s")]
    if any(_number(value, _MAX_NUMBER) is None for value in values):
        return None
    cpu_s, memory, read, written, at_s = values
    gpus = dict(_gpus(content.get("gpus")))
    return UsageCounters(float(cpu_s), int(memory), int(read), int(written), float(at_s), gpus)  # type: ignore[arg-type]


def _gpus(value: object) -> Iterator[tuple[int, GpuReading]]:
    """Reported GPUs by number."""
    for gpu in value[: gpu_usage.MAX_GPUS] if isinstance(value, list) else ():
        match gpu:
            case [number, int() | float() as busy, used, total]:
                numbers = _numbers([number, used, total], _MAX_NUMBER)
                if len(numbers) == 3 and 0 <= busy <= 1:
                    yield numbers[0], GpuReading(float(busy), numbers[1], numbers[2])


def _sizes(value: object) -> dict[str, int]:
    sizes = value if isinstance(value, dict) else {}
    return {stream: _number(sizes.get(stream), _MAX_NUMBER) or 0 for stream in STREAMS}


def log_is_complete(path: Path, ended: Mapping[str, Any]) -> bool:
    """Whether the whole log is visible: a file system may show the exit record before the last writes."""
    try:
        return all(LogReader(path, stream).size() >= size for stream, size in ended["log_sizes"].items())
    except OSError:  # what cannot be read is not waited for
        return True


def read_placement(path: Path) -> Placement | None:
    content = read_json(path / placing.PLACEMENT)
    if not content:
        return None
    ports, gpus = content.get("ports"), content.get("gpus")
    return Placement(
        sanitize(content.get("node", ""), 256),
        sanitize(content.get("ip", ""), 256),
        {sanitize(label, 256): _numbers(values, 65535) for label, values in list(ports.items())[:_MAX_ITEMS]}
        if isinstance(ports, dict)
        else {},
        _numbers(gpus, _MAX_ITEMS),
    )


def _numbers(values: object, maximum: int) -> tuple[int, ...]:
    if not isinstance(values, list):
        return ()
    return tuple(number for item in values[:_MAX_ITEMS] if (number := _number(item, maximum)) is not None)
