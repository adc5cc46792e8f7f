"""A job file: read, changed by ``--update``, and checked before anything is sent."""

from __future__ import annotations

import sys

from openpaisdk.errors import ProtocolError, UsageError
from openpaisdk.jobs.names import unique

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 4 << 20
NAMES = ("name=", "jobName=")


def read_job_file(
    path: str, updates: list[str], *, user: str = "", tell: Callable[[str], None] | None = None
) -> dict[str, object]:
    """The version 2 job in a file (``-``: the standard input), updates applied; version 1 is translated.

    Everything that is wrong comes in one error, with the line where it stands. ``tell`` gets what the
    translation could not carry over.
    """
    from openpaisdk.protocol import apply_updates, convert_v1, read_any_job
    from openpaisdk.protocol.text import read
    from openpaisdk.protocol.v1 import JobV1

    text = _text(path)
    name = "the standard input" if path == "-" else path
    try:
        job = read_any_job(text, file=name)
        data: dict[str, object] = dict(job.raw)
        changed = bool(updates)
    except ProtocolError:
        # What is wrong may be what the updates mend, or a $ that is to be filled in.
        data, changed = read(text, name).data, True
        if not isinstance(data, dict) or not (updates or _open_name(data)):
            raise
    if changed:
        data = apply_updates(data, [unique(u) if u.startswith(NAMES) else u for u in updates])
        if key := _open_name(data):
            data[key] = unique(str(data[key]))
        job = read_any_job(data)
        data = dict(job.raw)
    if isinstance(job, JobV1):
        converted = convert_v1(job, user=user)
        for warning in converted.warnings:
            if tell:
                tell(str(warning))
        data = dict(converted.data)
    return data


def _open_name(data: dict[str, object]) -> str:
    """The key of a name with a $ in it, in either version; empty when there is none."""
    return next((name[:-1] for name in NAMES if "$" in str(data.get(name[:-1]))), "")


def _text(path: str) -> str:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(LIMIT + 1)
        else:
            with open(path, "rb") as f:
                data = f.read(LIMIT + 1)
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, not a job file.") from None
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror}.") from None
    if len(data) > LIMIT:
        raise UsageError(f"{path} is larger than {LIMIT >> 20} MB: that is no job file.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text, so it is not a job file.") from None
