"""Summaries of jobs: texts in the database, and pages of them, are of the types that the API describes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from paicluster.api.v1.serializers import summaries
from paicluster.api.v2.job_summaries import page_body, render_summary, with_causes, with_reasons
from paicluster.api.wire.jobs import JobPage, JobSummary
from paicluster.store import Store, jobs
from paicluster.store.jobs import AttemptRow, JobQuery, JobRow, ListPage, NewJob
from support.prepared_database import prepare_database

ROW = JobRow(
    id=1,
    framework="alice~job",
    username="alice",
    name="job",
    debug_id="0123",
    vc="default",
    priority="prod",
    state="WAITING",
    sub_state="AttemptCompleted",
    execution_type="START",
    retries=3,
    retries_user=1,
    retries_platform=2,
    platform_streak=0,
    retry_delay_s=2.5,
    retry_at_ms=None,
    submission_ms=1_700_000_000_000,
    created_ms=1_700_000_000_123,
    launched_ms=None,
    completed_ms=None,
    exit_code=None,
    total_gpus=4,
    total_tasks=2,
    total_roles=1,
    attempt=3,
    generation="v2",
    tags='["a","ä"]',
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    prepare_database(tmp_path)
    opened = Store.open(tmp_path / "cluster.db", render_summary)
    yield opened
    opened.close()


def test_stored_text_is_that_of_earlier_versions() -> None:
    """A list has texts of jobs that changed before an upgrade beside texts of jobs that changed after it."""
    assert render_summary(ROW) == (
        '{"debugId":"0123","name":"job","username":"alice","state":"WAITING","subState":"AttemptCompleted",'
        '"executionType":"START","tags":["a","ä"],"retries":3,'
        '"retryDetails":{"user":1,"platform":2,"resource":0},"retryDelayTime":3,'
        '"submissionTime":1700000000000,"createdTime":1700000000123,"launchedTime":null,'
        '"completedTime":null,"appExitCode":null,"virtualCluster":"default","totalGpuNumber":4,'
        '"totalTaskNumber":2,"totalTaskRoleNumber":1,"jobPriority":"prod"}'
    )


def test_job_that_never_ran_is_launched_when_it_ended() -> None:
    text = render_summary(replace(ROW, completed_ms=7))
    summary = msgspec.json.decode(text, type=JobSummary)
    assert (summary.launched_time, summary.completed_time) == (7, 7)


def test_pages_are_the_types_that_the_document_describes(store: Store) -> None:
    """They are put together from texts: decoding and encoding them again must give the same bytes."""
    new = [NewJob("alice", f"job_{n}", "default", "{}", "{}", 1_700_000_000_123) for n in range(3)]
    store.write_sync(lambda conn: jobs.insert_jobs(conn, new))
    failed = AttemptRow(1, 0, "Completed", completed_ms=1, exit_code=3, diagnostics="out of memory")
    store.write_sync(lambda conn: jobs.upsert_attempt(conn, failed))
    store.write_sync(lambda conn: jobs.update_job(conn, 1, sub_state="Completed", exit_code=3))
    degraded = {"alice~job_1": "The disk is full."}
    for query, kind in ((JobQuery(), list[JobSummary]), (JobQuery(with_total=True), JobPage)):
        page = store.read_sync(lambda conn, query=query: jobs.list_jobs(conn, query))  # type: ignore[misc]
        explained = store.read_sync(
            lambda conn, page=page: with_causes(  # type: ignore[misc]
                conn, with_reasons(conn, page, lambda name: degraded.get(name, ""))
            )
        )
        for body in (page_body(page), page_body(explained)):
            decoded: list[JobSummary] | JobPage = msgspec.json.decode(body, type=kind)
            assert msgspec.json.encode(decoded) == body
        listed = decoded.data if isinstance(decoded, JobPage) else decoded
        assert [job.name for job in listed] == ["job_2", "job_1", "job_0"]
        assert (listed[0].reason, listed[1].reason) == (None, "The disk is full.")
        assert listed[2].state == "FAILED"
        assert listed[2].reason
    empty = store.read_sync(lambda conn: jobs.list_jobs(conn, JobQuery(limit=0, with_total=True)))
    assert page_body(empty) == b'{"totalCount":3,"data":[]}'


def test_summaries_of_another_version_are_listed(store: Store) -> None:
    """Only the texts of jobs that change are rendered again after an upgrade."""
    text = render_summary(ROW).replace('"retryDelayTime":3', '"retryDelayTime":2.5,"new":1')
    page = ListPage(text.encode(), 1)
    explained = store.read_sync(lambda conn: with_reasons(conn, page, lambda name: "The disk is full."))
    assert explained.summaries.decode() == text[:-1] + ',"reason":"The disk is full."}'
    assert [job.name for job in summaries(page)] == ["job"]


def test_store_without_a_renderer_writes_no_job(tmp_path: Path) -> None:
    """A list would show nothing of it."""
    prepare_database(tmp_path)
    bare = Store.open(tmp_path / "cluster.db")
    new = NewJob("alice", "job", "default", "{}", "{}", 0)
    with pytest.raises(RuntimeError, match="without a renderer"):
        bare.write_sync(lambda conn: jobs.insert_jobs(conn, [new]))
    assert bare.read_sync(lambda conn: jobs.get_job(conn, "alice~job")) is None
    bare.close()
