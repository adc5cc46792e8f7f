"""Jobs of either version: detecting the version, reading, listing problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from paiprotocol.errors import ProtocolError
from paiprotocol.jobs.document import decode_text, read
from paiprotocol.jobs.model import JobSpec
from paiprotocol.jobs.problems import Problem
from paiprotocol.jobs.v1 import JobV1, job_v1, read_relaxed
from paiprotocol.jobs.v2_reader import parse_job_v2


def job_version(data: Any) -> Literal[1, 2]:
    """Version of a job. Data of neither version counts as 2, whose errors then say what is missing."""
    if not isinstance(data, Mapping) or "protocolVersion" in data:
        return 2
    return 1 if "jobName" in data or isinstance(data.get("taskRoles"), list) else 2


def read_any_job(
    source: str | bytes | Mapping[str, Any], *, file: str | None = None, strict: bool = False
) -> JobSpec | JobV1:
    """Read a job of either version from text or plain data."""
    if isinstance(source, str | bytes):
        source = decode_text(source, file or "")
        if source.lstrip()[:1] in ("{", "/"):
            # Only version 1 allows comments and trailing commas; version 2 is parsed again, strictly.
            document, notes = read_relaxed(source, file)
            if job_version(document.data) == 1:
                return job_v1(document, notes, strict=strict)
    document = read(source, file)
    if job_version(document.data) == 1:
        return job_v1(document, [], strict=strict)
    return parse_job_v2(document, strict=strict)


def check_job(source: str | bytes | Mapping[str, Any], *, file: str | None = None) -> tuple[Problem, ...]:
    """All problems of a job, checked strictly; empty for a job without any.

    Problems of level "note" are remarks: a job with only those is valid.
    """
    try:
        return read_any_job(source, file=file, strict=True).warnings
    except ProtocolError as error:
        return tuple(problem for problem in error.problems if isinstance(problem, Problem))
