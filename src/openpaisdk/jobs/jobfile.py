"""A job file: read, changed by ``--update``, and checked before it is sent."""

from __future__ import annotations

import sys

from openpaisdk.errors import UsageError

LIMIT = 4 << 20


def read_job_file(path: str) -> dict[str, object]:
    """A job file as plain values; ``-`` is the standard input."""
    text = _text(path)
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        value = yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as e:
        where = f", line {e.problem_mark.line + 1}" if e.problem_mark else ""
        raise UsageError(f"{path}{where} is not valid YAML: {e.problem or e.context}.") from None
    except yaml.YAMLError as e:
        raise UsageError(f"{path} is not valid YAML: {str(e).splitlines()[0]}.") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} is not a job: it must hold keys like name, type and taskRoles.")
    return value


def updated(job: dict[str, object], changes: list[str]) -> dict[str, object]:
    """The job with each ``path=value`` set. Numbers and true/false are read as such, as in YAML."""
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals or not path.strip(":"):
            raise UsageError(
                f"--update {change}: write KEY=VALUE, as in name=again or defaults:virtualCluster=test."
            )
        _set(job, path.split(":"), _value(text), change)
    return job


def check_job(job: dict[str, object], path: str) -> None:
    """Refuse a job the cluster would refuse, with every problem named, before anything is sent."""
    import json

    from openpaisdk.protocol import read_job

    if "protocolVersion" not in job and "jobName" in job:
        raise UsageError(
            f"{path} is a job of version 1, which this pai cannot hand in yet.",
            hint="Write it as version 2: protocolVersion: 2, type: job, taskRoles with commands.",
        )
    read_job(json.dumps(job, default=str))


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


def _value(text: str) -> object:
    import yaml

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, int | float | bool) else text


def _set(job: dict[str, object], keys: list[str], value: object, change: str) -> None:
    at: object = job
    for i, key in enumerate(keys):
        last = i == len(keys) - 1
        if isinstance(at, dict):
            if last:
                at[key] = value
                return
            at = at.setdefault(key, {})
        elif isinstance(at, list) and key.lstrip("-").isdecimal() and -len(at) <= int(key) < len(at):
            if last:
                at[int(key)] = value
                return
            at = at[int(key)]
        else:
            break
    raise UsageError(f"--update {change}: the job has no place for it.")
