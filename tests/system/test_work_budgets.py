"""Budgets of hot paths that need no clock: what one request or job may cost the server.

A check of submissions once doubled their cost, and no test failed. A budget is what was measured; ten percent
more are allowed (`Work.over`). A commit that raises one says why; see docs/contributing/performance.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.server_fixture import job
from support.work_budget import CountingServer, Work

pytestmark = [pytest.mark.slow, pytest.mark.service]

BUDGETS = {
    "job of one task": Work(calls=6500, statements=38, commits=3.4, system_calls=320),
    # A line is written to two files; on a busy machine each of them wakes the follower.
    "followed line": Work(calls=310, statements=0.1, commits=0, system_calls=22),
    # 856 to 891 on an idle machine; on a busy one fewer of them share a pass of the controller: 990.
    "submission": Work(calls=1000, statements=5, commits=1, system_calls=60),
    # With the words of the database that is used, and the kept order of a list that is sorted by values.
    "page of the list": Work(calls=262, statements=2, commits=0, system_calls=17),
    # Of a pending job: with its reason.
    "detail": Work(calls=398, statements=5, commits=0, system_calls=19.5),
    "uploaded file": Work(calls=940, statements=0, commits=0, system_calls=38),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingServer]:
    server = CountingServer.start(tmp_path_factory.mktemp("budgets"))
    try:
        yield server
    finally:
        server.cluster.close()


@pytest.fixture(scope="module")
def full_server(server: CountingServer) -> Iterator[CountingServer]:
    """All cores are taken and a page of jobs waits: requests are measured, not the execution of jobs.

    To the end of the file: tests that run jobs come first.
    """
    cluster = server.cluster
    cluster.wait_state(cluster.accept(job("holder", "sleep 600", cpu=64)), "RUNNING")
    for number in range(100):
        cluster.accept(job(f"waiting-{number}", "true"))
    yield server
    cluster.stop_every_job()


def check(server: CountingServer, what: str, action: Callable[[int], object]) -> None:
    work = server.work_of(action)
    assert not work.over(BUDGETS[what]), f"{what} costs more than its budget: {work}"


def test_job_of_one_task(server: CountingServer) -> None:
    """From its submission to its end, with what the client follows of it."""
    cluster = server.cluster
    check(server, "job of one task", lambda number: cluster.run(job(f"run-{number}", "true")))


def test_followed_line(server: CountingServer, tmp_path: Path) -> None:
    """Each line is written when the one before has arrived at the client."""
    cluster = server.cluster
    pipe = tmp_path / "lines"
    os.mkfifo(pipe)
    name = cluster.accept(job("speaker", f"cat {pipe}"))
    frames = iter(cluster.follow(name, stream="all"))
    with pipe.open("w", buffering=1) as lines:

        def follow_line(number: int) -> None:
            print(f"line {number}", file=lines)
            received = b""
            while not received.endswith(b"line %d\n" % number):
                received += next(frame["data"] for frame in frames if frame["kind"] == "log")

        check(server, "followed line", follow_line)


def test_submission(full_server: CountingServer) -> None:
    cluster = full_server.cluster
    check(full_server, "submission", lambda number: cluster.accept(job(f"submitted-{number}", "true")))


def test_page_of_the_list(full_server: CountingServer) -> None:
    cluster = full_server.cluster
    check(full_server, "page of the list", lambda number: cluster.get("/api/v2/jobs?limit=50"))


def test_detail(full_server: CountingServer) -> None:
    """Of another job each time: details are cached."""
    cluster = full_server.cluster
    check(full_server, "detail", lambda number: cluster.get(cluster.path(f"waiting-{number}")))


def test_uploaded_file(full_server: CountingServer) -> None:
    cluster = full_server.cluster
    data = os.urandom(10_000)

    def upload(number: int) -> None:
        path = f"/webhdfs/v1/{cluster.user}/budget-{number}?op=CREATE&data=true"
        assert cluster.ask("PUT", path, data).status == 201

    check(full_server, "uploaded file", upload)
