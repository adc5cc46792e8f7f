"""GET …/log-search: lines of a log that contain a text, with their offsets."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from support.server_fixture import eventually, job
from support.team_cluster import TeamCluster


def search(cluster: TeamCluster, name: str, **query: Any) -> list[dict[str, Any]]:
    """All frames but those of the progress."""
    query = {key.rstrip("_"): value for key, value in query.items()}
    reply = cluster.get(cluster.path(name, f"/log-search?{urlencode(query)}"))
    assert reply.status == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    frames = [json.loads(line) for line in reply.body.splitlines()]
    return [frame for frame in frames if frame["kind"] != "progress"]


@pytest.fixture(scope="module")
def counting(cluster: TeamCluster) -> str:
    cluster.run(job("counting", "seq -f 'Line %g.' 1 2000", "echo error, and error again >&2"))
    return "counting"


def test_next_and_previous_hit_with_offset_and_line(cluster: TeamCluster, counting: str) -> None:
    text = cluster.log_of(counting, "stdout")
    at = text.index(b"Line 1500.")
    hit, end = search(cluster, counting, text="line 1500", stream="stdout")
    assert hit == {
        "kind": "hit",
        "attempt": 0,
        "taskAttempt": 0,
        "offset": at,
        "lineOffset": at,
        "line": "Line 1500.",
    }
    assert end["isComplete"] is False
    after = {"text": "5", "stream": "stdout", "from_": end["offset"]}
    assert search(cluster, counting, **after)[0]["line"] == "Line 1501."
    before = {"text": "5", "stream": "stdout", "direction": "backward"}
    assert search(cluster, counting, **before, from_=at)[0]["line"] == "Line 1495."
    assert search(cluster, counting, **before)[0]["line"] == "Line 1995."


def test_hits_continue_in_the_next_request(cluster: TeamCluster, counting: str) -> None:
    lines: list[str] = []
    start, is_complete = 0, False
    while not is_complete:
        *hits, end = search(cluster, counting, text="Line ", stream="stdout", from_=start, limit=700)
        lines += [hit["line"] for hit in hits]
        start, is_complete = end["offset"], end["isComplete"]
    assert lines == [f"Line {number}." for number in range(1, 2001)]


def test_line_with_several_hits_is_found_once(cluster: TeamCluster, counting: str) -> None:
    for direction in ("forward", "backward"):
        query = {"text": "error", "stream": "stderr", "direction": direction}
        hit, end = search(cluster, counting, **query)
        assert hit["line"] == "error, and error again"
        assert [one["kind"] for one in search(cluster, counting, **query, from_=end["offset"])] == ["end"]


def test_text_that_is_not_there(cluster: TeamCluster, counting: str) -> None:
    size = len(cluster.log_of(counting, "stdout"))
    found = search(cluster, counting, text="absent", stream="stdout")
    assert found == [{"kind": "end", "offset": size, "isComplete": True}]
    found = search(cluster, counting, text="LINE 7", matchCase="true", stream="stdout")
    assert [frame["kind"] for frame in found] == ["end"]


def test_task_that_has_not_started_has_no_hits(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "true", cpu=1000))
    assert search(cluster, name, text="x") == [{"kind": "end", "offset": 0, "isComplete": True}]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("", '"text"'),
        ("text=", '"text"'),
        ("text=a%0Ab", '"text"'),
        ("text=" + "x" * 1025, '"text"'),
        ("text=x&stream=none", '"stream"'),
        ("text=x&direction=up", '"direction"'),
        ("text=x&from=-1", '"from"'),
        ("text=x&limit=0", '"limit"'),
        ("text=x&limit=1001", '"limit"'),
        ("text=x&role=other", "task role"),
        ("text=x&index=1", "main has 1 task,"),
    ],
)
def test_wrong_parameter_is_named(cluster: TeamCluster, counting: str, query: str, named: str) -> None:
    reply = cluster.get(cluster.path(counting, f"/log-search?{query}"))
    assert reply.status == 400 and named in reply.json()["message"], reply.text


def test_attempt_that_does_not_exist_is_not_found(cluster: TeamCluster, counting: str) -> None:
    assert cluster.get(cluster.path(counting, "/log-search?text=x&attempt=7")).status == 404


def test_only_who_may_see_the_job_may_search(cluster: TeamCluster, counting: str) -> None:
    path = cluster.path(counting, "/log-search?text=x")
    assert cluster.get(path, token=None).status == 401
    assert cluster.get("/api/v2/jobs/alice~nowhere/log-search?text=x").status == 404


def test_search_ends_with_the_connection(cluster: TeamCluster, name: str) -> None:
    size = 64 << 30  # sparse; many seconds
    cluster.make_long_log(name, size)
    connection = cluster.connect()
    path = cluster.path(name, "/log-search?text=absent")
    connection.request("GET", path, headers={"Authorization": f"Bearer {cluster.token}"})
    response = connection.getresponse()
    assert json.loads(response.readline())["kind"] == "progress"
    assert cluster.get("/api/v2/info").status == 200, "others are served meanwhile"
    response.close()
    connection.close()

    def is_idle() -> bool:
        before = cluster.bytes_read()
        cluster.get("/api/v2/info")
        return cluster.bytes_read() - before < 1 << 20

    eventually(is_idle, "the end of the search")
    assert cluster.bytes_read() < size
