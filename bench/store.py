"""Store: list queries over 100 000 jobs, and durable submissions without HTTP."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlalchemy import Connection

from bench.table import Row, limit_row, ms, sized
from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store
from paicluster.store.compiled_statements import execute
from paicluster.store.jobs import INSERT_JOB, Inserted, JobQuery, NewJob, insert_jobs, list_jobs, update_job

JOBS = sized(100_000, 500)
ROUNDS = sized(5, 1)
QUERIES_PER_ROUND = sized(20, 2)

_USERS = [f"user{n:02}" for n in range(40)]
_VCS = ("default", "vision", "speech", "nlp", "batch")
_WORDS = ("resnet", "bert", "train", "eval", "sweep", "mnist", "gpt", "dqn", "finetune", "debug")
_FINISHED = (("Completed", 0),) * 60 + (("Completed", 255),) * 20 + (("Completed", -210),) * 10
_STATES = (*_FINISHED, *((("AttemptRunning", None),) * 5), *((("AttemptCreationPending", None),) * 5))
_ORDERS = (
    "jobName submissionTime username vc retries totalTaskNumber totalGpuNumber state"
    " completionTime jobPriority"
)

_SINGLE_FILTERS = (
    JobQuery(username=("user07",)),
    JobQuery(username=("user30", "user31")),
    JobQuery(vc=("nlp",)),
    JobQuery(vc=("nlp", "batch")),
    JobQuery(state=("SUCCEEDED",)),
    JobQuery(state=("RUNNING",)),
    JobQuery(state=("RUNNING", "WAITING")),
    JobQuery(priorities=("prod",)),
    JobQuery(priorities=("default", "oppo")),
    JobQuery(tags_contain=("a",)),
    JobQuery(tags_contain=("a", "b")),
    JobQuery(tags_not_contain=("a",)),
)
_DEEP = tuple(
    JobQuery(offset=max(0, JOBS - 6000), order=order) for order in ("submissionTime,DESC", "jobName,ASC")
)
_KEYWORDS = tuple(
    JobQuery(keyword=word) for word in ("resnet", "bert_train", "user07", "_00f", "vision", "nothing")
)
_COUNTS = (
    JobQuery(limit=0, with_total=True),
    JobQuery(limit=0, with_total=True, state=("SUCCEEDED",)),
    JobQuery(limit=20, with_total=True, vc=("nlp", "batch")),
)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return [*list_queries(Path(folder) / "list.db"), submissions(Path(folder) / "submissions.db")]


def list_queries(path: Path) -> list[Row]:
    """p95 of `list_jobs`, of the slowest query of each group."""
    store = Store.open(path, render_summary)
    fill(store, JOBS)
    each_order = [
        JobQuery(order=f"{field},{direction}") for field in _ORDERS.split() for direction in ("ASC", "DESC")
    ]
    groups: list[tuple[str, Iterable[JobQuery], float]] = [
        ("default page", [JobQuery()], 0.010),
        ("each single filter", _SINGLE_FILTERS, 0.010),
        ("each order", each_order, 0.010),
        ("deep offset", _DEEP, 0.010),
        ("total count", _COUNTS, 0.010),
        ("keyword", _KEYWORDS, 0.015),
    ]
    rows = []
    for name, queries, goal in groups:
        slowest = max((p95_of_rounds(store, query) for query in queries), key=statistics.median)
        rows.append(
            limit_row(
                f"job list with {JOBS} jobs, p95: {name}, slowest query", slowest, at_most=goal, show=ms
            )
        )
    store.close()
    return rows


def p95_of_rounds(store: Store, query: JobQuery) -> list[float]:
    def measure(conn: Connection) -> list[float]:
        list_jobs(conn, query)
        rounds = []
        for _ in range(ROUNDS):
            took = []
            for _ in range(QUERIES_PER_ROUND):
                began = time.perf_counter()
                list_jobs(conn, query)
                took.append(time.perf_counter() - began)
            rounds.append(statistics.quantiles(took, n=20)[-1])
        return rounds

    return store.read_sync(measure)


def submissions(path: Path, clients: int = 16, each_round: int = sized(4000, 50)) -> Row:
    """Jobs of 2 kB, each acknowledged when it is on disk; in this process, without HTTP."""
    store = Store.open(path, render_summary)
    body = "x" * 2000

    async def round_(number: int) -> float:
        left = iter(range(each_round))

        async def client(own: int) -> None:
            for n in left:
                name = f"job_{number}_{n}"
                now_ms = int(time.time() * 1000)
                new = NewJob(
                    f"user{own}",
                    name,
                    "default",
                    body,
                    body,
                    now_ms,
                    idempotency_key=name,
                    body_sha256="0" * 64,
                )
                await store.write_batched(INSERT_JOB, new)

        began = time.perf_counter()
        await asyncio.gather(*(client(own) for own in range(clients)))
        return each_round / (time.perf_counter() - began)

    rates = [asyncio.run(round_(number)) for number in range(ROUNDS + 1)][1:]
    store.close()
    what = f"durable submissions to the store, {clients} concurrent, 2 kB"
    return limit_row(what, rates, at_least=2500, show=lambda rate: f"{rate:.0f}/s")


def fill(store: Store, count: int, *, all_finished: bool = False) -> None:
    """Insert jobs of many users and kinds, most of them (or all) finished, like a year of a cluster's
    history."""
    rng = random.Random(1)
    states = _FINISHED if all_finished else _STATES

    def make(n: int) -> NewJob:
        return NewJob(
            rng.choices(_USERS, weights=range(1, len(_USERS) + 1))[0],
            f"{rng.choice(_WORDS)}_{rng.choice(_WORDS)}_{rng.getrandbits(32):08x}",
            rng.choice(_VCS),
            "x" * 2000,
            "{}",
            1_700_000_000_000 + n * 20_000 + rng.randrange(1000),
            total_gpus=rng.choice((0, 1, 2, 4, 8)),
            total_tasks=rng.choice((1, 1, 2, 4, 8)),
            priority=rng.choice((None, None, "oppo", "test", "prod")),
            tags=(rng.choice("abcd"),) if rng.random() < 0.2 else (),
        )

    def write(conn: Connection, new: list[NewJob]) -> None:
        for result, job in zip(insert_jobs(conn, new), new, strict=True):
            sub_state, exit_code = rng.choice(states)
            if not isinstance(result, Inserted) or sub_state == "AttemptCreationPending":
                continue
            columns: dict[str, object] = {"sub_state": sub_state, "retries": rng.choice((0, 0, 0, 1, 2, 3))}
            if sub_state == "Completed":
                ended = job.submission_ms + rng.randrange(10**7)
                columns |= {"launched_ms": job.submission_ms, "completed_ms": ended, "exit_code": exit_code}
            update_job(conn, result.id, **columns)

    for start in range(0, count, 1000):
        new = [make(n) for n in range(start, min(count, start + 1000))]
        store.write_sync(lambda conn, new=new: write(conn, new))  # type: ignore[misc]


def fill_metrics(store: Store, names: Sequence[str]) -> None:
    """Give each task of all jobs metrics with these names, which are read to their end."""
    texts = (
        "INSERT INTO tasks (uid, job_id, attempt, role, role_order, task_index, task_attempt, task_uid,"
        " sub_state, cpu, memory_mb, launched_ms, completed_ms, retries_total, retries_accountable,"
        " stop_requested, lost)"
        " SELECT jobs.id || '-' || number, jobs.id, jobs.attempt, 'main', 0, number, 0,"
        " jobs.id || '-' || number, 'Completed', 1, 1024, jobs.launched_ms, jobs.completed_ms, 0, 0, false,"
        " false FROM jobs CROSS JOIN (SELECT value AS number FROM json_each('[0, 1, 2, 3, 4, 5, 6, 7]'))"
        " WHERE number < jobs.total_tasks",
        "INSERT INTO metric_files (job_id, uid, read_bytes, complete, names_omitted)"
        " SELECT job_id, uid, 1000, true, false FROM tasks",
        "INSERT INTO task_metrics (job_id, uid, name, count, last_value, last_step, min_value, min_step,"
        " max_value, max_step) SELECT job_id, uid, value, 100, 0.1 * task_index, 99, 0.05, 98, 0.9, 0"
        f" FROM tasks CROSS JOIN json_each('{json.dumps(names)}')",
    )
    for text in texts:
        store.write_sync(lambda conn, text=text: execute(conn, text).close())  # type: ignore[misc]
