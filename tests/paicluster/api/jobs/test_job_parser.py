"""Parsing of submitted jobs: large texts in a worker process, time counted for each user."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from paicluster.api.jobs.job_parser import INLINE_CHARS, WORKER_IDLE_S, JobParser
from paiprotocol.errors import InvalidParameters, PaiError, ProtocolError, TooManyRequests
from support.server_fixture import eventually, job
from support.team_cluster import NewTeam, TeamCluster

LARGE = "x" * INLINE_CHARS
V1_ROLE = {"name": "main", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 16, "command": "true"}


def hostile(kb: int = 830) -> str:
    """A job that takes seconds to parse and explain."""
    return json.dumps({**job("hostile", "true"), "prerequisites": [1] * (kb * 1024 // 3)})


def workers() -> list[int]:
    """Worker processes of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"job_parse_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def run(
    test: Callable[[JobParser], Coroutine[Any, Any, None]],
    budget_s: int | None = None,
    worker_idle_s: float = WORKER_IDLE_S,
) -> None:
    async def with_parser() -> None:
        parser = JobParser(budget_s, worker_idle_s=worker_idle_s)
        try:
            await test(parser)
        finally:
            await parser.close()

    asyncio.run(with_parser())
    assert workers() == []


def test_small_jobs_start_no_process_and_large_ones_share_one() -> None:
    async def test(parser: JobParser) -> None:
        await parser.parse_v2("alice", json.dumps(job("small", "true")))
        assert workers() == []
        for number in range(3):
            await parser.parse_v2("alice", json.dumps(job(f"large-{number}", "true", description=LARGE)))
        assert len(workers()) == 1

    run(test)


def test_unused_worker_ends() -> None:
    async def test(parser: JobParser) -> None:
        text = json.dumps(job("large", "true", description=LARGE))
        await parser.parse_v2("alice", text)
        deadline = time.monotonic() + 90
        while workers() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        assert workers() == []
        assert (await parser.parse_v2("alice", text)).job.name == "large"

    run(test, worker_idle_s=0.01)


@pytest.mark.parametrize("padding", ["", LARGE], ids=["at once", "in a worker"])
def test_result_is_the_same_in_both_places(padding: str) -> None:
    async def test(parser: JobParser) -> None:
        spec = job("j", "echo <% $secrets.key %>", description=padding, secrets={"key": "hidden"})
        parsed = await parser.parse_v2("alice", json.dumps(spec))
        assert parsed.job.raw == spec and dict(parsed.job.secrets) == {"key": "hidden"}
        assert parsed.masked is not None and "hidden" not in parsed.masked
        yaml = f"# {padding}\n" + json.dumps(job("y", "true"), indent=1)
        parsed = await parser.parse_v2("alice", yaml)
        assert json.loads(parsed.text) == job("y", "true") and parsed.masked is None
        v1 = {"jobName": "old", "image": "host", "taskRoles": [{**V1_ROLE, "command": f"true {padding}"}]}
        old = await parser.parse_v1("alice", json.dumps(v1), "hdfs://x")
        assert (old.name, old.conversion.job.name) == ("old", "old")
        with pytest.raises(ProtocolError) as caught:
            await parser.parse_v2("alice", json.dumps({**job("j", "true", description=padding), "name": 7}))
        assert "name" in caught.value.message and caught.value.problems

    run(test)


def test_worker_that_dies_is_an_error_of_the_job_and_the_next_one_is_parsed() -> None:
    async def test(parser: JobParser) -> None:
        parse = asyncio.create_task(parser.parse_v2("alice", hostile()))
        while not workers():
            await asyncio.sleep(0.005)
        os.kill(workers()[0], signal.SIGKILL)
        with pytest.raises(InvalidParameters, match="cannot be read within 10 s of processor time") as caught:
            await parse
        assert caught.value.status == 400 and caught.value.hint
        assert (await parser.parse_v2("alice", json.dumps(job("next", "true", description=LARGE)))).job.name

    run(test)


@pytest.mark.slow
def test_users_wait_for_their_own_jobs_only() -> None:
    async def test(parser: JobParser) -> None:
        hostile_jobs = [asyncio.create_task(parser.parse_v2("alice", hostile())) for _ in range(4)]
        await asyncio.sleep(0)
        assert (await parser.parse_v2("bob", json.dumps(job("b", "true", description=LARGE)))).job.name == "b"
        assert sum(task.done() for task in hostile_jobs) <= 1
        for task in hostile_jobs:
            task.cancel()
        await asyncio.gather(*hostile_jobs, return_exceptions=True)

    run(test)


def test_small_invalid_jobs_leave_the_event_loop_after_an_allowance() -> None:
    async def test(parser: JobParser) -> None:
        text = hostile(4)
        for _ in range(200):
            with pytest.raises(PaiError):
                await parser.parse_v2("alice", text)
            if workers():
                break
        assert workers()

    run(test)


@pytest.mark.slow
def test_parse_time_of_a_user_is_limited() -> None:
    async def test(parser: JobParser) -> None:
        for _ in range(50):
            try:
                await parser.parse_v2("alice", hostile())
            except ProtocolError:
                continue
            except TooManyRequests as error:
                assert "jobs of user alice took more than 1 s of processor time" in error.message
                assert 0 < error.retry_after_s <= 60 and error.hint
                break
        else:
            raise AssertionError("the time is not limited")
        assert (await parser.parse_v2("bob", json.dumps(job("b", "true")))).job.name == "b"

    run(test, budget_s=1)


@pytest.mark.slow
def test_hostile_job_takes_little_time_of_the_event_loop(cluster: TeamCluster) -> None:
    cluster.submit(job("first", "true", description=LARGE))
    before = cluster.main_thread_cpu_s()
    refused = cluster.submit(hostile())
    assert refused.status == 400
    assert refused.json()["message"].startswith("The job has more than 100 problems; the first 100 are:\n")
    assert cluster.main_thread_cpu_s() - before < 0.2


@pytest.mark.slow
def test_user_who_sends_only_hostile_jobs_is_told_when_to_go_on(new_team: NewTeam) -> None:
    team = new_team("limits: {parse-seconds-per-minute: 1}\n")
    reply = eventually(
        lambda: reply if (reply := team.submit(hostile())).status != 400 else None, "the end of the budget"
    )
    assert reply.status == 429 and 0 < int(reply.headers["retry-after"]) <= 60
    assert "took more than 1 s" in reply.json()["message"]
    assert team.submit(job("b", "true"), token=team.tokens["bob"]).status == 202


def test_large_yaml_job_is_stored_as_json(cluster: TeamCluster, name: str) -> None:
    """YAML is slow to parse: the server parses it once, not at each launch and request."""
    text = f"# {LARGE}\n" + json.dumps(job(name, "true"), indent=1)
    assert cluster.submit(text).status == 202
    reply = cluster.get(cluster.path(name, "/config"))
    assert reply.json() == job(name, "true")
