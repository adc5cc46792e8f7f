"""Outcome of a finished job in words: why it ended so, and what to do about it."""

from __future__ import annotations

from openpaisdk.client.models import mapping_at, name_list, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client.models import JobStatus


def outcome_reason(job: JobStatus) -> str:
    """Short reason for a job's final state."""
    if job.state == "FAILED":
        code = job.origin_exit_code
        if (
            code is None or (job.exit_code or 0) < 0
        ):  # negative codes come from the cluster, not from the program
            code = job.exit_code
        parts = [] if code is None else [f"exit code {code}"]
        message = (job.diagnostics.strip().splitlines() or [""])[0]
        _, separator, detail = message.partition(f"failed with exit code {job.exit_code}: ")
        if separator or (job.origin_exit_code is None and message):
            parts.append(detail or message)
        return ", ".join(parts)
    if job.state == "STOPPED":
        # The second line says why the job could not start, if that was so.
        return " ".join(["stopped on request", *(f"({line})" for line in job.diagnostics.splitlines()[1:2])])
    return ""


def known_solution(job: JobStatus) -> str:
    """What to do about a failure whose cause the cluster found in the log; else empty."""
    messages = mapping_at(mapping_at(job.raw, "jobStatus"), "appExitMessages")
    runtime = mapping_at(messages, "runtime")
    return (
        _solution(text(runtime, "caughtException"), text(runtime, "solution"))
        if job.state == "FAILED"
        else ""
    )


def _solution(reason: str, solution: str) -> str:
    """What to do, where this machine knows more than the cluster: which modules the user has."""
    from paiprotocol.jobs.failure_causes import missing_module

    module = missing_module(reason)
    if not module:
        return solution
    from openpaisdk.jobs.local_modules import local_advice

    return local_advice(module) or solution


def failure_details(job: JobStatus) -> dict[str, str]:
    """Details of a failed job: the cause, what to do about it, and the last line of its error output."""
    if job.state != "FAILED":
        return {}
    from paiprotocol.jobs.log_end import last_line

    status = mapping_at(job.raw, "jobStatus")
    spec = mapping_at(status, "appExitSpec")
    runtime = mapping_at(mapping_at(status, "appExitMessages"), "runtime")
    details = {
        # The reason that the job's state is shown with may be this cause already.
        "cause": "" if text(spec, "reason") in job.diagnostics else text(spec, "reason"),
        "what to do": _solution(text(spec, "reason"), next(iter(name_list(spec, "solution")), "")),
        "last line": last_line(text(mapping_at(runtime, "errorLogs"), "user")),
    }
    return {key: value for key, value in details.items() if value}
