"""HTTP/1.1 over a socket: what commands and tasks need to talk to a cluster and its storages.

Importing ``http.client`` takes 40 ms (it loads e-mail parsing and TLS), three times a bare interpreter start,
on every command and every call of a function. A connection over TLS or through a proxy is the same one on
another socket: ``Connection.open_socket`` is overridden for it.
"""

import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Callable, Iterable, Mapping

CHUNK_BYTES = 1 << 16
SLOW_RESPONSE_S = 1.5
"""After this time without a response a notice tells the user what the command is waiting for."""
MAX_LINE_BYTES = 1 << 16
_MAX_HEADERS = 200
_MAX_INFORMATIONAL = 20
_MAX_LENGTH_DIGITS = 18
_HEAD_TIMEOUT_S = 60.0
"""For the head of a response, from its first byte on: a peer may send a byte now and then for ever."""
MAX_BUFFERED_BYTES = 256 << 20
"""Body that is received as a whole: far more than the largest list of jobs."""
BUFFERED_BODY_TIMEOUT_S = 300.0
DEAD_PEER_TIMEOUT_S = 10
"""A peer whose operating system acknowledges nothing for so long is dead: longer than a network takes to find
another way, much shorter than a response may take. A slow peer acknowledges, so it is not affected."""
_KEEPALIVE_IDLE_S, _KEEPALIVE_INTERVAL_S = 4, 2
_MACOS_RETRANSMISSION_LIMIT = 0x80
"""TCP_RXT_CONNDROPTIME of netinet/tcp.h, which Python does not name: TCP_USER_TIMEOUT in seconds."""
SWITCHING_PROTOCOLS = 101
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


class HttpProtocolError(OSError):
    """The server does not speak HTTP/1.x, or closed the connection early."""


class ConnectTimeout(TimeoutError):
    """No connection in time. Unlike after other timeouts, the server did not get the request."""


def quote(text: "str") -> "str":
    """Percent-encode one path segment or query value, without the long import of ``urllib.parse``."""
    return "".join(
        chr(b) if b in _UNRESERVED else "%%%02X" % b for b in text.encode("utf-8", "surrogateescape")
    )


def query(values: "Mapping[str, object]") -> "str":
    """``?a=1&b=2``; None and empty values are omitted."""
    parts = ["%s=%s" % (quote(k), quote(str(v))) for k, v in values.items() if v is not None and v != ""]
    return "?" + "&".join(parts) if parts else ""


class Body:
    """A request body generated while it is sent. ``size`` is known before; a retry calls ``chunks`` again."""

    __slots__ = ("size",)

    def __init__(self, size: "int"):
        self.size = size

    def chunks(self) -> "Iterable[bytes | memoryview]":
        raise NotImplementedError

    def send(self, sock: "socket.socket") -> "None":
        """Write the body to a plain socket. Bodies read from a file override this with sendfile."""
        for chunk in self.chunks():
            send_all(sock, chunk)


class Connection:
    """A connection that is opened by the first request and used for one request after another."""

    __slots__ = (
        "buffer",
        "connect_timeout",
        "host",
        "is_interrupted",
        "on_slow_response",
        "pending",
        "port",
        "remaining_timeout",
        "sock",
    )

    def __init__(self, host: "str", port: "int", connect_timeout: "float"):
        # Called once when a response is slow, to inform the user at the terminal.
        self.on_slow_response = None  # type: Callable[[], None] | None
        self.remaining_timeout = 0.0
        self.is_interrupted = False
        self.host = host
        self.port = port
        self.connect_timeout = connect_timeout
        self.sock = None  # type: socket.socket | None
        self.buffer = b""
        self.pending = None  # type: Response | None

    @property
    def is_open(self) -> "bool":
        return self.sock is not None

    def open_socket(self) -> "socket.socket":
        """A new socket to the server, over which HTTP is spoken."""
        sock = connect(self.host, self.port, self.connect_timeout, self.on_slow_response)
        detect_dead_peer(sock)
        return sock

    def request(
        self,
        method: "str",
        target: "str",
        headers: "dict[str, str]",
        body: "bytes | Body | None",
        timeout: "float",
    ) -> "Response":
        if self.pending is not None:
            self.close()  # the last body was not read to its end: its rest is not the next response
        head = _head(method, target, headers, body)
        sock = self.sock
        if sock is None:
            sock = self.sock = self.open_socket()
            self.buffer = b""
        if self.is_interrupted:
            shut_down(sock)
        sock.settimeout(timeout)
        try:
            complete = True
            if isinstance(body, Body):
                send_all(sock, head)
                complete = _send(sock, body)
            else:
                send_all(sock, head + (body or b""))
            if self.on_slow_response is not None and timeout > SLOW_RESPONSE_S:
                self.remaining_timeout = timeout - SLOW_RESPONSE_S
                sock.settimeout(SLOW_RESPONSE_S)
            response = self._read_head(method)
            if self.remaining_timeout:
                self.remaining_timeout = 0.0
                sock.settimeout(timeout)
            if not complete:
                response.close_after_response()
        except BaseException as e:
            alert = _tls_alert(sock, e)
            self.close()
            if alert is not None:
                raise alert from None
            raise
        self.pending = None if response.done else response
        return response

    def interrupt(self) -> "None":
        """Let a request fail that another thread waits for, and those after it."""
        self.is_interrupted = True
        shut_down(self.sock)

    def detach(self) -> "tuple[socket.socket, bytes]":
        """The socket, after the server has switched to another protocol, and what it has sent in that one:
        its first bytes may come together with the response."""
        sock, self.sock = self.sock, None
        received, self.buffer = self.buffer, b""
        if sock is None:
            raise HttpProtocolError("the server closed the connection after it switched protocols")
        return sock, received

    def close(self) -> "None":
        if self.sock is not None:
            self.sock.close()
            self.sock = None
        self.pending = None
        self.buffer = b""

    def _read_head(self, method: "str") -> "Response":
        if not self.buffer:
            self.buffer = self.receive()
        ends = time.monotonic() + _HEAD_TIMEOUT_S
        for _ in range(_MAX_INFORMATIONAL):
            status_line = self.read_line(ends)
            version, _, rest = status_line.partition(b" ")
            if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
                raise HttpProtocolError("the server at this address does not speak HTTP")
            status = int(rest[:3])
            headers = self.read_headers(ends)
            if status >= 200 or status == SWITCHING_PROTOCOLS:
                return Response(self, method, version, status, headers)
        raise HttpProtocolError("the server announces a response again and again, and sends none")

    def read_headers(self, ends: "float") -> "dict[str, str]":
        headers = {}  # type: dict[str, str]
        for _ in range(_MAX_HEADERS + 1):
            line = self.read_line(ends)
            if not line:
                return headers
            name, _, value = line.partition(b":")
            headers[name.strip().lower().decode("latin-1")] = value.strip().decode("latin-1")
        raise HttpProtocolError("the response has too many headers")

    def read_line(self, ends: "float") -> "bytes":
        """One header line, without its line end. ``ends``: when it must have arrived."""
        end = self.buffer.find(b"\n")
        while end < 0:
            if len(self.buffer) > MAX_LINE_BYTES:
                raise HttpProtocolError("the response has a header line that is too long")
            if time.monotonic() > ends:
                raise socket.timeout("timed out")
            self.buffer += self.receive()
            end = self.buffer.find(b"\n")
        line, self.buffer = self.buffer[:end], self.buffer[end + 1 :]
        return line.rstrip(b"\r")

    def receive(self) -> "bytes":
        if self.sock is None:
            raise HttpProtocolError("the connection is closed")
        try:
            data = self.sock.recv(CHUNK_BYTES)
        except socket.timeout:
            if not self.remaining_timeout or self.on_slow_response is None:
                raise
            self.sock.settimeout(self.remaining_timeout)
            self.remaining_timeout = 0.0
            self.on_slow_response()
            data = self.sock.recv(CHUNK_BYTES)
        if not data:
            raise HttpProtocolError("the connection was closed in the middle of a response")
        return data

    def read_up_to(self, size: "int") -> "bytes":
        """Read at least one byte, at most ``size``."""
        if not self.buffer:
            self.buffer = self.receive()
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data


def _head(method: "str", target: "str", headers: "dict[str, str]", body: "bytes | Body | None") -> "bytes":
    lines = ["%s %s HTTP/1.1" % (method, target)]
    lines += ["%s: %s" % item for item in headers.items()]
    if body is not None:
        lines.append("Content-Length: %d" % (body.size if isinstance(body, Body) else len(body)))
    head = "\r\n".join(lines) + "\r\n\r\n"
    if not head.count("\n") == head.count("\r") == len(lines) + 1:
        raise ValueError("A header of a request, or its target, has a line break.")
    return head.encode("latin-1")


def shut_down(sock: "socket.socket | None") -> "None":
    """End both directions of a connection: unlike a close, it wakes a thread that waits for it."""
    if sock is not None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # not connected any more


def connect(
    host: "str", port: "int", timeout: "float", on_slow: "Callable[[], None] | None" = None
) -> "socket.socket":
    """A socket that is connected with the first address of a host that accepts it."""
    if host.startswith("127.") and host.replace(".", "").isdecimal():
        # No name to resolve.
        return _connect(socket.AF_INET, (host, port), timeout, on_slow)
    failed = None  # type: OSError | None
    # As bytes: of text, the codec of international names would be imported.
    name = host.encode("ascii" if all(ord(c) < 128 for c in host) else "idna")
    for family, _, _, _, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM):
        try:
            return _connect(family, address, timeout, on_slow)
        except OSError as e:
            failed = failed or e
    raise failed or OSError("%s has no address" % host)


def _connect(
    family: "int", address: "tuple[object, ...]", timeout: "float", on_slow: "Callable[[], None] | None"
) -> "socket.socket":
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(min(timeout, SLOW_RESPONSE_S) if on_slow else timeout)
        try:
            sock.connect(address)
        except socket.timeout:
            if on_slow is None or timeout <= SLOW_RESPONSE_S:
                raise
            on_slow()
            _await_connection(sock, timeout - SLOW_RESPONSE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except socket.timeout:
        sock.close()
        raise ConnectTimeout("timed out") from None
    except BaseException:
        sock.close()
        raise
    return sock


def detect_dead_peer(sock: "socket.socket") -> "None":
    """Let the kernel end a connection (ETIMEDOUT) when the peer acknowledges nothing for DEAD_PEER_TIMEOUT_S.

    Keep-alive probes find a peer that died while we wait for it, the user timeout one that died while we
    send. A connection inside this machine needs neither: its peer cannot vanish without an end.
    """
    try:
        if sock.getpeername()[0] in ("127.0.0.1", "::1"):
            return
    except OSError:
        return  # the peer has closed it already: the request will tell why
    probes = (DEAD_PEER_TIMEOUT_S - _KEEPALIVE_IDLE_S) // _KEEPALIVE_INTERVAL_S
    options = {
        "TCP_KEEPIDLE": _KEEPALIVE_IDLE_S,
        "TCP_KEEPALIVE": _KEEPALIVE_IDLE_S,  # macOS's name for it
        "TCP_KEEPINTVL": _KEEPALIVE_INTERVAL_S,
        "TCP_KEEPCNT": probes,
        "TCP_USER_TIMEOUT": DEAD_PEER_TIMEOUT_S * 1000,
    }
    numbers = {getattr(socket, name): value for name, value in options.items() if hasattr(socket, name)}
    if sys.platform == "darwin":
        numbers[_MACOS_RETRANSMISSION_LIMIT] = DEAD_PEER_TIMEOUT_S
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for number, value in numbers.items():
            sock.setsockopt(socket.IPPROTO_TCP, number, value)
    except OSError:
        pass  # a system without one of them: the timeout of the request remains


def send_all(sock: "socket.socket", data: "bytes | memoryview") -> "None":
    """Send everything. Unlike ``sendall``, the socket's timeout limits the time without progress, not the
    whole: a slow connection may take as long as it needs."""
    sent = sock.send(data)
    if sent < len(data):
        rest = memoryview(data)[sent:]
        while rest:
            rest = rest[sock.send(rest) :]


def _await_connection(sock: "socket.socket", timeout: "float") -> "None":
    """Wait for a connection attempt that is in progress."""
    import selectors  # not `select`: it refuses descriptors above 1023

    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_WRITE)
        if not selector.select(timeout):
            raise socket.timeout
    error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def is_tls(sock: "socket.socket") -> "bool":
    """Whether a connection is encrypted; by name, because the module `ssl` takes long to import."""
    return hasattr(sock, "getpeercert")


def _send(sock: "socket.socket", body: "Body") -> "bool":
    """Send a body; returns whether all of it was sent."""
    try:
        if is_tls(sock):
            Body.send(body, sock)
        else:
            body.send(sock)
    except (BrokenPipeError, ConnectionResetError):
        # A server may reject a request before it has read the body. Its response can still be read.
        return False
    return True


def _tls_alert(sock: "socket.socket", error: "BaseException") -> "OSError | None":
    """Why a server closed a connection before it had the request: it refused the client's certificate."""
    is_closed = isinstance(error, ConnectionError) or type(error).__name__ == "SSLEOFError"
    if not is_closed or not is_tls(sock):
        return None
    import ssl

    try:
        sock.recv(1)
    except ssl.SSLError as e:
        return e
    except OSError:
        pass
    return None


class Response:
    """Response with a body by length, in chunks, or until the connection closes; headers in lower case."""

    __slots__ = (
        "buffered",
        "chunked",
        "connection",
        "done",
        "headers",
        "keep_alive",
        "remaining",
        "status",
        "until_close",
    )

    def __init__(
        self,
        connection: "Connection",
        method: "str",
        version: "bytes",
        status: "int",
        headers: "dict[str, str]",
    ):
        self.buffered = b""
        self.connection = connection
        self.status = status
        self.headers = headers
        self.chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self.remaining = 0
        self.until_close = False
        connection_header = headers.get("connection", "").lower()
        self.keep_alive = "close" not in connection_header and (
            version == b"HTTP/1.1" or "keep-alive" in connection_header
        )
        self.done = method == "HEAD" or status in (SWITCHING_PROTOCOLS, 204, 304)
        if self.done:
            self._end()
        elif not self.chunked:
            length = headers.get("content-length")
            if length is None:
                self.until_close, self.keep_alive = True, False
            elif not length.isdecimal() or len(length) > _MAX_LENGTH_DIGITS:
                raise HttpProtocolError("the response has an invalid Content-Length")
            else:
                self.remaining = int(length)
                if self.remaining == 0:
                    self._end()

    def read_some(self, max_bytes: "int" = CHUNK_BYTES) -> "bytes":
        """The next bytes as they arrive; empty at the end."""
        if self.done:
            return b""
        if self.until_close:
            try:
                return self.connection.read_up_to(max_bytes)
            except HttpProtocolError:
                self._end()
                return b""
        if self.chunked and self.remaining == 0:
            ends = time.monotonic() + _HEAD_TIMEOUT_S
            size = self.connection.read_line(ends).split(b";")[0].strip()
            if not size or size.strip(b"0123456789abcdefABCDEF"):
                raise HttpProtocolError("the response has an invalid chunk size")
            self.remaining = int(size, 16)
            if self.remaining == 0:
                self.connection.read_headers(ends)  # the trailers
                self._end()
                return b""
        data = self.connection.read_up_to(min(self.remaining, max_bytes))
        self.remaining -= len(data)
        if self.remaining == 0:
            if self.chunked:
                self.connection.read_line(time.monotonic() + _HEAD_TIMEOUT_S)
            else:
                self._end()
        return data

    def read_into(self, buffer: "memoryview") -> "int":
        """Fill the buffer unless the body ends before; mostly without an extra copy."""
        filled, size = 0, len(buffer)
        while filled < size:
            sock = self.connection.sock
            if self.remaining and not self.connection.buffer and not self.chunked and sock is not None:
                got = sock.recv_into(buffer[filled : filled + self.remaining])
                if not got:
                    raise HttpProtocolError("the connection was closed in the middle of a response")
                self.remaining -= got
                if not self.remaining:
                    self._end()
            else:
                data = self.read_some(size - filled)
                if not data:
                    break
                got = len(data)
                buffer[filled : filled + got] = data
            filled += got
        return filled

    def buffer_body(
        self, max_bytes: "int" = MAX_BUFFERED_BYTES, timeout_s: "float" = BUFFERED_BODY_TIMEOUT_S
    ) -> "None":
        """Receive the whole body now; `read` then returns it."""
        ends = time.monotonic() + timeout_s
        body = bytearray(self.buffered)
        part = self.read_some()
        while part:
            body += part
            if len(body) > max_bytes:
                raise HttpProtocolError("the response does not end")
            if time.monotonic() > ends:
                raise socket.timeout("timed out")
            part = self.read_some()
        self.buffered = bytes(body)

    def read(self) -> "bytes":
        parts, self.buffered = [self.buffered], b""
        part = self.read_some()
        while part:
            parts.append(part)
            part = self.read_some()
        return b"".join(parts)

    def close_after_response(self) -> "None":
        """Close the connection after this response: the request was not sent completely."""
        self.keep_alive = False
        if self.done:
            self.connection.close()

    def _end(self) -> "None":
        self.done = True
        # No cycle: an unused connection is closed at once, not by the collector.
        self.connection.pending = None
        if not self.keep_alive:
            self.connection.close()
