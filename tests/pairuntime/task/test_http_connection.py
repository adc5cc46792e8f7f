"""The HTTP connection of tasks against a real socket: lengths, chunks, kept and closed connections."""

import socket
import subprocess
import sys
import threading

import pytest

from pairuntime.task.http_connection import Connection, HttpError

OK = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Answers each request on one connection with the next of the given responses, then closes it."""

    def __init__(self, *responses: bytes):
        self.requests: list[bytes] = []
        self._responses = responses
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.netloc = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection = self._socket.accept()[0]
        for response in self._responses:
            text = b""
            while not text.endswith(b"\r\n\r\n"):
                text += connection.recv(65536)
            self.requests.append(text)
            connection.sendall(response)
        connection.close()
        self._socket.close()


def ask(connection: Connection, method: str = "GET") -> tuple[int, bytes]:
    connection.request(method, "/x", {"Authorization": "Bearer y"})
    response = connection.getresponse()
    return response.status, response.read()


def test_requests_on_one_connection() -> None:
    server = Server(
        OK + b"Content-Length: 3\r\n\r\nabc",
        OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nwxyz\r\n2;n=v\r\nab\r\n0\r\nTrailer: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        OK + b"\r\nuntil the end",
    )
    connection = Connection(server.netloc, 10)
    assert ask(connection) == (200, b"abc")
    assert ask(connection) == (200, b"wxyzab")
    assert ask(connection, "PUT") == (404, b"")
    assert ask(connection) == (200, b"until the end")
    assert server.requests[0].startswith(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"Authorization: Bearer y\r\n" in server.requests[0]
    assert b"Content-Length: 0" in server.requests[2]


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200",
        b"SSH-2.0-x\r\n",
        OK + b"Content-Length: 9\r\n\r\nabc",
        OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nwx",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"X: y\r\n" * 300,
    ],
)
def test_damaged_response_is_an_error(response: bytes) -> None:
    with pytest.raises((HttpError, ConnectionError)):
        ask(Connection(Server(response).netloc, 10))


def test_line_break_in_a_header_is_rejected() -> None:
    with pytest.raises(ValueError, match="line break"):
        Connection("127.0.0.1:1", 1).request("GET", "/", {"A": "x\r\nB: y"})


def test_calling_a_function_does_not_import_the_http_client() -> None:
    program = (
        "import sys, pairuntime.task.function_call\n"
        "print({'ssl', 'http.client', 'tempfile'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, cwd="src")
    assert ran.stdout == "set()\n", ran.stderr
