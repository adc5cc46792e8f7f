"""Strict validation of job files, without a cluster."""

from __future__ import annotations

from dataclasses import replace

from openpaisdk.jobs.job_file import plain_data, read_contents
from openpaisdk.jobs.job_names import fill_placeholders
from paiprotocol.errors import PaiError, ProtocolError
from paiprotocol.jobs import JobV1, Problem, convert_v1, job_version, read_any_job
from paiprotocol.jobs.document import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from paiprotocol.jobs import JobSpec

SHORT = "short"
NAMES = (("name",), ("jobName",))


class FileReport:
    """Problems of one job file."""

    def __init__(self, file: str, version: int | str | None, problems: Iterable[Problem], good: bool):
        self.file = file
        self.version = version
        """1, 2, "short" for a short job file, None if unknown."""
        self.problems = tuple(problems)
        self.is_good = good

    def as_dict(self) -> dict[str, object]:
        """The report as plain data, for JSON output."""
        return {
            "file": self.file,
            "version": self.version,
            "good": self.is_good,
            "problems": [{"level": level_of(p), **p.as_dict()} for p in self.problems],
        }


def level_of(problem: Problem) -> str:
    """Level of a problem; validation also rejects what clusters accept, so only errors and notes remain."""
    return "note" if problem.level == "note" else "error"


def check_file(path: str) -> FileReport:
    """Validate one file; ``-`` is standard input. An unreadable file is reported as a problem."""
    try:
        name, source = read_contents(path)
    except PaiError as error:
        return FileReport(path, None, (Problem((), error.message),), False)
    from openpaisdk.jobs.short_job_file import check_short_job, is_short_text

    try:
        if is_short_text(source, name):
            check_short_job(read(source, name))
            return FileReport(name, SHORT, (), True)
        job = _read(source, name)
        notes = job.warnings
        version = 2
        if isinstance(job, JobV1):
            # Clusters run the converted job: what version 2 does not have is rejected or dropped there.
            version, notes = 1, convert_v1(job, file=name).warnings
    except ProtocolError as error:
        problems = (p for p in error.problems if isinstance(p, Problem))
        return FileReport(name, _version(source, name), problems, False)
    return FileReport(name, version, (p if p.file else replace(p, file=name) for p in notes), True)


def _read(source: bytes, name: str) -> JobSpec | JobV1:
    """Read the job; a ``$`` in its name is replaced at submission, so it is not an error."""
    try:
        return read_any_job(source, file=name, strict=True)
    except ProtocolError as error:
        if any(isinstance(p, Problem) and p.path not in NAMES for p in error.problems):
            raise  # with line numbers, which the changed data does not have
        data = dict(plain_data(source, name))
        key = "jobName" if job_version(data) == 1 else "name"
        if "$" not in str(data.get(key)):
            raise
        return read_any_job({**data, key: fill_placeholders(str(data[key]))}, file=name, strict=True)


def _version(source: bytes, name: str) -> int | str | None:
    from openpaisdk.jobs.short_job_file import is_short_text

    if is_short_text(source, name):
        return SHORT
    try:
        return job_version(plain_data(source, name))
    except ProtocolError:
        return None
