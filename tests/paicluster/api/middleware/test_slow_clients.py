"""Clients without progress are dropped; slow but steady ones are not."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

import pytest

from support.server_fixture import eventually, job
from support.team_cluster import TeamCluster

NewTeam = Callable[..., TeamCluster]
CONFIG = "limits: {slow-client: 1s}\n"


@pytest.fixture
def cluster(new_team: NewTeam) -> TeamCluster:
    return new_team(CONFIG)


# Generous, for busy machines.
DEADLINE_S = 60.0


def until_closed(peer: socket.socket) -> bytes:
    """Bytes the server sends before it closes the connection."""
    peer.settimeout(DEADLINE_S)
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := peer.recv(65536):
            received += part
    return received


@pytest.mark.slow
def test_unfinished_request_is_dropped(cluster: TeamCluster) -> None:
    def peer(*sent: bytes) -> socket.socket:
        made = socket.create_connection(cluster.address, 10)
        for part in sent:
            made.sendall(part)
        return made

    auth = b"Authorization: Bearer " + cluster.token.encode() + b"\r\n"
    silent = peer()
    half_a_head = peer(b"GET /api/v2/info HTTP/1.1\r\nHost:")
    no_body = peer(b"POST /api/v2/jobs HTTP/1.1\r\nHost: x\r\n" + auth + b"Content-Length: 100\r\n\r\n{")
    second_half = peer(b"GET /api/v2/info HTTP/1.1\r\nHost: x\r\n\r\nGET /api")
    for connection in (silent, half_a_head, no_body):
        assert b"408" in until_closed(connection)
        connection.close()
    assert until_closed(second_half).startswith(b"HTTP/1.1 200")
    second_half.close()
    # Sending a byte now and then does not help.
    dripping = peer(b"POST /api/v2/jobs HTTP/1.1\r\nHost: x\r\n" + auth + b"Content-Length: 100000\r\n\r\n")
    deadline = time.monotonic() + DEADLINE_S
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        while time.monotonic() < deadline:
            dripping.sendall(b"x")
            time.sleep(0.05)
    dripping.close()
    assert cluster.get("/healthz", token=None).status == 200
    assert "Traceback" not in cluster.log.read_text()


@pytest.mark.slow
def test_unread_response_is_dropped_and_idle_follower_is_not(cluster: TeamCluster) -> None:
    name = "chatty"
    cluster.accept(job(name, "head -c 50000000 /dev/zero | tr '\\0' x; echo; sleep 600"))
    cluster.wait_state(name, "RUNNING")
    quiet = "quiet"
    cluster.accept(job(quiet, "sleep 600"))
    waiting = cluster.follow(quiet)
    request = f"GET {cluster.path(name, '/follow')} HTTP/1.1\r\nHost: x\r\n"
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(DEADLINE_S)
        peer.connect(cluster.address)
        peer.sendall(f"{request}Authorization: Bearer {cluster.token}\r\n\r\n".encode())
        port = peer.getsockname()[1]
        eventually(lambda: _connected(cluster, port), "a connection")
        eventually(lambda: not _connected(cluster, port), "the end of the unread connection", DEADLINE_S)
    cluster.stop(quiet)
    assert [frame["kind"] for frame in waiting][-1] == "end"
    waiting.close()


@pytest.mark.slow
def test_slow_but_steady_reader_is_not_dropped(cluster: TeamCluster) -> None:
    cluster.accept(job("long", "head -c 30000000 /dev/zero | tr '\\0' x; echo; sleep 600"))
    cluster.wait_state("long", "RUNNING")
    # If this machine stalled, the client was not steady, and the attempt proves nothing: repeat it.
    eventually(lambda: _reads_steadily(cluster), "a run without a stall of this machine", DEADLINE_S)


def _reads_steadily(cluster: TeamCluster) -> bool:
    """Read for four times the slow-client timeout. False when this machine stalled meanwhile."""
    request = f"GET {cluster.path('long', '/follow')} HTTP/1.1\r\nHost: x\r\n"
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        peer.settimeout(DEADLINE_S)
        peer.connect(cluster.address)
        peer.sendall(f"{request}Authorization: Bearer {cluster.token}\r\n\r\n".encode())
        last = time.monotonic()
        deadline = last + 4
        # The server always has more to send than the client reads.
        while (now := time.monotonic()) < deadline:
            steady = now - last < 0.5
            last = now
            with contextlib.suppress(ConnectionResetError):
                if peer.recv(16384):
                    time.sleep(0.02)
                    continue
            assert not (steady and time.monotonic() - last < 0.5), "the steady client was dropped"
            return False
        rest = 0
        while rest < 5_000_000:
            part = peer.recv(1 << 20)
            assert part
            rest += len(part)
    return True


def _connected(cluster: TeamCluster, port: int) -> bool:
    """Whether the server's connection from this port is open."""
    assert cluster.process is not None
    peer_port = f"{port:04X}"
    own_port = f"{cluster.address[1]:04X}"
    with open(f"/proc/{cluster.process.pid}/net/tcp") as f:  # noqa: PTH123
        rows = [line.split() for line in f.readlines()[1:]]
    return any(
        row[1].endswith(":" + own_port) and row[2].endswith(":" + peer_port) and row[3] == "01"
        for row in rows
    )
