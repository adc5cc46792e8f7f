"""HTTP/1.1 over a plain socket, against correct and misbehaving servers; request targets."""

import socket
import subprocess
import sys
import threading
from urllib.parse import quote as reference_quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpaisdk.client import ClusterClient, Endpoint
from pairuntime.transport import http1
from pairuntime.transport.http1 import Body, Connection, HttpProtocolError
from support.http_peer import reply, upgrade_with_first_bytes


def connection(p) -> Connection:
    return Connection("127.0.0.1", p.port, 5)


def test_connection_is_reused(peer) -> None:
    p = peer(lambda r: reply({"path": r.path}))
    c = connection(p)
    for i in range(5):
        response = c.request("GET", f"/{i}", {}, None, 5)
        assert response.read() == b'{"path": "/%d"}' % i
    assert p.connections == 1


def test_body_is_sent_completely(peer) -> None:
    p = peer(lambda r: reply(r.body))
    body = bytes(range(256)) * 1000
    assert connection(p).request("POST", "/", {}, body, 5).read() == body


def test_generated_body_is_sent_completely(peer) -> None:
    class Counting(Body):
        def chunks(self):
            for _ in range(100):
                yield b"x" * 1000

    p = peer(lambda r: reply(str(len(r.body)).encode()))
    assert connection(p).request("PUT", "/", {}, Counting(100_000), 5).read() == b"100000"


def test_chunks_are_returned_as_they_arrive(peer) -> None:
    def respond(r):
        yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        yield b"5;name=x\r\nhello\r\n"
        yield b"1\r\n \r\n6\r\nworld!\r\n0\r\nTrailer: x\r\n\r\n"

    a = connection(peer(respond)).request("GET", "/", {}, None, 5)
    assert a.read_some() == b"hello"
    assert a.read() == b" world!"
    assert a.read_some() == b""


def test_body_until_connection_close(peer) -> None:
    def respond(r):
        yield b"HTTP/1.0 200 OK\r\n\r\nsome"
        yield b"thing"

    c = connection(peer(respond))
    assert c.request("GET", "/", {}, None, 5).read() == b"something"
    assert not c.is_open


def test_head_and_204_have_no_body(peer) -> None:
    c = connection(
        peer(
            lambda r: (
                b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
                if r.method == "HEAD"
                else b"HTTP/1.1 204 No\r\n\r\n"
            )
        )
    )
    assert c.request("HEAD", "/", {}, None, 5).read() == b""
    assert c.request("GET", "/", {}, None, 5).read() == b""


def test_interim_response_is_skipped(peer) -> None:
    c = connection(peer(lambda r: b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + reply({"a": 1})))
    assert c.request("GET", "/", {}, None, 5).read() == b'{"a": 1}'


def test_unread_response_does_not_affect_the_next(peer) -> None:
    p = peer(lambda r: reply(b"x" * 200_000 if r.path == "/big" else b"small"))
    c = connection(p)
    c.request("GET", "/big", {}, None, 5).read_some()
    assert c.request("GET", "/small", {}, None, 5).read() == b"small"


def test_truncated_response_is_an_error(peer) -> None:
    def cut(r):
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"

    with pytest.raises(HttpProtocolError):
        connection(peer(cut)).request("GET", "/", {}, None, 5).read()

    def cut_chunk(r):
        yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nonly"

    with pytest.raises(HttpProtocolError):
        connection(peer(cut_chunk)).request("GET", "/", {}, None, 5).read()


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300,
        b"A" * 100_000,
    ],
)
def test_server_that_does_not_speak_http_is_detected(peer, raw: bytes) -> None:
    with pytest.raises(HttpProtocolError):
        connection(peer(lambda r: iter([raw]))).request("GET", "/", {}, None, 5).read()


def test_early_error_response_is_read() -> None:
    class Endless(Body):
        def chunks(self):
            for _ in range(2000):
                yield b"x" * 65536

    listener = socket.create_server(("127.0.0.1", 0))
    import threading

    def refuse() -> None:
        sock, _ = listener.accept()
        sock.recv(1000)
        sock.sendall(reply({"message": "too large"}, 413, "Connection: close"))
        sock.shutdown(socket.SHUT_WR)
        with sock:
            while sock.recv(1 << 20):
                pass

    threading.Thread(target=refuse, daemon=True).start()
    c = Connection("127.0.0.1", listener.getsockname()[1], 5)
    response = c.request("PUT", "/", {}, Endless(2000 * 65536), 5)
    assert response.status == 413
    listener.close()


def test_silent_server_times_out(peer) -> None:
    import threading

    never = threading.Event()
    c = connection(peer(lambda r: b"" if never.wait(5) else None))
    with pytest.raises(TimeoutError):
        c.request("GET", "/", {}, None, 0.05)
    never.set()
    assert not c.is_open


def test_slow_response_is_notified_once_and_still_read(peer, monkeypatch) -> None:
    monkeypatch.setattr(http1, "SLOW_RESPONSE_S", 60)  # a quick response of a machine that stalls is not slow
    notified = threading.Event()

    def slow(request):
        if request.path == "/slow":
            assert notified.wait(90)
        return reply(b"done")

    p = peer(slow)
    notices = []
    c = connection(p)
    c.on_slow_response = lambda: (notices.append(1), notified.set())
    headers = {"Host": "x"}
    assert c.request("GET", "/quick", headers, None, 90).read() == b"done" and notices == []
    monkeypatch.setattr(http1, "SLOW_RESPONSE_S", 0.05)
    assert c.request("GET", "/slow", headers, None, 90).read() == b"done" and notices == [1]
    assert c.request("GET", "/quick", headers, None, 90).read() == b"done"


def test_slow_connect_is_notified(monkeypatch) -> None:
    monkeypatch.setattr(http1, "SLOW_RESPONSE_S", 0.05)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]  # fill the accept queue
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        notices = []
        c = Connection("127.0.0.1", port, 0.3)
        c.on_slow_response = lambda: notices.append(1)
        with pytest.raises(TimeoutError):
            c.request("GET", "/", {"Host": "x"}, None, 0.3)
        assert notices == [1]
        for one in waiting:
            one.close()


def test_first_bytes_of_the_new_protocol_come_with_the_response(peer) -> None:
    """A server may send both at once: they are one read of the client."""
    first = b"\x82\x05hello"
    p = peer(lambda request: upgrade_with_first_bytes(request, first, b"\x82\x01!"))
    transport = ClusterClient("team", Endpoint(p.uri)).transport
    sock, received = transport.upgrade("/", {}, "any")
    with sock:
        while part := sock.recv(100):
            received += part
    assert received == first + b"\x82\x01!"


def test_line_break_in_a_header_or_target_is_rejected_and_nothing_is_sent(peer) -> None:
    p = peer(lambda r: reply({}))
    c = connection(p)
    for target, headers in (("/", {"A": "x\r\nB: y"}), ("/ HTTP/1.1\r\nA: x", {}), ("/\rx", {})):
        with pytest.raises(ValueError, match="line break"):
            c.request("GET", target, headers, None, 5)
    assert p.connections == 0 and c.request("GET", "/", {}, None, 5).status == 200


def test_host_name_is_resolved_without_the_codec_of_international_names(peer) -> None:
    p = peer(lambda r: reply({}))
    program = (
        "import sys\n"
        "from pairuntime.transport.http1 import Connection\n"
        f"assert Connection('localhost', {p.port}, 5).request('GET', '/', {{}}, None, 5).status == 200\n"
        "print({'encodings.idna', 'urllib', 'typing', 'threading', 'http', 'ssl'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, cwd="src")
    assert ran.stdout == "set()\n", ran.stderr


def test_calling_a_function_does_not_import_the_http_client() -> None:
    program = (
        "import sys, pairuntime.task.function_call\n"
        "print({'ssl', 'http.client', 'tempfile', 'urllib.parse'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, cwd="src")
    assert ran.stdout == "set()\n", ran.stderr


@given(st.text())
def test_quote_matches_the_standard_library(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert http1.quote(text) == reference_quote(text, safe="")


def test_empty_query_values_are_omitted() -> None:
    assert http1.query({"a": "x y", "b": "", "c": None, "d": 0}) == "?a=x%20y&d=0"
    assert http1.query({"a": ""}) == ""
