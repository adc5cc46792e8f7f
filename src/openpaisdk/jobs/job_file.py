"""A job file: read, changed by ``--update``, and checked before anything is sent."""

from __future__ import annotations

import sys

from openpaisdk.errors import ProtocolError, UsageError
from openpaisdk.jobs.job_names import fill_placeholders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.protocol import JobSpec, JobV1

MAX_BYTES = 4 << 20
NAMES = ("name=", "jobName=")


def read_job_file(
    path: str,
    updates: list[str],
    *,
    virtual_cluster: str = "",
    notify: Callable[[str], None] | None = None,
) -> dict[str, object]:
    """The job in a file (``-``: the standard input) as plain data, updates applied, in the version it is in.

    Everything that is wrong comes in one error, with the line where it stands. ``tell`` gets what is odd
    about a version 2 job; of a version 1 job whoever takes it has more to say.
    """
    from openpaisdk.protocol import read_any_job

    name, source = read_contents(path)
    job: JobSpec | JobV1 | None = None
    before: ProtocolError | None = None
    try:
        job = read_any_job(source, file=name)
        data: dict[str, object] = dict(job.raw)
    except ProtocolError as error:
        # What is wrong may be what the updates mend, or a $ that is to be filled in.
        data = plain_data(source, name)
        if not isinstance(data, dict) or not (updates or _open_name(data)):
            raise
        before = error
    return _changed(data, job, before, updates, virtual_cluster, notify, name)


def update_job(
    data: dict[str, object],
    updates: list[str],
    *,
    virtual_cluster: str = "",
    notify: Callable[[str], None] | None = None,
    name: str = "the job",
) -> dict[str, object]:
    """A job that is plain data already, updates applied, checked."""
    return _changed(data, None, None, updates, virtual_cluster, notify, name)


def _changed(
    data: dict[str, object],
    job: JobSpec | JobV1 | None,
    before: ProtocolError | None,
    updates: list[str],
    virtual_cluster: str,
    tell: Callable[[str], None] | None,
    name: str,
) -> dict[str, object]:
    from openpaisdk.protocol import JobV1, apply_overrides, job_version, read_any_job

    changes = [fill_placeholders(u) if u.startswith(NAMES) else u for u in updates]
    if virtual_cluster:
        key = "virtualCluster" if job_version(data) == 1 else "defaults:virtualCluster"
        changes.append(f"{key}={virtual_cluster}")
    if changes or job is None:
        data = apply_overrides(data, changes)
        if key := _open_name(data):
            data[key] = fill_placeholders(str(data[key]))
        try:
            job = read_any_job(data, file=name)
        except ProtocolError as error:
            raise _with_places(error, before) from None
        data = dict(job.raw)
    for warning in () if isinstance(job, JobV1) else job.warnings:
        if tell:
            tell(str(warning))
    return data


def _with_places(after: ProtocolError, before: ProtocolError | None) -> ProtocolError:
    """An updated job has no text to point at; what was wrong before the updates still has its place."""
    from openpaisdk.protocol import Problem
    from openpaisdk.protocol.problems import protocol_error

    if before is None:
        return after
    places = {(p.path, p.message, p.found): p for p in before.problems if isinstance(p, Problem)}
    problems = [p for p in after.problems if isinstance(p, Problem)]
    return protocol_error([places.get((p.path, p.message, p.found), p) for p in problems])


def plain_data(source: bytes, name: str) -> dict[str, object]:
    """What a file says, before anybody asks whether that is a job. Only version 1 may have comments."""
    from openpaisdk.protocol import job_version
    from openpaisdk.protocol.document import read
    from openpaisdk.protocol.v1 import read_relaxed

    data: dict[str, object] = read_relaxed(source, name)[0].data
    return data if job_version(data) == 1 else read(source, name).data


def _open_name(data: dict[str, object]) -> str:
    """The key of a name with a $ in it, in either version; empty when there is none."""
    return next((name[:-1] for name in NAMES if "$" in str(data.get(name[:-1]))), "")


def read_contents(path: str) -> tuple[str, bytes]:
    """What to call a file, and what is in it; ``-`` is the standard input."""
    name = "the standard input" if path == "-" else path
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(path, "rb") as f:
                data = f.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, not a job file.") from None
    except (OSError, ValueError) as e:
        raise UsageError(f"{name} cannot be read: {getattr(e, 'strerror', '') or e}.") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES >> 20} MB: that is no job file.")
    return name, data
