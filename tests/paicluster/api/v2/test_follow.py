"""GET …/follow: states, events and log over one connection."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.server_fixture import eventually, job
from support.team_cluster import PASSWORD, TeamCluster


def frames_of(cluster: TeamCluster, name: str, **query: Any) -> list[dict[str, Any]]:
    stream = cluster.follow(name, **query)
    try:
        return list(stream)
    finally:
        stream.close()


def log_in(frames: list[dict[str, Any]]) -> bytes:
    return b"".join(frame["data"] for frame in frames if frame["kind"] == "log")


def test_job_is_followed_from_before_its_start_to_its_end(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "echo out", "echo err >&2", "exit 2"))
    frames = frames_of(cluster, name)
    assert frames[-1] == {"kind": "end", "state": "FAILED", "exitCode": 255}
    assert sorted(log_in(frames).splitlines()) == [b"err", b"out"]
    states = [frame for frame in frames if frame["kind"] == "state"]
    assert states[-1]["state"] == "FAILED"
    assert states[-1]["exitCode"] == 255
    last_log = max(number for number, frame in enumerate(frames) if frame["kind"] == "log")
    assert frames.index(states[-1]) > last_log, "the final state comes after the last byte"
    again = frames_of(cluster, name)
    assert log_in(again) == log_in(frames)
    assert again[-1]["kind"] == "end"


def test_retried_task_is_followed_into_its_next_attempt(cluster: TeamCluster, name: str) -> None:
    """A later follower sees the current attempt, as with a job that is retried as a whole."""
    gate = cluster.home.parent / f"{name}.gate"
    command = f"echo try; [ -e {gate} ] || {{ touch {gate}; exit 3; }}; echo well"
    work = job(name, command, extras={"gangAllocation": False})
    work["taskRoles"]["main"]["taskRetryCount"] = 1
    cluster.accept(work)
    frames = frames_of(cluster, name)
    assert frames[-1]["state"] == "SUCCEEDED"
    logs = [frame for frame in frames if frame["kind"] == "log"]
    assert [(one["taskAttempt"], one["offset"]) for one in logs if one["offset"] == 0] == [(0, 0), (1, 0)]
    assert log_in(frames) == b"try\ntry\nwell\n"
    assert log_in(frames_of(cluster, name)) == b"try\nwell\n"
    assert log_in(frames_of(cluster, name, **{"from": "0.0:4"})) == b"try\nwell\n"


@pytest.mark.parametrize(("stream", "expected"), [("stdout", b"out\n"), ("stderr", b"err\n"), ("none", b"")])
def test_single_stream(cluster: TeamCluster, name: str, stream: str, expected: bytes) -> None:
    cluster.accept(job(name, "echo out", "echo err >&2"))
    assert log_in(frames_of(cluster, name, stream=stream)) == expected


def test_lines_arrive_while_the_job_runs(cluster: TeamCluster, name: str) -> None:
    gate = cluster.home.parent / f"{name}.gate"
    wait = f"until [ -e {gate} ]; do sleep 0.02; done"
    cluster.accept(job(name, "echo first", wait, "echo second"))
    stream = iter(cluster.follow(name))
    seen = [next(frame for frame in stream if frame["kind"] == "log")]
    assert seen[0]["data"] == b"first\n"
    gate.touch()
    seen += list(stream)
    assert log_in(seen) == b"first\nsecond\n"


def test_broken_connection_resumes_at_its_offset(cluster: TeamCluster, name: str) -> None:
    """Read a few chunks, disconnect, resume: every byte of the log arrives once."""
    total = 400_000
    cluster.accept(job(name, f"head -c {total} /dev/zero | tr '\\0' 'x'; sleep 0.1; echo; echo end"))
    received = b""
    position: dict[str, str] = {}
    for turn in range(100):
        stream = cluster.follow(name, **position)
        pieces = 0
        ended = False
        for frame in stream:
            if frame["kind"] == "log":
                assert frame["offset"] == len(received)
                received += frame["data"]
                position = {"from": f"{frame['attempt']}.{frame['taskAttempt']}:{len(received)}"}
                pieces += 1
                if pieces > turn % 3:
                    break
            ended = frame["kind"] == "end"
        stream.close()
        if ended:
            break
    assert received == b"x" * total + b"\nend\n"


def test_tail_counts_lines(cluster: TeamCluster, name: str) -> None:
    cluster.run(job(name, "seq 1 1000"))
    assert log_in(frames_of(cluster, name, tail=3)) == b"998\n999\n1000\n"
    assert log_in(frames_of(cluster, name, tail=0)) == b""
    assert log_in(frames_of(cluster, name, tail=5000)).startswith(b"1\n2\n")


def test_log_is_not_read_further_after_a_disconnect(cluster: TeamCluster, name: str) -> None:
    size = 4 << 30
    cluster.make_long_log(name, size)
    before = cluster.bytes_read()
    stream = cluster.follow(name)
    next(frame for frame in stream if frame["kind"] == "log")
    stream.close()
    assert cluster.get("/api/v2/info").status == 200
    assert cluster.bytes_read() - before < size / 4


def test_searching_the_tail_of_a_long_log_does_not_block_requests(cluster: TeamCluster, name: str) -> None:
    size, step = 64 << 30, 1 << 30
    log = cluster.make_long_log(name, size)
    stream = cluster.follow(name, tail=1)
    try:
        assert cluster.get("/api/v2/info").status == 200
        # Lines exist only from now on: if the search finds one, it was still running during the request.
        with log.open("r+b") as f:
            for at in range(0, size, step):
                f.seek(at)
                f.write(b"\n")
        found = next(frame for frame in stream if frame["kind"] == "log")
        assert found["offset"] % step == 1, "the request was answered only after the search"
    finally:
        stream.close()


def test_without_follow_the_stream_ends_after_existing_output(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "echo here", "sleep 600"))
    stream = iter(cluster.follow(name))
    seen: set[str] = set()
    while not {"log", "RUNNING"} <= seen:
        frame = next(stream)
        seen |= {frame["kind"], frame.get("state", "")}
    frames = frames_of(cluster, name, follow="false")
    assert log_in(frames) == b"here\n"
    assert [frame["state"] for frame in frames if frame["kind"] == "state"] == ["RUNNING"]
    assert frames[-1]["kind"] != "end"
    cluster.stop(name)


def test_all_attempts_are_followed_in_order(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "echo attempt $FC_FRAMEWORK_ATTEMPT_ID", "exit 3", jobRetryCount=2))
    frames = frames_of(cluster, name, **{"from": "0.0:0"})
    assert log_in(frames) == b"attempt 0\nattempt 1\nattempt 2\n"
    attempts = [frame["attempt"] for frame in frames if frame["kind"] == "log"]
    assert attempts == sorted(attempts) == [0, 1, 2]
    assert [frame["reason"] for frame in frames if frame["kind"] == "event"].count("Retrying") == 2


def test_another_task_can_be_followed(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "echo task $PAI_TASK_INDEX", instances=3))
    for index in range(3):
        frames = frames_of(cluster, name, role="main", index=index)
        assert log_in(frames) == b"task %d\n" % index
        assert frames[-1]["kind"] == "end"


def test_followers_see_a_stop(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "sleep 600"))
    stream = iter(cluster.follow(name))
    next(frame for frame in stream if frame["kind"] == "state" and frame["state"] == "RUNNING")
    cluster.stop(name)
    states = [frame["state"] for frame in stream if frame["kind"] in ("state", "end")]
    assert states[-1] == "STOPPED"


@pytest.mark.parametrize(
    "query",
    [
        "stream=everything",
        "role=other",
        "index=1",
        "index=x",
        "index=-1",
        "index=%C2%B2",
        "index=" + "9" * 5000,
        "from=0",
        "from=0.0:",
        "from=a.b:c",
        "from=0.0:" + "9" * 30,
        "tail=x",
        "tail=-1",
        "tail=%C2%B2",
        "tail=" + "9" * 5000,
    ],
)
def test_invalid_query_is_rejected(cluster: TeamCluster, name: str, query: str) -> None:
    cluster.accept(job(name, "true"))
    reply = cluster.get(cluster.path(name, f"/follow?{query}"))
    assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError"), reply.text


def test_many_followers_of_one_job_get_the_whole_log(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "for i in $(seq 200); do echo line $i; sleep 0.002; done"))
    with ThreadPoolExecutor(20) as pool:
        logs = list(pool.map(lambda _: log_in(frames_of(cluster, name)), range(20)))
    expected = b"".join(b"line %d\n" % number for number in range(1, 201))
    assert set(logs) == {expected}


def test_disconnected_followers_leak_no_descriptors(cluster: TeamCluster, name: str) -> None:
    """The server has as many descriptors and inotify watches after as before."""
    cluster.accept(job(name, "echo ready", "sleep 600"))
    stream = iter(cluster.follow(name))
    next(frame for frame in stream if frame["kind"] == "log")
    where = cluster.get(cluster.path(name, "/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs")).json()
    uri = where["locations"][0]["uri"]
    assert cluster.process is not None
    fds = cluster.home.joinpath("/proc", str(cluster.process.pid), "fd")

    def open_fds() -> int:
        return len(list(fds.iterdir()))

    before = open_fds()
    for _ in range(20):
        other = cluster.follow(name)
        next(iter(other))
        other.close()
        connection = cluster.connect()
        connection.request("GET", uri + "&follow=true")
        assert connection.getresponse().readline() == b"ready\n"
        connection.close()
    eventually(lambda: open_fds() <= before + 2, "the end of the connections")
    cluster.stop(name)
    assert [frame for frame in stream if frame["kind"] == "end"]
    log = cluster.log.read_text()
    assert "never retrieved" not in log
    assert "was destroyed but it is pending" not in log
    assert "Traceback" not in log


def test_new_line_reaches_a_follower_at_once(cluster: TeamCluster, name: str) -> None:
    """Also when it connected before the job's folder existed: the server uses inotify, and does not poll."""
    lines = cluster.home.parent / f"{name}.lines"
    os.mkfifo(lines)
    cluster.accept(job(name, f"while read line; do echo $line; done < {lines}"))
    stream = cluster.follow(name)
    frames = iter(stream)
    # Opened for reading too, so that neither side blocks in open.
    with os.fdopen(os.open(lines, os.O_RDWR), "wb", buffering=0) as fifo:
        next(frame for frame in frames if frame["kind"] == "state" and frame["state"] == "RUNNING")
        eventually(lambda: is_watched(cluster, name), "the watch")
        for number in range(30):
            fifo.write(b"%d\n" % number)
            received = next(frame for frame in frames if frame["kind"] in ("log", "ping"))
            assert received["kind"] == "log", "the server found the line by polling, after a long silence"
            assert received["data"] == b"%d\n" % number
    assert list(frames)[-1]["state"] == "SUCCEEDED"
    stream.close()


def is_watched(cluster: TeamCluster, name: str) -> bool:
    """Whether the server has an inotify watch on the folder of the job's task."""
    uid = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    folder = cluster.home / "tasks" / uid[:2] / uid
    assert cluster.process is not None
    known = Path(f"/proc/{cluster.process.pid}/fdinfo").iterdir()
    return any(f" ino:{folder.stat().st_ino:x} " in line for fd in known for line in _watches(fd))


def _watches(fd: Path) -> list[str]:
    try:
        return [line for line in fd.read_text().splitlines() if line.startswith("inotify ")]
    except FileNotFoundError:  # closed meanwhile
        return []


# -- the end of a session --------------------------------------------------------------------------


def open_stream(cluster: TeamCluster, path: str, token: str | None) -> http.client.HTTPResponse:
    """An open stream whose first bytes have arrived."""
    connection = cluster.connect()
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.readline()
    return response


def streams_of(cluster: TeamCluster, name: str, token: str) -> list[http.client.HTTPResponse]:
    """Every kind of stream that a token opens, also through the address of a log."""
    task = "/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
    locations = cluster.get(cluster.path(name, task), token=token).json()["locations"]
    address = next(one["uri"] for one in locations if one["name"] == "all")
    uid = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    return [
        open_stream(cluster, cluster.path(name, "/follow"), token),
        open_stream(cluster, cluster.path(name, "/follow?stream=none"), token),
        open_stream(cluster, f"/log-manager/x/api/v1/logs/all?pod-uid={uid}&follow=true", token),
        open_stream(cluster, address + "&follow=true", None),
    ]


@pytest.fixture
def running(cluster: TeamCluster, name: str) -> Iterator[str]:
    """A running job of alice that has printed a line."""
    cluster.accept(job(name, "echo started", "sleep 600"))
    cluster.wait_state(name, "RUNNING")
    eventually(lambda: b"started" in cluster.log_of(name), "the line")
    yield name
    cluster.stop(name)


def test_streams_end_with_logout_and_others_go_on(cluster: TeamCluster, running: str) -> None:
    token = cluster.log_in("bob")
    streams = streams_of(cluster, running, token)
    others = streams_of(cluster, running, cluster.tokens["bob"])
    assert cluster.ask("DELETE", "/api/v2/authn/basic/logout", token=token).status == 200
    for stream in streams:
        assert b'"kind":"end"' not in stream.read(), "the job goes on"
    assert cluster.get(cluster.path(running, "/follow"), token=token).status == 401
    cluster.stop(running)
    for stream in others[:2]:
        assert stream.read().splitlines()[-1] == b'{"kind":"end","state":"STOPPED","exitCode":-210}'


def test_streams_end_with_their_user(cluster: TeamCluster, running: str) -> None:
    admin = cluster.tokens["admin"]
    new = {"username": "dave", "password": PASSWORD, "virtualCluster": ["default"]}
    assert cluster.ask("POST", "/api/v2/users", new, token=admin).status == 201
    token = cluster.log_in("dave")
    streams = streams_of(cluster, running, token)
    uid = cluster.detail(running)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    credentials = {"username": "dave", "password": PASSWORD}
    ticket = cluster.ask("POST", "/log-manager/x/api/v1/tokens", credentials, token=None).json()["token"]
    every_log = f"/log-manager/x/api/v1/logs/all?pod-uid={uid}&follow=true&token={ticket}"
    streams.append(open_stream(cluster, every_log, None))
    assert cluster.ask("DELETE", "/api/v2/users/dave", token=admin).status == 200
    for stream in streams:
        assert b'"kind":"end"' not in stream.read()
    assert cluster.get(every_log, token=None).status == 401


def test_stream_with_endless_output_ends_with_logout(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "while :; do echo more; done"))
    cluster.wait_state(name, "RUNNING")
    token = cluster.log_in("bob")
    stream = open_stream(cluster, cluster.path(name, "/follow"), token)
    assert cluster.ask("DELETE", "/api/v2/authn/basic/logout", token=token).status == 200
    try:
        while stream.read(1 << 20):
            pass
    finally:
        cluster.stop(name)
    cluster.wait_over(name)


def test_tail_of_long_lines_is_limited_by_its_size(cluster: TeamCluster, name: str) -> None:
    cluster.make_long_log(name, 4 << 30)
    before = cluster.bytes_read()
    assert log_in(frames_of(cluster, name, tail=5000, tailBytes=1 << 20)) == bytes(1 << 20)
    assert cluster.bytes_read() - before < 16 << 20
