"""`GET /api/v2/jobs/{framework}/forward`: who may reach a port of a task, and how."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpaisdk.client import ClusterClient
from openpaisdk.client.port_forward import PortForward
from openpaisdk.client.task_choice import TaskChoice
from paiprotocol.errors import Conflict
from pairuntime.transport import websocket
from support.engine_rig import running_with
from support.ports import free_port
from support.server_fixture import SecureCluster, eventually, job
from support.task_service import BANNER, ECHO, EchoServer, outcomes_of_connections
from support.team_cluster import TeamCluster
from support.web_socket import Refused, WebSocket

PROTOCOL = "pai.forward.v1"
SERVICE = f"{shlex.quote(sys.executable)} -c {shlex.quote(ECHO)}"


class ForwardSocket(WebSocket):
    """A forwarded connection: ``received`` are its bytes, until its end."""

    def __init__(self, cluster, path: str, **more: str):
        super().__init__(cluster, path, **{"protocols": PROTOCOL, **more})
        self.received = b""
        self.has_ended = False

    def send_bytes(self, data: bytes) -> None:
        self.sock.sendall(websocket.frame(websocket.BINARY, data, masked=True))

    def step(self) -> bool:
        data = self.receive()
        for opcode, payload in self._reader.feed(data):
            if opcode == websocket.BINARY:
                self.received += payload
                self.has_ended = self.has_ended or not payload
            elif opcode == websocket.CLOSE:
                self.close_code = int.from_bytes(payload[:2], "big")
        return bool(data)

    def read_bytes_until(self, text: bytes) -> None:
        self.step_until(lambda: text in self.received)

    def close_regularly(self) -> None:
        """Both directions have ended."""
        self.step_until(lambda: self.close_code is not None)
        self.sock.sendall(websocket.close_frame(1000, masked=True))
        self.finish()


@pytest.fixture(name="service", scope="module")
def echo_service(team: TeamCluster) -> Iterator[tuple[str, int]]:
    """A job of alice whose second task listens on a port."""
    name = team.accept(job("service", f"[ $PAI_TASK_INDEX = 0 ] && sleep 600; exec {SERVICE}", instances=2))
    team.wait_state(name, "RUNNING")
    eventually(lambda: b"port" in team.log_of(name, index=1), "the service")
    yield name, int(re.search(rb"port (\d+)", team.log_of(name, index=1))[1])  # type: ignore[index]
    team.stop(name)
    team.wait_over(name)


def open_port(team: TeamCluster, name: str, port: object, query: str = "", **more: str) -> ForwardSocket:
    return ForwardSocket(team, team.path(name, f"/forward?port={port}{query}"), **more)


def refused(team: TeamCluster, name: str, port: object, query: str = "", **more: str) -> tuple[int, str, str]:
    with pytest.raises(Refused) as error:
        open_port(team, name, port, query, **more)
    reply = error.value.reply
    return reply.status, reply.json()["code"], reply.json()["message"]


def test_bytes_travel_both_ways_and_each_direction_ends_alone(
    team: TeamCluster, service: tuple[str, int]
) -> None:
    connection = open_port(team, *service, "&index=1")
    assert connection.protocol == PROTOCOL
    data = bytes(range(256)) * 100
    connection.send_bytes(data)
    connection.read_bytes_until(data)
    assert not connection.has_ended
    connection.send_bytes(b"")
    connection.read_bytes_until(data + b"bye")
    connection.close_regularly()
    assert connection.has_ended and connection.close_code == 1000


def test_request_without_an_upgrade_names_the_task(team: TeamCluster, service: tuple[str, int]) -> None:
    reply = team.ask("GET", team.path(service[0], "/forward?index=1"))
    assert (reply.status, reply.json()) == (200, {"role": "main", "index": 1})


def test_only_the_owner_and_administrators_may(team: TeamCluster, service: tuple[str, int]) -> None:
    status, code, message = refused(team, *service, token=team.tokens["bob"])
    assert (status, code) == (403, "ForbiddenUserError")
    assert message == "User bob is not allowed to forward ports of job alice~service."
    # Nothing is told about its tasks and ports either.
    for query in ("&role=none", "&index=1", "&index=7"):
        assert refused(team, service[0], free_port(), query, token=team.tokens["bob"])[2] == message
    assert team.ask("GET", team.path(service[0], "/forward"), token=team.tokens["bob"]).status == 403
    assert refused(team, *service, token=None)[0] == 401
    connection = open_port(team, *service, "&index=1", token=team.tokens["admin"])
    connection.send_bytes(b"hello")
    connection.read_bytes_until(b"hello")
    connection.sock.close()


def job_with_token(team: TeamCluster, name: str) -> tuple[str, str]:
    """A running job, and its own token."""
    # Encoded: the log has no secrets.
    team.accept(job(name, 'echo "token $(echo $PAI_USER_TOKEN | rev)."; sleep 600'))
    found = eventually(lambda: re.search(rb"token (\S+)\.", team.log_of(name)), "the task")
    return name, found[1].decode()[::-1]


def test_token_of_a_job_reaches_ports_of_this_job_only(team: TeamCluster, service: tuple[str, int]) -> None:
    name, token = job_with_token(team, "inside")
    status, _, message = refused(team, *service, "&index=1", token=token)
    assert (status, message) == (403, "A job is not allowed to forward ports of another job.")
    assert refused(team, name, free_port(), token=token)[1] == "NothingListensError"
    team.stop(name)


def test_nothing_listens(team: TeamCluster, service: tuple[str, int]) -> None:
    port = free_port()
    assert refused(team, service[0], port, "&index=1") == (
        409,
        "NothingListensError",
        f"Nothing listens on port {port} of task main[1] of job alice~service.",
    )


def test_connection_of_a_refused_request_serves_the_next_one(
    team: TeamCluster, service: tuple[str, int]
) -> None:
    client = ClusterClient("team", team.endpoint())
    choice = TaskChoice(service[0], index=1)
    for _ in range(2):
        with pytest.raises(Conflict, match="Nothing listens"):
            client.open_port(choice, free_port())
        connection = client.transport.connection
        assert client.forwarded_task(choice) == ("main", 1)
        assert client.transport.connection is connection


@pytest.mark.parametrize("port", ["", "0", "65536", "-1", "http", "9" * 30])
def test_port_that_does_not_exist(team: TeamCluster, service: tuple[str, int], port: str) -> None:
    status, code, message = refused(team, service[0], port)
    assert (status, code) == (400, "InvalidParametersError") and '"port"' in message


def test_task_that_does_not_run(team: TeamCluster, service: tuple[str, int]) -> None:
    name = service[0]
    assert refused(team, name, 80, "&role=none")[2] == "Job service has no task role 'none'; it has main."
    assert refused(team, name, 80, "&index=2")[2] == "Task role main has 2 tasks, numbered from 0."
    assert refused(team, "nowhere", 80)[:2] == (404, "NoJobError")
    team.run(job("forwarded", "true"))
    assert refused(team, "forwarded", 80) == (
        409,
        "TaskNotRunningError",
        "Task main[0] of job alice~forwarded has already ended, so its ports cannot be forwarded.",
    )
    waiting = team.accept(job("waits", "true", cpu=64, memory_mb=60_000, instances=2))
    assert "has not started yet, so its ports cannot be forwarded." in refused(team, waiting, 80)[2]
    team.stop(waiting)


def test_connection_ends_with_the_token_that_opened_it(team: TeamCluster, service: tuple[str, int]) -> None:
    token = team.log_in("alice")
    ending, lasting = (open_port(team, *service, "&index=1", token=one) for one in (token, team.token))
    for connection in (ending, lasting):
        connection.send_bytes(b"hello")
        connection.read_bytes_until(b"hello")
    assert team.ask("DELETE", "/api/v2/authn/basic/logout", token=token).status == 200
    ending.finish()
    assert not ending.has_ended and ending.close_code in (None, 1011)
    lasting.send_bytes(b"again")
    lasting.read_bytes_until(b"again")
    lasting.sock.close()


def test_connection_ends_with_the_rights_that_opened_it(team: TeamCluster, service: tuple[str, int]) -> None:
    with team.as_administrator("bob"):
        connection = open_port(team, *service, "&index=1", token=team.tokens["bob"])
        connection.send_bytes(b"hello")
        connection.read_bytes_until(b"hello")
    connection.finish()
    assert not connection.has_ended and connection.close_code in (None, 1011)


def test_connection_breaks_with_its_task(team: TeamCluster) -> None:
    name = team.accept(job("ends", f"exec {SERVICE}"))
    eventually(lambda: b"port" in team.log_of(name), "the service")
    connection = open_port(team, name, re.search(rb"port (\d+)", team.log_of(name))[1].decode())  # type: ignore[index]
    connection.send_bytes(b"hello")
    connection.read_bytes_until(b"hello")
    team.stop(name)
    connection.finish()
    team.wait_over(name)


def test_processes_that_end_with_their_job_are_no_errors_of_the_server(
    team: TeamCluster, service: tuple[str, int]
) -> None:
    """Those that were opened with the job's own token, as by SSH, are ended when it becomes invalid."""
    name, token = job_with_token(team, "stopped")
    server = EchoServer(BANNER)
    connection = open_port(team, name, server.port, token=token)
    connection.read_bytes_until(BANNER)
    session = WebSocket(team, team.path(name, "/exec"), token=token)
    session.send("start", command=["sh", "-c", "echo up; sleep 600"])
    session.read_until(b"up")
    uid = team.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    team.stop(name)
    team.wait_over(name)
    connection.finish()
    session.finish()
    server.close()
    eventually(lambda: not running_with(uid), "the end of its processes")
    # The server has noticed that, once it serves another process of this kind.
    assert refused(team, service[0], free_port(), token=team.log_in("alice"))[1] == "NothingListensError"
    assert "session host ended" not in team.log.read_text()


def test_frame_that_breaks_the_protocol_ends_only_its_connection(
    team: TeamCluster, service: tuple[str, int]
) -> None:
    broken, sound = (open_port(team, *service, "&index=1") for _ in range(2))
    broken.sock.sendall(b"\xff\xff no frame")
    broken.finish()
    sound.send_bytes(b"hello")
    sound.read_bytes_until(b"hello")
    sound.sock.close()


def test_connections_are_in_the_audit_log(team: TeamCluster, service: tuple[str, int]) -> None:
    open_port(team, *service, "&index=1").sock.close()
    refused(team, *service, token=team.tokens["bob"])

    def lines() -> set[tuple[object, ...]]:
        found = [json.loads(line) for line in (team.home / "audit.log").read_text().splitlines()]
        return {
            (one["user"], one["status"], one.get("about"))
            for one in found
            if str(one.get("path")).endswith("/forward")
        }

    eventually(lambda: lines() >= {("alice", 101, "main[1]"), ("bob", 403, None)}, "the audit log")


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_plain_connection_survives_the_end_of_the_server(new_team, end: str) -> None:
    """The forwarder has the client's own socket."""
    team = new_team()
    name = team.accept(job("kept", f"exec {SERVICE}"))
    eventually(lambda: b"port" in team.log_of(name), "the service")
    port = re.search(rb"port (\d+)", team.log_of(name))[1].decode()  # type: ignore[index]
    connection = open_port(team, name, port)
    connection.send_bytes(b"before")
    connection.read_bytes_until(b"before")
    getattr(team, end)()
    connection.send_bytes(b"after")
    connection.read_bytes_until(b"after")
    connection.send_bytes(b"")
    connection.read_bytes_until(b"bye")
    connection.close_regularly()
    team.start()
    open_port(team, name, port).sock.close()


def test_connection_over_tls(tmp_path: Path) -> None:
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
    try:
        cluster.start()
        name = cluster.accept(job("secure", f"exec {SERVICE}"))
        eventually(lambda: b"port" in cluster.log_of(name), "the service")
        port = re.search(rb"port (\d+)", cluster.log_of(name))[1].decode()  # type: ignore[index]
        connection = ForwardSocket(cluster, cluster.path(name, f"/forward?port={port}"))
        data = bytes(range(256)) * 4000
        connection.send_bytes(data)
        connection.send_bytes(b"")
        connection.read_bytes_until(data + b"bye")
        connection.close_regularly()
        assert connection.received == data + b"bye"
        # What the server says first is in the same TLS record as the response, or waits behind it.
        server = EchoServer(BANNER + data)
        client = ClusterClient("secure", cluster.endpoint())
        with PortForward(client, TaskChoice(name), server.port) as opened:
            answers = outcomes_of_connections(opened.local_port, b"hello ", 50)
        server.close()
        assert answers == {BANNER + data + b"hello bye": 50}, [answer[:80] for answer in answers]
    finally:
        cluster.close()
