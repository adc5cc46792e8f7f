"""Storage of a task by WebHDFS: what a task uploads, downloads, lists, renames and deletes.

A task waits while the server restarts, which takes longer than a command at a terminal may wait.
"""

import json
import os
import socket
import time

from pairuntime.transport import CA_FILE
from pairuntime.transport.http1 import Body, Connection, connect
from pairuntime.transport.webhdfs import WebHdfsClient, remote_exception

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    import ssl
    from typing import IO, Any, BinaryIO, Callable, Iterator

    from pairuntime.transport.http1 import Response

# X509_V_FLAG_PARTIAL_CHAIN: a chain may end at any of them. Named in ssl since Python 3.10.
_PARTIAL_CHAIN = 0x80000
_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 120.0
# Of one try to connect with a host that may not exist.
_CONNECT_TIMEOUT_S = 5.0
_RETRY_DELAYS_S = (0.5, 1, 2, 4, 8, 16, 30, 60, 60, 60)
_RETRY_STATUSES = (429, 500, 502, 503, 504)


def is_utf8(name: "str") -> "bool":
    """Whether a file name can be sent: other bytes come as surrogates."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class WebHdfsError(Exception):
    """Error response of the storage, with its message for the user."""

    is_unreachable = False

    def __init__(self, message: "str", status: "int" = 0, kind: "str" = "", hint: "str" = ""):
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.hint = hint


class _NotWritten(Exception):
    """What was downloaded could not be written here: a retry would not help."""

    def __init__(self, reason: "OSError"):
        super().__init__(str(reason))
        self.reason = reason


class Storage(WebHdfsClient):
    """A WebHDFS storage. ``address`` is the URL before the path: ``http://host:port/webhdfs/v1``.

    ``unreachable_after_s``: how long a host that cannot be reached is tried; without it, for as long as the
    restart of a server may take. ``notify`` is called with a sentence before the first of these retries.
    """

    def __init__(
        self,
        address: "str",
        token: "str" = "",
        user: "str" = "",
        unreachable_after_s: "float | None" = None,
        notify: "Callable[[str], None] | None" = None,
    ) -> "None":
        self._address = address.rstrip("/")
        self._token = token
        self._user = user
        self._unreachable_after_s = unreachable_after_s
        self._notify = notify
        # Until when connections are tried, in the call that is made now.
        self._deadline = None  # type: float | None
        self._has_connected = False
        self._connections = {}  # type: dict[str, _TaskConnection]

    def with_own_connections(self) -> "Storage":
        """The same storage for another thread, which waits for as long as the server takes to restart."""
        return Storage(self._address, self._token, self._user)

    # -- operations --------------------------------------------------------------------------------

    def status(self, path: "str") -> "dict[str, Any] | None":
        """FileStatus of a file or folder; None if it does not exist."""
        try:
            return self.file_status(path)
        except WebHdfsError as error:
            if error.status == 404:
                return None
            raise

    def entries(self, path: "str") -> "list[dict[str, Any]]":
        return self.list_status(path)

    def replace(self, path: "str", target: "str") -> "None":
        """Rename to a path, over a file that is there. A failure is an error."""
        self.rename(path, target, "OVERWRITE")

    def put(self, source: "str", path: "str", overwrite: "bool" = True) -> "int":
        """Upload a whole file; returns its size. A file that changes meanwhile is an error."""
        with open(source, "rb") as f:
            return self.put_file(f, path, overwrite)

    def put_file(self, source: "IO[bytes]", path: "str", overwrite: "bool" = True) -> "int":
        """Upload a whole open file; returns its size."""
        body = _FileBody(source)
        flag = "true" if overwrite else "false"
        self._with_retries(lambda: self.write("PUT", path, "CREATE", body, overwrite=flag))
        return body.size

    def put_bytes(self, content: "bytes", path: "str", overwrite: "bool" = True) -> "None":
        """Upload a value that is in memory. ``overwrite``: else a file that exists is an error."""
        flag = "true" if overwrite else "false"
        # Our own server, which alone knows tokens, takes the bytes at once.
        is_own = bool(self._token)
        self._with_retries(
            lambda: self.write("PUT", path, "CREATE", content, in_one_step=is_own, overwrite=flag)
        )

    def get(self, path: "str", into: "BinaryIO", is_file: "bool" = True) -> "int":
        """Download a file; returns its size.

        If the connection breaks, ``into`` is written again from where it is now. With ``is_file=False``, or
        for a pipe, it cannot be: a break after the first bytes is then an error, so nothing is written twice.
        """
        is_file = is_file and into.seekable()
        start = into.tell() if is_file else 0
        written = [0]

        def download() -> "int":
            if written[0] and is_file:
                into.seek(start)
                into.truncate()
                written[0] = 0
            try:
                return self._download(path, into, written)
            except OSError:
                if written[0] and not is_file:
                    raise WebHdfsError("%s is incomplete: the connection was lost." % path)
                raise

        try:
            return int(self._with_retries(download))
        except _NotWritten as error:
            raise error.reason

    def _download(self, path: "str", into: "BinaryIO", written: "list[int]") -> "int":
        """Download a file once. ``written``: how many bytes of it, also after an error."""
        response = self.open(path)
        expected = response.headers.get("content-length")
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        got = response.read_into(buffer)
        while got:
            try:
                into.write(buffer[:got])
            except OSError as e:
                raise _NotWritten(e)
            written[0] += got
            got = response.read_into(buffer)
        if expected is not None and int(expected) != written[0]:
            raise WebHdfsError("%s is incomplete: received %d bytes of %s." % (path, written[0], expected))
        return written[0]

    def read_range(self, path: "str", offset: "int" = 0, length: "int" = 0) -> "bytes":
        """Bytes of a file from an offset; without a length, to its end."""
        return bytes(self._with_retries(lambda: self.open(path, offset=offset, length=length or None).read()))

    def read_if_exists(self, path: "str") -> "bytes | None":
        try:
            return self.read_range(path)
        except WebHdfsError as error:
            if error.status == 404:
                return None
            raise

    def get_json(self, path: "str") -> "Any":
        """JSON response to a GET of a path below the address, with the token."""
        return self._exchange_json("GET", path, None)

    def post_json(self, path: "str", value: "Any") -> "Any":
        """JSON response to a POST of a value to a path below the address, with the token."""
        return self._exchange_json("POST", path, json.dumps(value).encode())

    def _exchange_json(self, method: "str", path: "str", body: "bytes | None") -> "Any":
        def exchange() -> "Any":
            response = self._request(method, self._address + path, body, "application/json")
            text = response.read()
            if response.status >= 400:
                raise self.failure(response.status, text, path)
            return json.loads(text.decode())

        return self._with_retries(exchange)

    def download(self, url: "str") -> "bytes":
        """Content behind a link, which the server gave."""
        return bytes(self._with_retries(lambda: self.fetch(url, url).read()))

    # -- requests of the protocol ------------------------------------------------------------------

    def quote_path(self, path: "str") -> "str":
        if not is_utf8(path):
            raise WebHdfsError("%r is not UTF-8, as the names of a storage are." % path)
        return super().quote_path("/" + path.lstrip("/"))

    def call(self, method: "str", path: "str", op: "str", **values: "object") -> "bytes":
        return bytes(self._with_retries(lambda: super(Storage, self).call(method, path, op, **values)))

    def send(
        self, method: "str", target: "str", body: "bytes | Body | None", *, streams: "bool"
    ) -> "Response":
        return self._request(method, self._address + target, body)

    def follow(self, method: "str", location: "str", body: "bytes | Body | None") -> "Response":
        return self._request(method, location, body)

    def user_parameter(self) -> "str":
        return "" if self._token else self._user

    def failure(self, status: "int", text: "bytes", path: "str") -> "WebHdfsError":
        details = remote_exception(text)
        if details is not None:
            kind, message, hint = details
        else:
            kind, (message, hint) = "", _message_and_hint(text)
        message = message or "The storage responded with status %d." % status
        return WebHdfsError(message, status, kind, hint)

    def redirect_loop(self) -> "WebHdfsError":
        return WebHdfsError("The storage redirects in a loop.")

    def unexpected_response(self) -> "WebHdfsError":
        return WebHdfsError("%s sent a response that is not WebHDFS." % self._host())

    # -- HTTP --------------------------------------------------------------------------------------

    def _request(
        self,
        method: "str",
        url: "str",
        body: "bytes | Body | None",
        media_type: "str" = "application/octet-stream",
    ) -> "Response":
        scheme, _, rest = url.partition("://")
        netloc, _, target = rest.partition("/")
        headers = {"Host": netloc, "Accept-Encoding": "identity"}
        # The URL of a redirect carries its own ticket; the token is for the storage alone.
        if self._token and url.startswith(self._address + "/"):
            headers["Authorization"] = "Bearer " + self._token
        if method in ("PUT", "POST"):
            headers["Content-Type"] = media_type
        origin = "%s://%s" % (scheme, netloc)
        connection = self._connections.get(origin)
        if connection is None:
            connection = self._connections[origin] = _TaskConnection(scheme, netloc, self._connect)
        return connection.request(method, "/" + target, headers, body, _TIMEOUT_S)

    def _host(self) -> "str":
        return self._address.partition("://")[2].partition("/")[0]

    def _next_deadline(self) -> "float | None":
        return None if self._unreachable_after_s is None else time.monotonic() + self._unreachable_after_s

    def _connect(self, host: "str", port: "int") -> "socket.socket":
        """Connect within the time that is left."""
        if self._deadline is None:
            return connect(host, port, _TIMEOUT_S)
        left_s = self._deadline - time.monotonic()
        connected = _connect_within(host, port, max(0.1, min(_CONNECT_TIMEOUT_S, left_s)))
        self._has_connected = True
        return connected

    def _unreachable(self, error: "Exception") -> "WebHdfsError":
        failure = WebHdfsError(
            "%s cannot be reached: %s. Check the address, and that the task's network reaches it."
            % (self._host(), getattr(error, "strerror", None) or error or type(error).__name__)
        )
        failure.is_unreachable = True
        return failure

    def _announce(self, error: "Exception") -> "None":
        if self._notify is None:
            return
        after_s = self._unreachable_after_s
        how_long = "" if after_s is None else ", for %.0f seconds in all" % after_s
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        self._notify("%s does not answer (%s): trying again%s." % (self._host(), reason, how_long))

    def _with_retries(self, work: "Any") -> "Any":
        """Retry while the storage is unreachable: the server may be restarting."""
        self._deadline = self._next_deadline()
        for number, delay in enumerate(_RETRY_DELAYS_S):
            try:
                return work()
            except WebHdfsError as error:
                if error.status not in _RETRY_STATUSES:
                    raise
            except (OSError, ValueError) as e:
                if _is_untrusted(e):
                    # A retry will not help.
                    reason = getattr(e, "verify_message", "") or e
                    raise WebHdfsError("The certificate of %s is not trusted: %s." % (self._address, reason))
                if not isinstance(e, OSError):
                    raise
                if self._has_connected:  # the host is there, and this connection was lost
                    self._has_connected = False
                    self._deadline = self._next_deadline()
                if self._deadline is not None and time.monotonic() + delay >= self._deadline:
                    raise self._unreachable(e)
                if number == 0:
                    self._announce(e)
            time.sleep(delay)
        return work()


class _FileBody(Body):
    """Content of an open file, from its start."""

    __slots__ = ("_source",)

    def __init__(self, source: "IO[bytes]"):
        super().__init__(os.fstat(source.fileno()).st_size)
        self._source = source

    def chunks(self) -> "Iterator[bytes]":
        self._source.seek(0)
        remaining = self.size
        while remaining:
            data = self._source.read(min(_CHUNK_BYTES, remaining))
            if not data:
                raise WebHdfsError("%s changed while it was read." % self._source.name)
            remaining -= len(data)
            yield data


class _TaskConnection(Connection):
    """Connection to the host of a URL, over TLS if the URL says so."""

    __slots__ = ("_connect", "_is_secure")

    def __init__(
        self, scheme: "str", netloc: "str", connect: "Callable[[str, int], socket.socket]"
    ) -> "None":
        self._is_secure = scheme == "https"
        host, colon, port = netloc.rpartition(":")
        if not colon or not port.isdigit():
            host, port = netloc, "443" if self._is_secure else "80"
        super().__init__(host.strip("[]"), int(port), _TIMEOUT_S)
        self._connect = connect

    def open_socket(self) -> "socket.socket":
        # A task waits for a server whose machine restarts: it does not look for dead peers.
        sock = self._connect(self.host, self.port)
        if not self._is_secure:
            return sock
        sock.settimeout(_TIMEOUT_S)
        try:
            return _trust().wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise


def _connect_within(host: "str", port: "int", limit_s: "float") -> "socket.socket":
    """Connect in at most this time, the resolution of the name included: that one knows no timeout."""
    import threading

    result = []  # type: list[socket.socket | Exception]

    def connect_in_thread() -> "None":
        try:
            result.append(connect(host, port, limit_s))
        except Exception as e:  # noqa: BLE001 - raised by the caller
            result.append(e)

    thread = threading.Thread(target=connect_in_thread)
    thread.daemon = True
    thread.start()
    thread.join(limit_s)
    if not result:
        raise socket.timeout("timed out")
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def _message_and_hint(text: "bytes") -> "tuple[str, str]":
    """What an error response in the API's format says; else its beginning."""
    shown = text.decode("utf-8", "replace").strip()[:300]
    try:
        body = json.loads(text.decode())
        return str(body.get("message") or shown), str(body.get("hint") or "")
    except (ValueError, AttributeError):
        return shown, ""


def _is_untrusted(error: "Exception") -> "bool":
    """Whether a certificate was rejected; Python 3.6 has only CertificateError, a ValueError, for names."""
    return type(error).__name__ in ("SSLCertVerificationError", "CertificateError")


def _trust() -> "ssl.SSLContext":
    """TLS context that trusts the system's certificates and those of the cluster's server."""
    import ssl

    context = ssl.create_default_context()
    if ".pyz" in __file__:
        path = os.path.join(os.path.dirname(__file__[: __file__.index(".pyz")]), CA_FILE)
        if os.path.exists(path):
            context.load_verify_locations(path)
            context.verify_flags |= _PARTIAL_CHAIN
    return context
