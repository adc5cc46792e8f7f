"""List of jobs that prints as a table in a REPL and in a notebook."""

from __future__ import annotations

from collections.abc import Callable

from openpaisdk.client.models import JobSummary

_COLUMNS: dict[str, Callable[[JobSummary], str]] = {
    "NAME": lambda job: job.name,
    "USER": lambda job: job.user,
    "STATE": lambda job: job.state,
    "SUBMITTED": lambda job: _submission_time(job.submitted_ms),
    "DURATION": lambda job: _duration(job),
    "GPUS": lambda job: str(job.gpus),
    "VC": lambda job: job.virtual_cluster,
}


class JobList(list[JobSummary]):
    """Job summaries of a cluster, printed as a table."""

    def __repr__(self) -> str:
        if not self:
            return "<no jobs>"
        from openpaisdk.output import table

        return table(list(_COLUMNS), [[cell(job) for cell in _COLUMNS.values()] for job in self])

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no jobs</p>"
        from openpaisdk.output.html import html_table

        return html_table(list(_COLUMNS), [[cell(job) for cell in _COLUMNS.values()] for job in self])


def _submission_time(ms: int | None) -> str:
    from openpaisdk.output import format_time

    return format_time(ms)


def _duration(job: JobSummary) -> str:
    from openpaisdk.output import format_duration

    return format_duration(job.launched_ms, job.completed_ms)
