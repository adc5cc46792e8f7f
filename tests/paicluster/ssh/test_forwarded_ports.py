"""Ports of tasks by `ssh -L`, `-D` and `-W`."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from support.ports import free_port
from support.server_fixture import DEADLINE_S, eventually, job
from support.ssh_client import SshClient
from support.task_service import (
    BANNER,
    ECHO,
    BannerServer,
    EchoServer,
    exchange,
    outcomes_of_connections,
    receive_all,
)
from support.team_cluster import TeamCluster


@pytest.fixture(scope="module", name="service")
def echo_service(cluster: TeamCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshClient]:
    """A client of a job with an echo service, whose port is in the file `port` of the task."""
    cluster.accept(job("echo", f"{sys.executable} -c '{ECHO}'"))
    client = SshClient.of_job(cluster, "alice~echo", tmp_path_factory.mktemp("client"))
    eventually(lambda: client.ssh("cat port").stdout, "the service")
    yield client
    cluster.stop("echo")


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def forwarding(client: SshClient, *words: str, port: int) -> Iterator[None]:
    process = client.start("-N", "-o", "ExitOnForwardFailure=yes", *words, "task")
    try:
        eventually(lambda: is_open(port), "the local port")
        yield
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def test_local_port_carries_bytes_and_half_close(service: SshClient) -> None:
    remote, local = service.out("cat port"), free_port()
    data = os.urandom(2_000_000)
    with forwarding(service, "-L", f"{local}:localhost:{remote}", port=local):
        assert exchange(local, data) == data + b"bye"
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda number: exchange(local, str(number).encode()), range(40)))
        assert answers == [f"{number}bye".encode() for number in range(40)]


def test_servers_that_speak_first(service: SshClient) -> None:
    talks, leaves, talking, leaving = EchoServer(BANNER), BannerServer(BANNER), free_port(), free_port()
    words = ("-L", f"{talking}:localhost:{talks.port}", "-L", f"{leaving}:localhost:{leaves.port}")
    with forwarding(service, *words, port=leaving):
        assert outcomes_of_connections(talking, b"hello ", 50) == {BANNER + b"hello bye": 50}
        assert outcomes_of_connections(leaving, b"", 50) == {BANNER: 50}
    talks.close()
    leaves.close()


def test_standard_streams_are_a_connection(service: SshClient) -> None:
    remote = service.out("cat port")
    done = service.run("ssh", "-W", f"127.0.0.1:{remote}", "task", input=b"hello ")
    assert (done.returncode, done.stdout) == (0, b"hello bye"), done


def test_socks_proxy_reaches_ports_of_the_task_only(service: SshClient) -> None:
    remote, local = int(service.out("cat port")), free_port()

    def ask_proxy(host: bytes, port: int) -> tuple[int, socket.socket]:
        """Reply of a SOCKS 5 proxy to a request for a connection, and the connection."""
        sock = socket.create_connection(("127.0.0.1", local), timeout=DEADLINE_S)
        sock.sendall(b"\x05\x01\x00")
        assert sock.recv(2) == b"\x05\x00"
        sock.sendall(b"\x05\x01\x00\x03" + bytes((len(host),)) + host + port.to_bytes(2, "big"))
        reply = sock.recv(10)
        return (reply[1] if len(reply) > 1 else -1), sock

    with forwarding(service, "-D", str(local), port=local):
        status, sock = ask_proxy(b"localhost", remote)
        with sock:
            assert status == 0
            sock.sendall(b"by proxy ")
            sock.shutdown(socket.SHUT_WR)
            assert receive_all(sock) == b"by proxy bye"
        status, sock = ask_proxy(b"192.0.2.1", 80)
        sock.close()
        assert status != 0


def test_closed_port_is_refused_with_the_reason(service: SshClient) -> None:
    done = service.run("ssh", "-o", "LogLevel=INFO", "-W", f"localhost:{free_port()}", "task", input=b"")
    assert done.returncode == 255 and b"Nothing listens on port" in done.stderr, done
    done = service.run("ssh", "-o", "LogLevel=INFO", "-W", "192.0.2.1:80", "task", input=b"")
    assert done.returncode == 255 and b"use localhost, not 192.0.2.1" in done.stderr, done
