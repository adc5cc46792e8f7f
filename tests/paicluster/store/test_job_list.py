"""Job listing compared with a plain model."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store, job_query, jobs
from paicluster.store.job_failures import cause_of
from paicluster.store.jobs import Inserted, JobQuery, JobRow, NewJob
from paicluster.store.rows import AttemptRow
from paicluster.store.sqlite_sql import INDEX_BATCH, SqliteSql
from paiprotocol.errors import InvalidParameters
from support.databases import KINDS, database_of

USERS = ("alice", "bob", "x")
VCS = ("default", "vision", "ali")
PRIORITIES = (None, "oppo", "test", "prod")
TAGS = ("red", "green", "blue")
STATES = ("WAITING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED")
ENDS = {"SUCCEEDED": 0, "FAILED": 255, "STOPPED": -210}
FIELDS = {
    "jobName": lambda job: job.name,
    "submissionTime": lambda job: (),
    "username": lambda job: job.username,
    "vc": lambda job: job.vc,
    "retries": lambda job: job.retries,
    "totalTaskNumber": lambda job: job.total_tasks,
    "totalGpuNumber": lambda job: job.total_gpus,
    "state": lambda job: job.state,
    "completionTime": lambda job: (job.completed_ms is None, job.completed_ms or 0),
    "duration": lambda job: (
        job.completed_ms is None,
        0 if job.completed_ms is None or job.launched_ms is None else job.completed_ms - job.launched_ms,
    ),
    "jobPriority": lambda job: (job.priority is None, job.priority or ""),
}


@pytest.fixture(scope="module", params=KINDS)
def listing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, list[JobRow]]]:
    """A store with 700 different jobs: more than one batch of the keyword index."""
    with database_of(request, tmp_path_factory.mktemp("listing")) as database:
        store = Store.open(database, render_summary)
        yield store, fill(store)
        store.close()


@pytest.fixture(scope="module")
def listing_in_a_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, list[JobRow]]]:
    """The same on SQLite, for tests of its plans."""
    store = Store.open(tmp_path_factory.mktemp("listing") / "cluster.db", render_summary)
    yield store, fill(store)
    store.close()


def fill(store: Store) -> list[JobRow]:
    dice = random.Random(7)
    new = [
        NewJob(
            dice.choice(USERS),
            f"{dice.choice(('train', 'eval', 'Träin', 'a'))}_{n % 350}_{dice.choice('xyz')}",
            dice.choice(VCS),
            "",
            "{}",
            # Not in the order of ids, and often equal.
            1_700_000_000_000 + dice.randrange(50) * 1000 + dice.randrange(1000),
            total_gpus=dice.randrange(3),
            total_tasks=dice.randrange(1, 4),
            priority=dice.choice(PRIORITIES),
            tags=tuple(tag for tag in TAGS if dice.random() < 0.3),
        )
        for n in range(700)
    ]

    def insert(conn: Connection) -> None:
        for start in range(0, len(new), 50):
            for result in jobs.insert_jobs(conn, new[start : start + 50]):
                if isinstance(result, Inserted):
                    change(conn, result.id)

    def change(conn: Connection, job_id: int) -> None:
        state = dice.choice(STATES)
        columns: dict[str, Any] = {"retries": dice.randrange(3)}
        if state == "RUNNING":
            columns["sub_state"] = "AttemptRunning"
        elif state in ENDS:
            columns |= {"sub_state": "Completed", "exit_code": ENDS[state], "completed_ms": dice.randrange(9)}
            # Some ended before they ran.
            columns["launched_ms"] = min(columns["completed_ms"], job_id % 5) if job_id % 7 else None
        jobs.update_job(conn, job_id, **columns)

    store.write_sync(insert)
    rows = store.read_sync(lambda conn: [jobs.get_job_by_id(conn, n) for n in range(1, len(new) + 1)])
    return [row for row in rows if row is not None]


def model(rows: list[JobRow], query: JobQuery) -> tuple[list[str], int]:
    def matches(job: JobRow) -> bool:
        tags = set(json.loads(job.tags))
        return (
            (not query.username or job.username in query.username)
            and (not query.vc or job.vc in query.vc)
            and (not query.state or job.state in query.state)
            and (not query.keyword or any(query.keyword in text for text in (job.name, job.username, job.vc)))
            and (not query.tags_contain or bool(tags & set(query.tags_contain)))
            and (not query.tags_not_contain or not tags & set(query.tags_not_contain))
            and (not query.priorities or (job.priority or "default") in query.priorities)
        )

    field, _, direction = query.order.partition(",")
    if field not in FIELDS or direction not in ("ASC", "DESC"):
        field, direction = "submissionTime", "DESC"
    matching = [job for job in rows if matches(job)]
    # Of jobs that run, the oldest has run longest.
    sign = -1 if field == "duration" else 1
    matching.sort(
        key=lambda job: (FIELDS[field](job), sign * job.submission_ms, job.id), reverse=direction == "DESC"
    )
    page = matching[query.offset : query.offset + query.limit]
    return [f"{job.username}~{job.name}" for job in page], len(matching)


def listed(store: Store, query: JobQuery) -> tuple[list[str], int]:
    page = store.read_sync(lambda conn: jobs.list_jobs(conn, query))
    assert page.total is not None
    return [f"{entry['username']}~{entry['name']}" for entry in summaries(page)], page.total


def summaries(page: jobs.ListPage) -> list[dict[str, Any]]:
    return json.loads(b"[%b]" % page.summaries)  # type: ignore[no-any-return]


def some(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.one_of(st.just(()), st.lists(st.sampled_from(values), max_size=4).map(tuple))


QUERIES = st.builds(
    JobQuery,
    username=some((*USERS, "nobody")),
    vc=some(VCS),
    state=some((*STATES, "UNKNOWN")),
    keyword=st.one_of(
        st.none(),
        st.sampled_from(
            ["a", "al", "ali", "train_1", "Tr", "Trä", "TRAIN", "_x", "vision", "nothing", 'a"b', "a\nb", "*"]
        ),
        st.text(max_size=4),
    ),
    tags_contain=some((*TAGS, "none")),
    tags_not_contain=some(TAGS),
    priorities=some(("default", "oppo", "test", "prod", "crit")),
    order=st.one_of(
        st.builds("{},{}".format, st.sampled_from(sorted(FIELDS)), st.sampled_from(["ASC", "DESC"])),
        st.sampled_from(
            ["", "jobName", "jobName,asc", "id,ASC", "submissionTime,ASC", "name;DROP TABLE jobs,ASC"]
        ),
    ),
    offset=st.sampled_from([0, 0, 1, 10, 650, 10_000]),
    limit=st.sampled_from([0, 1, 7, 5000, 50_000]),
    with_total=st.just(True),
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(query=QUERIES)
def test_random_queries_agree_with_the_model(listing: tuple[Store, list[JobRow]], query: JobQuery) -> None:
    store, rows = listing
    assert listed(store, query) == model(rows, query)


def test_each_order_and_single_filter_agrees_with_the_model(
    listing: tuple[Store, list[JobRow]],
) -> None:
    store, rows = listing
    queries = [
        JobQuery(order=f"{field},{direction}", with_total=True)
        for field in FIELDS
        for direction in ("ASC", "DESC")
    ]
    for name, values in (
        ("username", USERS),
        ("vc", VCS),
        ("state", STATES),
        ("priorities", ("default", "oppo", "prod")),
        ("tags_contain", TAGS),
        ("tags_not_contain", TAGS),
    ):
        for count in range(1, len(values) + 1):
            queries.append(JobQuery(**{name: values[:count]}, with_total=True, limit=40, offset=3))  # type: ignore[arg-type]
    for query in queries:
        assert listed(store, query) == model(rows, query), query


@pytest.mark.slow
def test_filter_with_thousands_of_values(listing: tuple[Store, list[JobRow]]) -> None:
    store, rows = listing
    others = tuple(f"other-{number}" for number in range(3000))
    for name, values in (
        ("username", USERS[:2]),
        ("vc", VCS[:1]),
        ("state", STATES[:2]),
        ("priorities", ("default", "prod")),
        ("tags_contain", TAGS[:2]),
        ("tags_not_contain", TAGS[:1]),
    ):
        for more in ({}, {"order": "jobName,ASC"}, {"keyword": "train"}, {"state": STATES[1:3]}):
            query = JobQuery(**{**more, name: (*others, *values)}, with_total=True)  # type: ignore[arg-type]
            assert listed(store, query) == model(rows, query), name


def test_pages_cover_the_whole_listing(listing: tuple[Store, list[JobRow]]) -> None:
    store, rows = listing
    for order in ("submissionTime,DESC", "state,ASC", "jobPriority,DESC", "completionTime,ASC"):
        names: list[str] = []
        for offset in range(0, 800, 90):
            names += listed(store, JobQuery(order=order, offset=offset, limit=90, with_total=True))[0]
        assert sorted(names) == sorted(f"{job.username}~{job.name}" for job in rows)


def test_keyword_finds_indexed_and_unindexed_jobs(listing_in_a_file: tuple[Store, list[JobRow]]) -> None:
    store, rows = listing_in_a_file
    indexed = store.read_sync(
        lambda conn: conn.exec_driver_sql("SELECT upto FROM job_search_progress").scalar()
    )
    assert indexed is not None
    assert INDEX_BATCH <= indexed < rows[-1].id
    names, total = listed(store, JobQuery(keyword="train", with_total=True))
    expected = model(rows, JobQuery(keyword="train"))
    assert (names, total) == expected
    assert total > 100


def test_total_is_counted_only_when_requested(listing: tuple[Store, list[JobRow]]) -> None:
    store, rows = listing
    page = store.read_sync(lambda conn: jobs.list_jobs(conn, JobQuery()))
    assert page.total is None
    assert len(summaries(page)) == len(rows)
    empty = store.read_sync(lambda conn: jobs.list_jobs(conn, JobQuery(limit=0, with_total=True)))
    assert (empty.total, summaries(empty)) == (len(rows), [])


@pytest.mark.parametrize("query", [JobQuery(limit=-1), JobQuery(limit=50_001), JobQuery(offset=-1)])
def test_invalid_pages_are_rejected(listing: tuple[Store, list[JobRow]], query: JobQuery) -> None:
    store, _ = listing
    with pytest.raises(InvalidParameters):
        store.read_sync(lambda conn: jobs.list_jobs(conn, query))


def test_orders_and_single_filters_need_no_sort(listing_in_a_file: tuple[Store, list[JobRow]]) -> None:
    """Listing 100 000 jobs is fast because each of these comes from an index in order."""
    store, _ = listing_in_a_file
    queries = [JobQuery(order=f"{field},{direction}") for field in FIELDS for direction in ("ASC", "DESC")]
    queries += [
        JobQuery(username=("alice",)),
        JobQuery(vc=("vision", "default")),
        JobQuery(state=("RUNNING", "WAITING", "FAILED")),
        JobQuery(priorities=("default", "prod")),
        JobQuery(tags_contain=("red", "blue")),
        JobQuery(tags_not_contain=("red",)),
    ]

    def check(conn: Connection) -> None:
        for query in queries:
            statement, values = job_query.page(query, SqliteSql())
            text, parameters = statement.bind(conn, values)
            plan = conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", tuple(parameters)).fetchall()
            steps = [str(row[3]) for row in plan]
            assert not any("ORDER BY" in step and "TEMP" in step for step in steps), (query, steps)

    store.read_sync(check)


def test_jobs_of_a_user_in_a_state_are_counted_and_listed_from_an_index_alone(
    listing_in_a_file: tuple[Store, list[JobRow]],
) -> None:
    """The portal's home page counts them by state every few seconds."""
    store, rows = listing_in_a_file
    query = JobQuery(username=("alice",), state=("FAILED",), limit=5, with_total=True)
    matches = [row for row in rows if (row.username, row.state) == ("alice", "FAILED")]
    names, total = listed(store, query)
    assert matches and total == len(matches)
    assert set(names) <= {row.framework for row in matches} and len(names) == min(5, len(matches))

    def check(conn: Connection) -> None:
        for bound in (job_query.page(query, SqliteSql()), job_query.count(query, SqliteSql())):
            text, parameters = bound.statement.bind(conn, bound.values)
            plan = conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", tuple(parameters)).fetchall()
            steps = " ".join(str(row[3]) for row in plan)
            assert "COVERING INDEX jobs_by_username_and_state" in steps, steps
            assert "TEMP" not in steps, steps

    store.read_sync(check)


def test_ids_and_keyword_index_continue_after_a_restart(tmp_path: Path) -> None:
    for start in (0, 600):
        store = Store.open(tmp_path / "cluster.db", render_summary)
        new = [
            NewJob("alice", f"job_{n:04}", "default", "", "{}", n * 1000) for n in range(start, start + 600)
        ]
        store.write_sync(lambda conn, new=new: jobs.insert_jobs(conn, new))
        names, total = listed(store, JobQuery(keyword="job_0", with_total=True, limit=3))
        assert total == min(start + 600, 1000)
        assert names[0] == f"alice~job_{min(start + 599, 999):04}"
        store.close()


@pytest.mark.parametrize(
    ("runtime_exit", "cause"),
    [
        ({"caughtException": "\x1b[31mNo GPU.\x1b[0m\nTraceback follows"}, "No GPU."),
        (
            {"originUserExitCode": 4, "errorLogs": {"user": "a\n\x1b[1mfull\x07\n\x1b[0m"}},
            "Exit code 4: full",
        ),
    ],
)
def test_cause_of_a_failure_is_one_line_without_control_characters(
    runtime_exit: dict[str, Any], cause: str
) -> None:
    assert cause_of(AttemptRow(1, 0, "Completed", runtime_exit=json.dumps(runtime_exit))) == cause
