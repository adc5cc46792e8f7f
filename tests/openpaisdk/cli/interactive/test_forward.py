"""`pai forward`: ports of running jobs on this machine."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from support.cli_user import LIMIT, until
from support.ports import free_port
from support.task_service import (
    BANNER,
    DEADLINE_S,
    ECHO,
    BannerServer,
    EchoServer,
    exchange,
    outcomes_of_connections,
    receive_all,
)

SERVICE = f"{shlex.quote(sys.executable)} -c {shlex.quote(ECHO)}"


def start_service(user, *options: str) -> tuple[str, int]:
    """A job that runs the echo service, and its port."""
    words = ("--no-sources", "-j", "forward_$", *options, "--", "sh", "-c", f"exec {SERVICE}")
    name = user.pai("sub", *words).out.strip()
    until(lambda: "port" in user.pai("logs", name).out)
    return name, int(re.search(r"port (\d+)", user.pai("logs", name).out)[1])  # type: ignore[index]


@pytest.fixture(name="service")
def echo_service(user) -> Iterator[tuple[str, int]]:
    name, port = start_service(user)
    yield name, port
    user.pai("stop-job", name)


@contextmanager
def forwarding(user, *words: object) -> Iterator[tuple[object, list[str]]]:
    """A running `pai forward`, and the lines that it printed, one for each port."""
    process = user.begin("forward", *(str(word) for word in words))
    try:
        count = sum(":" in str(word) for word in words)
        yield process, [process.stdout.readline() for _ in range(count)]
    finally:
        process.kill()
        process.communicate()


def local_port(line: str) -> int:
    return int(re.fullmatch(r"Forwarding 127\.0\.0\.1:(\d+) -> main-0:\d+\n", line)[1])  # type: ignore[index]


def test_port_is_reachable_here_under_another_number(user, service: tuple[str, int]) -> None:
    name, port = service
    with forwarding(user, name, f"0:{port}", f":{port}") as (_, lines):
        for line in lines:
            assert line.endswith(f"-> main-0:{port}\n")
            data = bytes(range(256)) * 10_000
            # Half-closed: the service answers after the end of what it gets.
            assert exchange(local_port(line), data) == data + b"bye"


def test_port_alone_is_the_same_here(user, service: tuple[str, int]) -> None:
    """The service has this port on the same machine, so the number is taken."""
    name, port = service
    done = user.pai("forward", name, str(port))
    assert done.status == 1 and done.out == "", done
    assert f"Port {port} of this machine is taken." in done.err and "0:80" in done.err


def test_role_index_and_local_port(user, service: tuple[str, int]) -> None:
    name, port = service
    here = free_port()
    with forwarding(user, "--role", "main", "--index", "0", name, f"{here}:{port}") as (_, lines):
        assert lines == [f"Forwarding 127.0.0.1:{here} -> main-0:{port}\n"]
        assert exchange(here, b"x") == b"xbye"


def test_servers_that_speak_first(user, service: tuple[str, int]) -> None:
    """Their first bytes come together with the response that opens the connection."""
    talks, leaves = EchoServer(BANNER), BannerServer(BANNER)
    with forwarding(user, service[0], f"0:{talks.port}", f"0:{leaves.port}") as (_, lines):
        talking, leaving = (local_port(line) for line in lines)
        assert outcomes_of_connections(talking, b"hello ", 50) == {BANNER + b"hello bye": 50}
        assert outcomes_of_connections(leaving, b"", 50) == {BANNER: 50}
    talks.close()
    leaves.close()


@pytest.mark.slow
def test_200_connections_at_once(user, service: tuple[str, int]) -> None:
    """All are open at the same time, and a slow one does not hold up the others."""
    name, port = service
    with forwarding(user, name, f"0:{port}") as (_, lines):
        here = local_port(lines[0])
        all_open = threading.Barrier(200)

        def use(number: int) -> bytes:
            with socket.create_connection(("127.0.0.1", here), timeout=DEADLINE_S) as sock:
                sock.sendall(b"%d." % number)
                got = sock.recv(1)
                all_open.wait(DEADLINE_S)
                sock.shutdown(socket.SHUT_WR)
                return got + receive_all(sock)

        stuck = socket.create_connection(("127.0.0.1", here), timeout=DEADLINE_S)
        stuck.setblocking(False)
        try:
            while True:
                stuck.send(bytes(1 << 16))  # reads nothing of what comes back
        except BlockingIOError:
            pass
        with ThreadPoolExecutor(200) as pool:
            answers = list(pool.map(use, range(200)))
        assert answers == [b"%d.bye" % number for number in range(200)]
        stuck.close()


def assert_reset(port: int) -> None:
    """A new connection to that local port is reset: at once, so ``connect`` itself may already say so."""
    with pytest.raises(ConnectionResetError):
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
            receive_all(sock)


def test_nothing_listens(user, service: tuple[str, int]) -> None:
    name, port = service
    closed = free_port()
    with forwarding(user, name, f"0:{closed}", f"0:{port}") as (process, lines):
        for _ in range(2):
            assert_reset(local_port(lines[0]))
        # The forward goes on.
        assert exchange(local_port(lines[1]), b"x") == b"xbye"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
    assert err.count(f"Nothing listens on port {closed} of task main[0] of job") == 1, err
    assert "Traceback" not in err


def test_interrupt_ends_it_with_its_connections(user, service: tuple[str, int]) -> None:
    name, port = service
    with forwarding(user, name, f"0:{port}") as (process, lines):
        with socket.create_connection(("127.0.0.1", local_port(lines[0])), timeout=DEADLINE_S) as sock:
            sock.sendall(b"hello")
            assert sock.recv(5) == b"hello"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=LIMIT)
            assert (process.returncode, out, err) == (130, "", "")
            with pytest.raises(ConnectionResetError):
                receive_all(sock)


def test_job_that_ends_ends_the_forward(user) -> None:
    name, port = start_service(user)
    with forwarding(user, name, f"0:{port}") as (process, lines):
        assert exchange(local_port(lines[0]), b"x") == b"xbye"
        user.pai("stop-job", name)
        until(lambda: user.state(name) == "STOPPED")
        assert_reset(local_port(lines[0]))
        _, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 1
        assert "has already ended, so its ports cannot be forwarded." in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--role", "none", "8080:80"], "has no task role 'none'; it has main."),
        (["--index", "7", "8080:80"], "Task role main has 1 task, numbered from 0."),
        (["--user", "nobody", "8080:80"], "There is no job"),
    ],
)
def test_wrong_task(user, service: tuple[str, int], words: list[str], text: str) -> None:
    done = user.pai("forward", service[0], *words)
    assert done.status == 1 and text in done.err and done.out == "" and "Traceback" not in done.err, done


@pytest.mark.parametrize(
    ("ports", "text"),
    [
        (["http"], "'http' is not a port."),
        (["80:"], "'80:' is not a port."),
        (["1:2:3"], "'1:2:3' is not a port."),
        (["70000"], "'70000' is not a port."),
        (["9" * 5000], "is not a port."),
        (["8080:0"], "A task has no port 0."),
        (["8080:80", "8080:81"], "The local port 8080 is named twice."),
        ([], "[LOCAL:]REMOTE"),
    ],
)
def test_wrong_ports(user, ports: list[str], text: str) -> None:
    done = user.pai("forward", "train", *ports)
    assert done.status == 2 and text in done.err, done


def test_job_that_does_not_run(user) -> None:
    done = user.pai("forward", "nowhere", "80")
    assert done.status == 1 and "There is no job 'nowhere'" in done.err, done
    name = user.pai("sub", "--no-sources", "--wait", "-j", "over_$", "true").out.strip()
    done = user.pai("forward", name, "8080:80")
    assert done.status == 1 and "has already ended, so its ports cannot be forwarded." in done.err, done


@pytest.mark.slow
def test_server_killed_during_forward(user, service: tuple[str, int]) -> None:
    """Open connections go on; new ones wait for the next server."""
    name, port = service
    with forwarding(user, name, f"0:{port}") as (_, lines):
        here = local_port(lines[0])
        with socket.create_connection(("127.0.0.1", here), timeout=DEADLINE_S) as sock:
            sock.sendall(b"before")
            assert sock.recv(6) == b"before"
            os.kill(int(user.handshake()["pid"]), signal.SIGKILL)
            sock.sendall(b"after")
            assert sock.recv(5) == b"after"
            assert exchange(here, b"new") == b"newbye"
