"""Summaries of jobs in lists: rendered for the store when a job changes, and pages of them as responses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec
from msgspec import UNSET
from sqlalchemy import Connection

from paicluster.api.wire.jobs import JobSummary, RetryDetails
from paicluster.store.job_failures import causes_of
from paicluster.store.job_list import ListPage, reasons_of
from paicluster.store.rows import JobRow, decode_tags

_REASONS_BATCH = 500
# Failed jobs of a page that have their cause, of which each is read with the end of a log. A list of more is
# for programs.
MAX_CAUSES = 1000
_texts_of = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class _ListedJob(msgspec.Struct):
    """What is read of a stored summary: it may be of another version of the server."""

    username: str
    name: str
    state: str


_listed_jobs = msgspec.json.Decoder(list[_ListedJob]).decode


def render_summary(row: JobRow) -> str:
    """The text that the store keeps with a job."""
    return _encode(summary_of(row)).decode()


def summary_of(row: JobRow) -> JobSummary:
    return JobSummary(
        debug_id=row.debug_id,
        name=row.name,
        username=row.username,
        state=row.state,
        sub_state=row.sub_state,
        execution_type=row.execution_type,
        tags=decode_tags(row.tags),
        retries=row.retries,
        retry_details=RetryDetails(row.retries_user, row.retries_platform, resource=0),
        retry_delay_time=None if row.retry_delay_s is None else math.ceil(row.retry_delay_s),
        submission_time=row.submission_ms,
        created_time=row.created_ms,
        # A job that never ran counts as launched when it ended, as in OpenPAI.
        launched_time=row.completed_ms if row.launched_ms is None else row.launched_ms,
        completed_time=row.completed_ms,
        app_exit_code=row.exit_code,
        virtual_cluster=row.vc,
        total_gpu_number=row.total_gpus,
        total_task_number=row.total_tasks,
        total_task_role_number=row.total_roles,
        job_priority=row.priority,
        failed_task_number=(row.total_tasks > 1 and row.failed_tasks) or UNSET,
    )


def page_body(page: ListPage) -> bytes:
    """The response: `list[JobSummary]`, or with a total a `JobPage`.

    Made of the texts in the store: decoding thousands of summaries would take longer than reading them.
    """
    if page.total is None:
        return b"[%b]" % page.summaries
    return b'{"totalCount":%d,"data":[%b]}' % (page.total, page.summaries)


def with_reasons(conn: Connection, page: ListPage, degraded_reason: Callable[[str], str]) -> ListPage:
    """The same page with the pending reason of each waiting job, or None where none was reported.

    ``degraded_reason(framework)`` takes precedence over reported reasons.
    """
    if b'"WAITING"' not in page.summaries:
        return page
    waiting = _frameworks(page, "WAITING")
    reasons = {name: reason for name in waiting.values() if (reason := degraded_reason(name))}
    names = [name for name in waiting.values() if name not in reasons]
    for start in range(0, len(names), _REASONS_BATCH):
        reasons.update(reasons_of(conn, names[start : start + _REASONS_BATCH]))
    return _with_reason(page, {index: reasons.get(name) for index, name in waiting.items()})


def with_causes(conn: Connection, page: ListPage, max_causes: int = MAX_CAUSES) -> ListPage:
    """The same page; the reason of each failed job, of the first ``max_causes``, is why it failed."""
    if not max_causes or b'"FAILED"' not in page.summaries:
        return page
    failed = _frameworks(page, "FAILED")
    causes = causes_of(conn, list(failed.values())[:max_causes])
    reasons = {index: causes[name] or None for index, name in failed.items() if name in causes}
    return _with_reason(page, reasons)


def _frameworks(page: ListPage, state: str) -> dict[int, str]:
    """The jobs of the page in a state: their frameworks by their places."""
    jobs = _listed_jobs(b"[%b]" % page.summaries)
    return {index: f"{job.username}~{job.name}" for index, job in enumerate(jobs) if job.state == state}


def _with_reason(page: ListPage, reasons: Mapping[int, str | None]) -> ListPage:
    """The page with the reasons of jobs by their places: the last field of a `JobSummary`."""
    texts = [bytes(text) for text in _texts_of(b"[%b]" % page.summaries)]
    for index, reason in reasons.items():
        texts[index] = b'%b,"reason":%b}' % (texts[index][:-1], _encode(reason))
    return ListPage(b",".join(texts), page.total)
