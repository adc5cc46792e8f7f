"""Retry window of a part after connection errors."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from openpaisdk.client import Endpoint
from openpaisdk.storage.backends import connection_pool
from openpaisdk.storage.backends.connection_pool import RETRY_WINDOW_S, ConnectionPool, read_all, with_retries
from paiprotocol.errors import ConnectionFailed
from support.server_fixture import eventually

# So many that waiting in turn and waiting in parallel differ by more than a busy machine's delays.
_ASKING = 16


class Clock:
    """Clock that advances only by sleeps, however slow the machine is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(connection_pool, "time", made)
    return made


class Way:
    """An action that loses its connection several times, each time after a delay."""

    def __init__(self, clock: Clock, cuts: int, after_s: float):
        self.clock = clock
        self.cuts = cuts
        self.after_s = after_s
        self.tries = 0

    def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self.cuts:
            self.clock.sleep(self.after_s)
            raise ConnectionFailed("cut")
        return "all of it"


@pytest.mark.parametrize(("cuts", "after_s"), [(1, 0.0), (1, 2 * RETRY_WINDOW_S), (3, 1.5 * RETRY_WINDOW_S)])
def test_late_connection_error_is_retried_like_an_early_one(clock: Clock, cuts: int, after_s: float) -> None:
    assert with_retries(Way(clock, cuts, after_s)) == "all of it"


@pytest.mark.parametrize("after_s", [0.0, 1.2 * RETRY_WINDOW_S])
def test_retries_end(clock: Clock, after_s: float) -> None:
    way = Way(clock, 1000, after_s)
    with pytest.raises(ConnectionFailed):
        with_retries(way)
    assert 1 < way.tries < 10


def test_nested_retries_use_one_window(clock: Clock) -> None:
    way, began = Way(clock, 1000, 0.0), clock.now
    with pytest.raises(ConnectionFailed):
        with_retries(lambda: with_retries(lambda: with_retries(way)))
    assert clock.now - began <= RETRY_WINDOW_S
    assert way.tries > 1
    assert with_retries(Way(clock, 1, 0.0)) == "all of it"


class CountingServer(ThreadingHTTPServer):
    """Server of connections that stay open; counts those that clients closed."""

    daemon_threads = True
    closed = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), KeptOpen)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def shutdown_request(self, request: Any) -> None:
        self.closed += 1
        super().shutdown_request(request)


class KeptOpen(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[CountingServer]:
    made = CountingServer()
    yield made
    made.shutdown()
    made.server_close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_connections_end_with_their_thread_or_with_the_pool(server: CountingServer) -> None:
    pool = ConnectionPool("storage", Endpoint(server.url, "me", ""))

    def ask() -> None:
        for response in (
            pool.transport().request("GET", "/"),
            pool.transport(streaming=True).request("GET", "/"),
            pool.follow_redirect("GET", server.url + "/data", None),
        ):
            assert read_all(response, server.url) == b"ok"

    for _ in range(4):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    eventually(lambda: server.closed == 12)
    with ThreadPoolExecutor(1) as alive:
        alive.submit(ask).result()
        assert server.closed == 12
        pool.close()
        eventually(lambda: server.closed == 15)


@pytest.mark.skipif(sys.platform != "linux", reason="open files are handed over on Linux only")
def test_all_threads_of_a_lost_session_fail_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from openpaisdk.storage.backends.fd_passing import FdChannel

    monkeypatch.setenv("PAI_TRANSFER_RETRY_S", "1")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("")
    listener.listen()
    name = listener.getsockname()[1:].decode()
    answers = iter([{"socket": name, "ticket": "t", "pid": os.getpid(), "uid": os.geteuid()}])

    def invited() -> dict[str, object]:
        if (answer := next(answers, None)) is None:
            raise ConnectionFailed("gone")
        return dict(answer)

    def serve_once() -> None:
        talk, _ = listener.accept()
        talk.recv(1 << 16)
        talk.sendall(b"{}\n")
        talk.close()

    server = threading.Thread(target=serve_once)
    server.start()
    talk = FdChannel(invited)
    server.join()
    listener.close()
    durations_s: list[float] = []

    def ask() -> None:
        began = time.monotonic()
        with pytest.raises(ConnectionFailed):
            talk.finish("an upload", {})
        durations_s.append(time.monotonic() - began)

    asking = [threading.Thread(target=ask) for _ in range(_ASKING)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    # One after the other, the last thread would fail after sixteen times as long.
    assert len(durations_s) == _ASKING and max(durations_s) < _ASKING / 2 * 0.8
