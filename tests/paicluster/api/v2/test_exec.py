"""`GET /api/v2/jobs/{framework}/exec`: who may open a session, and what becomes of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from openpaisdk.client import ClusterClient
from paicluster.api.identity.browser_login import cookie_name, split_token
from support.engine_rig import mark, running_with
from support.server_fixture import DEADLINE_S, SecureCluster, eventually, job
from support.session_client import first_outputs
from support.team_cluster import TeamCluster
from support.web_socket import Refused, WebSocket


@pytest.fixture(name="running", scope="module")
def running_job(team: TeamCluster) -> Iterator[str]:
    """A job of alice that runs until the end of the tests."""
    name = team.accept(job("sessions", "echo up; sleep 600", instances=2))
    team.wait_state(name, "RUNNING")
    eventually(lambda: b"up" in team.log_of(name, index=1) and b"up" in team.log_of(name), "both tasks")
    yield name
    team.stop(name)
    team.wait_over(name)


def open_session(team: TeamCluster, name: str, query: str = "", **more: str) -> WebSocket:
    return WebSocket(team, team.path(name, f"/exec{query}"), **more)


def refused(team: TeamCluster, name: str, query: str = "", **more: str) -> tuple[int, str, str]:
    with pytest.raises(Refused) as error:
        open_session(team, name, query, **more)
    reply = error.value.reply
    return reply.status, reply.json()["code"], reply.json()["message"]


def test_session_runs_a_command(team: TeamCluster, running: str) -> None:
    session = open_session(team, running, "?role=main&index=1")
    assert session.protocol == "pai.session.v1"
    session.send("start", command=["sh", "-c", "cat; echo $PAI_TASK_INDEX; echo no >&2; exit 3"])
    session.send_stdin(b"in\0put ")
    session.send("stdin-end")
    assert session.finish() == {"type": "exit", "status": 3}
    assert session.written == {1: b"in\0put 1\n", 2: b"no\n"}
    assert {"type": "ack", "bytes": 7} in session.control and session.close_code == 1000


def test_first_output_of_50_sessions(team: TeamCluster, running: str) -> None:
    client = ClusterClient("team", team.endpoint())
    assert first_outputs(client, running, 50) == {(b"ready\nhello", 3): 50}


def test_task_that_runs_is_entered_before_its_start_is_recorded(team: TeamCluster) -> None:
    """The log shows that it runs; the record follows a moment later."""
    name = team.accept(job("unrecorded", "echo up; sleep 600"))
    team.wait_state(name, "RUNNING")
    uid = team.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    with closing(sqlite3.connect(team.home / "cluster.db", timeout=DEADLINE_S)) as database:
        assert database.execute("UPDATE tasks SET launched_ms = NULL WHERE uid = ?", (uid,)).rowcount == 1
        database.commit()
    session = open_session(team, name)
    session.send("start", command=["echo", "hello"])
    assert session.finish()["status"] == 0
    assert team.get(team.path(name, "/forward")).status == 200
    team.stop(name)
    team.wait_over(name)


def test_browser_sends_its_token_as_a_protocol(team: TeamCluster, running: str) -> None:
    """A page can set no header of a WebSocket."""
    protocols = f"pai.session.v1, bearer.{team.token}"
    session = open_session(team, running, token=None, protocols=protocols, Origin="http://elsewhere.example")
    session.send("start", command=["echo", "hello"])
    assert session.finish()["status"] == 0
    assert session.written[1] == b"hello\n"
    assert session.protocol == "pai.session.v1"
    wrong = {"token": None, "protocols": "pai.session.v1, bearer.wrong"}
    assert refused(team, running, **wrong)[0] == 401
    assert refused(team, running, token=None)[0] == 401


def test_portal_uses_the_session_of_its_browser(team: TeamCluster, running: str) -> None:
    """The cookie and the proof, together and from a page of this server only."""
    cookie, proof = split_token(team.log_in("alice"))
    host = "{}:{}".format(*team.address)
    own, name = f"http://{host}", cookie_name(f"http://{host}")
    browser = {
        "token": None,
        "Cookie": f"{name}={cookie}",
        "protocols": f"pai.session.v1, proof.{proof}",
        "Origin": own,
    }
    session = open_session(team, running, **browser)
    session.send("start", command=["echo", "hello"])
    assert session.finish()["status"] == 0
    assert session.written[1] == b"hello\n" and session.protocol == "pai.session.v1"
    for origin in ("http://elsewhere.example", f"{own}0", "null", "http://[", ""):
        status, _, message = refused(team, running, **browser | {"Origin": origin})
        assert (status, message) == (403, "Only pages of this cluster may use a browser's session.")
    assert refused(team, running, **browser | {"Cookie": ""})[0] == 401
    assert refused(team, running, **browser | {"protocols": "pai.session.v1"})[0] == 401
    assert refused(team, running, **browser | {"protocols": "pai.session.v1, proof.wrong"})[0] == 401


def test_only_the_owner_and_administrators_may(team: TeamCluster, running: str) -> None:
    status, code, message = refused(team, running, token=team.tokens["bob"])
    assert (status, code) == (403, "ForbiddenUserError")
    assert message == f"User bob is not allowed to run commands in job alice~{running}."
    # Nothing is told about its tasks either.
    assert refused(team, running, "?role=none", token=team.tokens["bob"])[2] == message
    session = open_session(team, running, token=team.tokens["admin"])
    session.send("start", command=["true"])
    assert session.finish()["status"] == 0


def test_token_of_a_job_opens_sessions_in_this_job_only(team: TeamCluster, running: str) -> None:
    session = open_session(team, running)
    session.send("start", command=["printenv", "PAI_USER_TOKEN"])
    session.finish()
    token = session.written[1].decode().strip()
    assert token
    inside = open_session(team, running, token=token)
    inside.send("start", command=["true"])
    assert inside.finish()["status"] == 0
    other = team.accept(job("other", "sleep 600"))
    team.wait_state(other, "RUNNING")
    status, code, message = refused(team, other, token=token)
    assert (status, code, message) == (
        403,
        "ForbiddenUserError",
        "A job is not allowed to run commands in another job.",
    )
    team.stop(other)


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("?role=none", 400, "Job sessions has no task role 'none'; it has main."),
        ("?index=2", 400, "Task role main has 2 tasks, numbered from 0."),
        ("?index=-1", 400, "\"index\" must be a whole number of 0 or more, not '-1'."),
        ("?index=" + "9" * 40, 400, '"index" must be less than or equal to 9223372036854775807.'),
    ],
)
def test_task_that_does_not_exist(
    team: TeamCluster, running: str, query: str, status: int, message: str
) -> None:
    found = refused(team, running, query)
    assert (found[0], found[2]) == (status, message)


def test_job_that_does_not_run(team: TeamCluster) -> None:
    assert refused(team, "nowhere")[:2] == (404, "NoJobError")
    waiting = team.accept(job("waiting", "true", cpu=64, memory_mb=60_000, instances=2))
    status, code, message = refused(team, waiting)
    assert (status, code) == (409, "TaskNotRunningError")
    assert message == "Task main[0] of job alice~waiting has not started yet, so no command can be run in it."
    team.stop(waiting)
    team.run(job("over", "true"))
    assert refused(team, "over")[2].startswith("Task main[0] of job alice~over has already ended")


def test_page_learns_that_the_task_has_just_ended(team: TeamCluster) -> None:
    """A browser does not show the response to a WebSocket: the page repeats the request without an upgrade.
    The engine sees the end of a task before it is recorded."""
    name = team.accept(job("just-ended", "true"))
    team.wait_over(name)
    message = f"Task main[0] of job alice~{name} is not running, so no command can be run in it."
    set_task_state(team, name, "AttemptRunning")
    for upgrade in ("websocket", ""):
        assert refused(team, name, Upgrade=upgrade) == (409, "TaskNotRunningError", message)
    set_task_state(team, name, "Completed")


def set_task_state(team: TeamCluster, name: str, state: str) -> None:
    uid = team.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    with closing(sqlite3.connect(team.home / "cluster.db", timeout=DEADLINE_S)) as database:
        assert database.execute("UPDATE tasks SET sub_state = ? WHERE uid = ?", (state, uid)).rowcount == 1
        database.commit()


@pytest.mark.parametrize(
    ("headers", "status", "text"),
    [
        ({"Upgrade": ""}, 426, "This API is a WebSocket: send the headers of an upgrade."),
        ({"Upgrade": "h2c"}, 426, "This API is a WebSocket"),
        ({"Sec_WebSocket_Version": "8"}, 400, '"Sec-WebSocket-Version" must be 13'),
        ({"Sec_WebSocket_Key": "short"}, 400, "16 bytes in base64"),
        ({"protocols": "chat"}, 400, "must offer pai.session.v1"),
    ],
)
def test_request_that_is_no_upgrade(
    team: TeamCluster, running: str, headers: dict[str, str], status: int, text: str
) -> None:
    found = refused(team, running, **headers)
    assert found[0] == status and text in found[2]


@pytest.mark.parametrize(
    "start",
    [
        '{"type": "start", "command": "true"}',
        '{"type": "start", "command": [""]}',
        '{"type": "start", "command": ["a\\u0000b"]}',
        '{"type": "start", "command": [1]}',
        pytest.param(json.dumps({"type": "start", "command": ["x", "y" * 600_000]}), id="too long"),
    ],
)
def test_command_that_is_none(team: TeamCluster, running: str, start: str) -> None:
    session = open_session(team, running)
    session.send_text(start)
    assert session.finish()["type"] == "error"
    assert session.close_code == 1000


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "no json",
            "[]",
            "{}",
            '{"type": "resize"}',
            "{",
            '{"type"',
            '{"type": "start" 1}',
            '"',
            '"\\x"',
        ),
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_message_before_the_start(team: TeamCluster, running: str, text: str) -> None:
    session = open_session(team, running)
    session.send_text(text)
    session.finish()
    assert session.close_code == 1002
    assert "Traceback" not in team.log.read_text()


def test_more_input_than_acknowledged_ends_the_session(team: TeamCluster, running: str) -> None:
    """A host never holds more than the window, whatever a client sends."""
    session = open_session(team, running)
    session.send("start", command=["sleep", "600"])
    for _ in range(30):
        try:
            session.send_stdin(bytes(65_536))
        except OSError:
            break
    try:
        session.finish()
    except OSError:  # with input unread the connection is reset
        return
    assert session.close_code == 1009


def test_killed_client_leaves_nothing(team: TeamCluster, running: str) -> None:
    word = mark()
    session = open_session(team, running)
    session.send("start", command=["sh", "-c", f": {word}; (setsid sleep 600 &) ; echo up; sleep 600"])
    session.read_until(b"up")
    assert running_with(word)
    session.sock.close()
    eventually(lambda: not running_with(word), "the end of the command")


def test_session_ends_with_the_token_that_opened_it(team: TeamCluster, running: str) -> None:
    word = mark()
    token = team.log_in("alice")
    ending, lasting = (open_session(team, running, token=one) for one in (token, team.token))
    for session in (ending, lasting):
        session.send("start", command=["sh", "-c", f": {word}; echo up; read line; echo got $line"])
        session.read_until(b"up")
    assert team.ask("DELETE", "/api/v2/authn/basic/logout", token=token).status == 200
    assert ending.finish() == {}
    eventually(lambda: len(running_with(word)) == 1, "the end of one command")
    lasting.send_stdin(b"it\n")
    assert lasting.finish()["status"] == 0
    assert lasting.written[1] == b"up\ngot it\n"


def test_session_ends_with_the_rights_that_opened_it(team: TeamCluster, running: str) -> None:
    """A former administrator keeps sessions in the own jobs, and none in those of other users."""
    assert team.submit(job("own", "sleep 600"), token=team.tokens["bob"]).status == 202
    own = "bob~own"
    eventually(
        lambda: team.get(f"/api/v2/jobs/{own}").json()["jobStatus"]["state"] == "RUNNING", "the job of bob"
    )
    with team.as_administrator("bob"):
        sessions = [
            WebSocket(team, f"/api/v2/jobs/{framework}/exec", token=team.tokens["bob"])
            for framework in (f"alice~{running}", own)
        ]
        for session in sessions:
            session.send("start", command=["sh", "-c", "echo up; read line; echo got $line"])
            session.read_until(b"up")
    others, lasting = sessions
    assert others.finish() == {}
    lasting.send_stdin(b"it\n")
    assert lasting.finish()["status"] == 0
    assert lasting.written[1] == b"up\ngot it\n"


def test_session_ends_with_its_task(team: TeamCluster) -> None:
    name = team.accept(job("short", "echo up; sleep 600"))
    team.wait_state(name, "RUNNING")
    eventually(lambda: b"up" in team.log_of(name), "the task")
    session = open_session(team, name)
    session.send("start", command=["sh", "-c", "echo in; sleep 600"])
    session.read_until(b"in")
    team.stop(name)
    assert session.finish()["status"] in (128 + 15, 128 + 9)
    team.wait_over(name)


@pytest.mark.slow  # waits until the host looks for its task
def test_session_that_ignores_the_stop_ends_with_its_task(team: TeamCluster) -> None:
    """As an interactive shell does."""
    name = team.accept(job("stubborn", "echo up; sleep 600"))
    team.wait_state(name, "RUNNING")
    eventually(lambda: b"up" in team.log_of(name), "the task")
    session = open_session(team, name)
    session.send("start", command=["sh", "-c", "trap '' TERM; echo in; while :; do sleep 1; done"])
    session.read_until(b"in")
    team.stop(name)
    assert session.finish()["status"] == 128 + 9
    team.wait_over(name)


def test_sessions_are_in_the_audit_log(team: TeamCluster, running: str) -> None:
    session = open_session(team, running, "?index=1")
    session.send("start", command=["echo", "a secret word"])
    session.finish()
    refused(team, running, token=team.tokens["bob"])

    def lines() -> list[dict[str, object]]:
        read = (team.home / "audit.log").read_text()
        assert "a secret word" not in read
        found = [json.loads(line) for line in read.splitlines()]
        return [line for line in found if str(line.get("path")).endswith("/exec")]

    eventually(lambda: {(one["user"], one["status"]) for one in lines()} >= {("alice", 101), ("bob", 403)})
    assert "main[1]" in [one.get("about") for one in lines()]


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_plain_session_survives_the_end_of_the_server(new_team, end: str) -> None:
    """The host has the client's own socket."""
    team = new_team()
    name = team.accept(job("kept", "echo up; sleep 600"))
    team.wait_state(name, "RUNNING")
    eventually(lambda: b"up" in team.log_of(name), "the task")
    session = open_session(team, name)
    session.send("start", command=["sh", "-c", "echo in; read word; echo got $word"])
    session.read_until(b"in")
    getattr(team, end)()
    session.send_stdin(b"hello\n")
    session.read_until(b"got hello")
    assert session.finish()["status"] == 0
    team.start()


def test_session_over_tls(tmp_path: Path) -> None:
    from support.certificates import certificate

    made = tmp_path / "tls"
    made.mkdir()
    certificate(made, "localhost")
    files = ("--tls-cert", str(made / "cert.pem"), "--tls-key", str(made / "key.pem"))
    cluster = SecureCluster(
        tmp_path / "home",
        ("--embedded", "--cpus", "4", "--memory-mb", "4096", *files),
        ca_file=made / "cert.pem",
    )
    word = mark()
    try:
        cluster.start()
        name = cluster.accept(job("secure", "echo up; sleep 600"))
        cluster.wait_state(name, "RUNNING")
        eventually(lambda: b"up" in cluster.log_of(name), "the task")
        session = WebSocket(cluster, cluster.path(name, "/exec"))
        session.send("start", command=["head", "-c", "20000000", "/dev/zero"])
        assert session.finish()["status"] == 0
        assert session.written[1] == bytes(20_000_000)
        client = ClusterClient("secure", cluster.endpoint())
        assert first_outputs(client, name, 10) == {(b"ready\nhello", 3): 10}
        session = WebSocket(cluster, cluster.path(name, "/exec"))
        session.send("start", command=["sh", "-c", f": {word}; echo up; sleep 600"])
        session.read_until(b"up")
        # The server's end is that of an encrypted connection.
        cluster.kill()
        eventually(lambda: not running_with(word), "the end of the command")
        cluster.start()
    finally:
        cluster.close()
