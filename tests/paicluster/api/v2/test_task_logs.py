"""Task logs: locations, and the bytes: whole, a range, the tail, or followed."""

from __future__ import annotations

import http.client
from typing import Any

import pytest

from support.server_fixture import job
from support.team_cluster import TeamCluster

LOGS = "/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
# 5000 lines of 10 bytes.
NUMBERS = b"".join(b"line %04d\n" % number for number in range(5000))
PRINT_NUMBERS = "for ((i=0;i<5000;i++)); do printf 'line %04d\\n' $i; done"


@pytest.fixture(scope="module")
def printing_job(cluster: TeamCluster) -> str:
    cluster.run(job("printing_job", PRINT_NUMBERS, "echo oops >&2"))
    return "printing_job"


def locations(cluster: TeamCluster, name: str, query: str = "") -> dict[str, str]:
    reply = cluster.get(cluster.path(name, LOGS + query))
    assert reply.status == 200, reply.text
    return {one["name"]: one["uri"] for one in reply.json()["locations"]}


def test_locations_can_be_read_without_a_token(cluster: TeamCluster, printing_job: str) -> None:
    found = locations(cluster, printing_job)
    assert set(found) == {"stdout", "stderr", "all"}
    out = cluster.get(found["stdout"], token=None)
    assert (out.status, out.body) == (200, NUMBERS)
    assert out.headers["content-type"].startswith("text/plain")
    assert cluster.get("/rest-server" + found["stderr"], token=None).body == b"oops\n"
    assert len(cluster.get(found["all"], token=None).body) == len(NUMBERS) + 5


def test_downloaded_log_is_named_by_job_task_and_attempt(cluster: TeamCluster, printing_job: str) -> None:
    def name(where: str) -> str:
        return cluster.get(where, token=None).headers["content-disposition"]

    found = locations(cluster, printing_job)
    assert name(found["all"]) == 'attachment; filename="printing_job-main-0-attempt-1.log"'
    assert name(found["stderr"]) == 'attachment; filename="printing_job-main-0-attempt-1-stderr.log"'
    work = job("named_log", "exit 3", jobRetryCount=1, extras={"gangAllocation": False})
    work["taskRoles"]["main"]["taskRetryCount"] = 1
    cluster.run(work)
    path = LOGS.removesuffix("/attempts/0/logs").replace("/attempts/0", "/attempts/1") + "/attempts/1/logs"
    again = cluster.get(cluster.path("named_log", path)).json()["locations"]
    expected = "named_log-main-0-attempt-2-task-attempt-2.log"
    assert name(again[0]["uri"]) == f'attachment; filename="{expected}"'


@pytest.mark.parametrize("query", ["?tail-mode=true", "?tailMode=true"])
def test_tail_is_the_last_16_kb(cluster: TeamCluster, printing_job: str, query: str) -> None:
    reply = cluster.get(locations(cluster, printing_job, query)["stdout"], token=None)
    assert (reply.status, reply.body) == (206, NUMBERS[-16384:])


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=10-", 10, 50000),
        ("bytes=49990-60000", 49990, 50000),
        ("bytes=-10", 49990, 50000),
        ("bytes=-999999", 0, 50000),
        ("bytes=25000-25000", 25000, 25001),
    ],
)
def test_range_request(cluster: TeamCluster, printing_job: str, header: str, start: int, end: int) -> None:
    where = locations(cluster, printing_job)["stdout"]
    reply = cluster.get(where, token=None, headers={"Range": header})
    assert (reply.status, reply.body) == (206, NUMBERS[start:end])
    assert reply.headers["content-range"] == f"bytes {start}-{end - 1}/50000"


@pytest.mark.parametrize(
    "header", ["bytes=50000-", "bytes=60000-70000", "bytes=-0", "bytes=" + "9" * 5000 + "-"]
)
def test_range_past_the_end(cluster: TeamCluster, printing_job: str, header: str) -> None:
    reply = cluster.get(locations(cluster, printing_job)["stdout"], token=None, headers={"Range": header})
    assert (reply.status, reply.headers["content-range"]) == (416, "bytes */50000")


@pytest.mark.parametrize("header", ["bytes=9-3", "lines=1-2", "bytes=a-b", "bytes=-", "bytes=0-1,5-6", ""])
def test_malformed_range_is_ignored(cluster: TeamCluster, printing_job: str, header: str) -> None:
    reply = cluster.get(locations(cluster, printing_job)["stdout"], token=None, headers={"Range": header})
    assert (reply.status, reply.body) == (200, NUMBERS)


def test_empty_log_reads_as_empty(cluster: TeamCluster, name: str) -> None:
    cluster.run(job(name, "true"))
    for headers in ({}, {"Range": "bytes=0-"}, {"Range": "bytes=-10"}):
        reply = cluster.get(locations(cluster, name)["stdout"], token=None, headers=headers)
        assert (reply.status, reply.body) == (200, b"")
    assert cluster.get(locations(cluster, name, "?tail-mode=true")["all"], token=None).body == b""


def test_ticket_is_valid_for_one_task_and_a_token_for_all(cluster: TeamCluster, printing_job: str) -> None:
    where = locations(cluster, printing_job)["stdout"]
    path, _, query = where.partition("?")
    fields = dict(field.split("=", 1) for field in query.split("&"))
    ticket = fields.pop("token")

    def log_url(**changed: str) -> str:
        return path + "?" + "&".join(f"{key}={value}" for key, value in {**fields, **changed}.items())

    assert cluster.get(log_url(), token=None).status == 401
    assert cluster.get(log_url()).status == 200
    for bad in (
        "",
        "x",
        ticket[:-1] + ("1" if ticket.endswith("0") else "0"),
        "9999999999." + ticket.partition(".")[2],
        "²." + ticket,
        "9" * 5000 + ".a",
        "1.é",
    ):
        from urllib.parse import quote

        assert cluster.get(log_url(token=quote(bad)), token=None).status == 401, bad
    other = {"pod-uid": "11111111-2222-3333-4444-555555555555"}
    assert cluster.get(log_url(token=ticket, **other), token=None).status == 401
    assert cluster.get(log_url(**other)).status == 404
    for uid in ("", "..", "../../keys", "%2e%2e%2f%2e%2e", "%00"):
        assert cluster.get(log_url(**{"pod-uid": uid})).status == 404, uid
    assert cluster.get(log_url().replace("/logs/stdout", "/logs/spec.json")).status == 404


@pytest.mark.parametrize("rest", [
    "/attempts/0/taskRoles/main/taskIndex/0/attempts/1/logs",
    "/attempts/1/taskRoles/main/taskIndex/0/attempts/0/logs",
    "/attempts/0/taskRoles/none/taskIndex/0/attempts/0/logs",
    "/attempts/0/taskRoles/main/taskIndex/0/attempts/99999999999999999999/logs",
])  # fmt: skip
def test_missing_task_has_no_log(cluster: TeamCluster, printing_job: str, rest: str) -> None:
    reply = cluster.get(cluster.path(printing_job, rest))
    assert (reply.status, reply.json()["code"]) == (404, "NoTaskLogError")


def follow(cluster: TeamCluster, where: str, start: Any = 0) -> http.client.HTTPResponse:
    connection = cluster.connect()
    connection.request("GET", f"{where}&follow=true&start={start}")
    response = connection.getresponse()
    assert response.status == 200
    return response


def test_log_is_followed_from_an_offset_until_the_task_ends(cluster: TeamCluster, name: str) -> None:
    gate = cluster.home.parent / f"{name}.gate"
    cluster.accept(job(name, "echo first", f"until [ -e {gate} ]; do sleep 0.02; done", "echo second"))
    cluster.wait_state(name, "RUNNING")
    response = follow(cluster, locations(cluster, name)["stdout"], 2)
    assert response.readline() == b"rst\n"
    gate.touch()
    assert response.read() == b"second\n"


def test_following_the_log_of_a_finished_task_ends(cluster: TeamCluster, printing_job: str) -> None:
    assert follow(cluster, locations(cluster, printing_job)["stdout"], 49990).read() == b"line 4999\n"
    assert follow(cluster, locations(cluster, printing_job)["stdout"], 50000).read() == b""


def test_log_is_not_read_further_after_a_disconnect(cluster: TeamCluster, name: str) -> None:
    size = 4 << 30
    cluster.make_long_log(name, size)
    where = locations(cluster, name)["stdout"]
    before = cluster.bytes_read()
    response = follow(cluster, where)
    response.read(100)
    response.close()
    assert cluster.get("/api/v2/info").status == 200
    assert cluster.bytes_read() - before < size / 4


@pytest.mark.parametrize("start", ["x", "-1", "%C2%B2", "9" * 5000, ""])
def test_following_from_an_invalid_offset_is_rejected_or_starts_over(
    cluster: TeamCluster, printing_job: str, start: str
) -> None:
    reply = cluster.get(f"{locations(cluster, printing_job)['stdout']}&follow=true&start={start}", token=None)
    assert reply.status in (200, 400)
