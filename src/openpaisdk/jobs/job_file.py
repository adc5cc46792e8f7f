"""Job files: reading, applying ``--update``, and validating before anything is sent."""

from __future__ import annotations

import os
import sys

from openpaisdk.jobs.command import interpreter_of
from openpaisdk.jobs.job_names import fill_placeholders
from paiprotocol.errors import ProtocolError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from paiprotocol.jobs import JobSpec, JobV1

MAX_BYTES = 4 << 20
NAMES = ("name=", "jobName=")


def read_job_file(
    path: str,
    updates: list[str],
    *,
    virtual_cluster: str = "",
    notify: Callable[[str], None] | None = None,
) -> dict[str, object]:
    """The job in a file (``-``: standard input) as plain data of its own version, with updates applied.

    All problems come in one error, each with its line. ``notify`` gets the warnings of a version 2 job; those
    of a version 1 job come from the cluster or the conversion.
    """
    name, source = read_contents(path)
    return parse_job_file(name, source, updates, virtual_cluster=virtual_cluster, notify=notify)


def parse_job_file(
    name: str,
    source: bytes,
    updates: list[str],
    *,
    virtual_cluster: str = "",
    notify: Callable[[str], None] | None = None,
) -> dict[str, object]:
    """``read_job_file`` for the content of a file that was read before."""
    from paiprotocol.jobs import read_any_job

    job: JobSpec | JobV1 | None = None
    before: ProtocolError | None = None
    try:
        job = read_any_job(source, file=name)
        data: dict[str, object] = dict(job.raw)
    except ProtocolError as error:
        # The updates may fix the problem, or it is a $ placeholder in the name.
        data = plain_data(source, name)
        if not isinstance(data, dict) or not (updates or _placeholder_key(data)):
            raise
        before = error
    return _apply_and_check(data, job, before, updates, virtual_cluster, notify, name)


def update_job(
    data: dict[str, object],
    updates: list[str],
    *,
    virtual_cluster: str = "",
    notify: Callable[[str], None] | None = None,
    name: str = "the job",
) -> dict[str, object]:
    """A job given as plain data, with updates applied, validated."""
    return _apply_and_check(data, None, None, updates, virtual_cluster, notify, name)


def _apply_and_check(
    data: dict[str, object],
    job: JobSpec | JobV1 | None,
    before: ProtocolError | None,
    updates: list[str],
    virtual_cluster: str,
    tell: Callable[[str], None] | None,
    name: str,
) -> dict[str, object]:
    from paiprotocol.jobs import JobV1, apply_overrides, job_version, read_any_job

    changes = [fill_placeholders(u) if u.startswith(NAMES) else u for u in updates]
    if virtual_cluster:
        key = "virtualCluster" if job_version(data) == 1 else "defaults:virtualCluster"
        changes.append(f"{key}={virtual_cluster}")
    if changes or job is None:
        data = apply_overrides(data, changes)
        if key := _placeholder_key(data):
            data[key] = fill_placeholders(str(data[key]))
        try:
            job = read_any_job(data, file=name)
        except ProtocolError as error:
            raise _with_locations(error, before) from None
        data = dict(job.raw)
    for warning in () if isinstance(job, JobV1) else job.warnings:
        if tell:
            tell(str(warning))
    return data


def _with_locations(after: ProtocolError, before: ProtocolError | None) -> ProtocolError:
    """Problems of an updated job have no line; those that existed before the updates keep theirs."""
    from paiprotocol.jobs import Problem
    from paiprotocol.jobs.problems import protocol_error

    if before is None:
        return after
    located = {(p.path, p.message, p.found): p for p in before.problems if isinstance(p, Problem)}
    problems = [p for p in after.problems if isinstance(p, Problem)]
    return protocol_error([located.get((p.path, p.message, p.found), p) for p in problems])


def job_data(job: Mapping[str, Any] | str) -> dict[str, Any]:
    """A job as plain data: from a mapping, or from the text or the path of a job file."""
    if not isinstance(job, str):
        return dict(job)
    return read_job_file(job, []) if is_job_path(job) else parse_job_text(job)


def is_job_path(job: str) -> bool:
    """Whether a text names a job file, and is none itself."""
    return "\n" not in job and os.path.exists(job)


def parse_job_text(text: str) -> dict[str, Any]:
    """The job in a YAML or JSON text, not validated."""
    import yaml

    job = yaml.safe_load(text)
    if not isinstance(job, dict):
        raise UsageError("This text is not a job.")
    return job


def plain_data(source: bytes, name: str) -> dict[str, object]:
    """Data of a file that may not be a valid job. Only version 1 may have comments."""
    from paiprotocol.jobs import job_version
    from paiprotocol.jobs.document import read
    from paiprotocol.jobs.secret_references import replace_aliases
    from paiprotocol.jobs.v1 import read_relaxed

    data: dict[str, object] = read_relaxed(source, name)[0].data
    if job_version(data) == 1:
        return data
    document = read(source, name)
    replace_aliases(document)
    return document.data  # type: ignore[no-any-return]


def _placeholder_key(data: dict[str, object]) -> str:
    """Key of a job name with a ``$`` placeholder, in either version; empty if there is none."""
    return next((name[:-1] for name in NAMES if "$" in str(data.get(name[:-1]))), "")


def read_contents(path: str) -> tuple[str, bytes]:
    """Display name and content of a file; ``-`` is standard input."""
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
        raise UsageError(f"{name} is larger than {MAX_BYTES >> 20} MB, which is too large for a job file.")
    if interpreter := _script_interpreter(path, data):
        raise UsageError(
            f"{name} is a script, not a job file.",
            hint=f"Run it as a job with: pai sub -- {interpreter} {path}",
        )
    return name, data


def _script_interpreter(path: str, data: bytes) -> str:
    """The program that runs a script, by its first line or its ending; empty for a file that is no script."""
    if data.startswith(b"#!"):
        words = data[2:].splitlines()[0].decode("utf-8", "replace").split()
        if words[:1] and os.path.basename(words[0]) == "env":
            words = words[1:]
        return os.path.basename(words[0]) if words else ""
    return interpreter_of(path)
