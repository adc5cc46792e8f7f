"""HTTP/1.1 over plain sockets: importing ``http.client`` takes a task longer than calling a function.

What ``webhdfs`` uses of ``http.client.HTTPConnection``, with the same names. TLS uses the standard library's.
"""

import socket

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import BinaryIO

_MAX_LINE_BYTES = 65536
_MAX_HEADERS = 200


class HttpError(Exception):
    """The response is incomplete, or not HTTP."""


class Connection:
    """A connection that is opened with the first request and kept for the next ones."""

    def __init__(self, netloc: "str", timeout_s: "float") -> "None":
        host, _, port = netloc.rpartition(":") if netloc.rpartition(":")[2].isdigit() else (netloc, "", "80")
        self._netloc = netloc
        # As bytes: of text, the module for international names would be imported.
        host = host.strip("[]")
        self._host = host.encode() if all(ord(c) < 128 for c in host) else host.encode("idna")
        self._port = int(port)
        self._timeout_s = timeout_s
        self._socket = None  # type: socket.socket | None
        self._file = None  # type: BinaryIO | None
        self._head = []  # type: list[str]
        self._method = ""

    def request(self, method: "str", target: "str", headers: "dict[str, str]") -> "None":
        self.putrequest(method, target)
        for name, value in headers.items():
            self.putheader(name, value)
        if method not in ("GET", "HEAD", "DELETE"):
            self.putheader("Content-Length", "0")
        self.endheaders()

    def putrequest(self, method: "str", target: "str") -> "None":
        self._method = method
        self._head = ["%s %s HTTP/1.1" % (method, target), "Host: %s" % self._netloc]
        self.putheader("Accept-Encoding", "identity")

    def putheader(self, name: "str", value: "str") -> "None":
        if "\r" in value or "\n" in value:
            raise ValueError("The value of the header %s has a line break." % name)
        self._head.append("%s: %s" % (name, value))

    def endheaders(self) -> "None":
        self.send(("\r\n".join(self._head) + "\r\n\r\n").encode("ascii"))

    def send(self, data: "bytes") -> "None":
        if self._socket is None:
            address = (self._host, self._port)
            self._socket = socket.create_connection(address, self._timeout_s)  # type: ignore[arg-type]
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._file = self._socket.makefile("rb")
        self._socket.sendall(data)

    def getresponse(self) -> "Response":
        if self._file is None:
            raise HttpError("No request was sent.")
        while True:
            response = Response(self, self._file, self._method)
            if response.status >= 200:
                return response

    def close(self) -> "None":
        file, sock = self._file, self._socket
        self._file = self._socket = None
        if file is not None:
            file.close()
        if sock is not None:
            sock.close()


class Response:
    """Status, headers and body of a response. The body must be read before the next request."""

    def __init__(self, connection: "Connection", file: "BinaryIO", method: "str") -> "None":
        self._connection = connection
        self._file = file
        words = _line(file).split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise HttpError("This is no HTTP response: %s" % " ".join(words)[:100])
        self.status = int(words[1])
        self._headers = {}  # type: dict[str, str]
        for _ in range(_MAX_HEADERS):
            line = _line(file)
            if not line:
                break
            name, _, value = line.partition(":")
            self._headers[name.strip().lower()] = value.strip()
        else:
            raise HttpError("The response has too many headers.")
        self._is_chunked = self._headers.get("transfer-encoding", "").lower() == "chunked"
        length = self._headers.get("content-length")
        # Bytes that are left, of the body or of its current chunk; None: until the connection closes.
        self._left = None  # type: int | None
        if method == "HEAD" or self.status < 200 or self.status in (204, 304):
            self._left, self._is_chunked = 0, False
        elif self._is_chunked:
            self._left = 0
        elif length is not None:
            self._left = int(length)
        self._is_first_chunk = True
        closes = self._headers.get("connection", "").lower() == "close" or words[0] == "HTTP/1.0"
        self._closes = closes or (self._left is None and not self._is_chunked)

    def getheader(self, name: "str") -> "str | None":
        return self._headers.get(name.lower())

    def read(self, size: "int" = -1) -> "bytes":
        """At most that many bytes; all that are left by default. Empty at the end."""
        if size >= 0:
            return self._read_some(size)
        parts = []  # type: list[bytes]
        while True:
            data = self._read_some(1 << 20)
            if not data:
                return b"".join(parts)
            parts.append(data)

    def _read_some(self, size: "int") -> "bytes":
        if self._is_chunked and self._left == 0:
            self._next_chunk()
        if self._left == 0:
            if self._closes and self.status >= 200:
                self._connection.close()
            return b""
        data = self._file.read(size if self._left is None else min(size, self._left))
        if self._left is not None:
            if not data:
                raise HttpError("The response is incomplete.")
            self._left -= len(data)
        elif not data:
            self._left = 0
            self._connection.close()
        return data

    def _next_chunk(self) -> "None":
        if not self._is_first_chunk:
            _line(self._file)
        self._is_first_chunk = False
        text = _line(self._file).partition(";")[0].strip()
        try:
            self._left = int(text, 16)
        except ValueError:
            raise HttpError("The response has a damaged chunk.")
        if self._left == 0:
            while _line(self._file):
                pass
            self._is_chunked = False


def _line(file: "BinaryIO") -> "str":
    data = file.readline(_MAX_LINE_BYTES + 1)
    if not data.endswith(b"\n"):
        raise HttpError("The connection was closed before the response was complete.")
    return data.decode("iso-8859-1").rstrip("\r\n")
