"""Transport to one cluster: a persistent connection, authentication, retries, and mapping of errors."""

from __future__ import annotations

import errno
import os
import sys
import time

from openpaisdk.client.address import Address, parse_uri
from openpaisdk.client.http_errors import (
    connection_error,
    error_from_response,
    has_timed_out,
    redirected,
    token_rejected,
)
from paiprotocol.errors import ConnectionFailed, Unauthorized, Unavailable
from pairuntime.transport.http1 import Connection, HttpProtocolError, query

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from pairuntime.transport.http1 import Body, Response

    Renew = Callable[[str, "Endpoint"], "Endpoint | None"]

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 60.0
MAX_ATTEMPTS = 3
MAX_ERROR_BYTES = 1 << 20
"""What is read of a response with an error: a sentence, or the page of a proxy."""
RETRY_DELAYS_S = (0.1, 0.4, 1.0)
CONNECTION_LOST, STREAM_LOST, TOKEN_REJECTED = "connection lost", "stream lost", "token rejected"
"""Why an endpoint is renewed."""
DEBUG_FILE = os.path.join(".openpai", "debug_enable")
"""If this file exists in the current folder, or PAI_DEBUG is set, every request is logged to stderr."""
REST_SERVER = "/rest-server"
"""API prefix behind OpenPAI's web server; a bare rest-server has the API at its root."""


class Endpoint:
    """Address, user and token for a cluster. The embedded cluster's endpoint changes with every start."""

    __slots__ = ("address", "ca_file", "certificate", "rest_path", "scheme", "token", "user", "verify")

    def __init__(
        self,
        uri: str,
        user: str = "",
        token: str = "",
        *,
        rest_path: str = REST_SERVER,
        verify: bool = True,
        ca_file: str = "",
        certificate: tuple[str, str] | None = None,
        scheme: str = "Bearer",
    ):
        """``certificate``: files of the user's TLS certificate and its key; ``scheme`` is the token's."""
        self.address: Address = parse_uri(uri)
        self.user = user
        self.token = token
        self.rest_path = "" if self.address.prefix.endswith(REST_SERVER) else rest_path
        self.verify = verify
        self.ca_file = ca_file
        self.certificate = certificate
        self.scheme = scheme

    def at_root(self, scheme: str = "Bearer") -> Endpoint:
        """The same server, user and token for paths that are not below the REST server's."""
        return Endpoint(
            str(self.address),
            self.user,
            self.token,
            rest_path="",
            verify=self.verify,
            ca_file=self.ca_file,
            scheme=scheme,
        )


class Transport:
    """Requests to one cluster. All are safe to repeat: reads, full writes, or with an idempotency key."""

    def __init__(self, alias: str, endpoint: Endpoint, renew: Renew | None = None):
        """``renew(reason, failed)`` returns the cluster's new endpoint; None if it is not available yet."""
        self.alias = alias
        self.endpoint = endpoint
        self.renew = renew
        self.connection: Connection | None = None
        self._process = os.getpid()
        self.on_slow_response: Callable[[str], None] | None = None
        """Called once, at a terminal, when the cluster is slow to respond."""
        self._is_interrupted = False
        self.connect_timeout, self.timeout, self.tries = CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, MAX_ATTEMPTS
        self.retry_delays_s: tuple[float, ...] = RETRY_DELAYS_S
        self.logs_requests = bool(os.environ.get("PAI_DEBUG")) or os.path.exists(DEBUG_FILE)

    def shorten_timeouts(self, seconds: float) -> None:
        """Make one attempt with this timeout from now on, for requests whose result is optional."""
        self.connect_timeout = min(self.connect_timeout, seconds)
        self.timeout = seconds
        self.tries = 1

    @property
    def where(self) -> str:
        return f"The cluster {self.alias} at {self.endpoint.address}"

    def request(
        self,
        method: str,
        path: str,
        *,
        values: Mapping[str, object] | None = None,
        body: bytes | Body | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        tries: int | None = None,
        at_root: bool = False,
        accept: tuple[int, ...] = (),
        whole: bool = False,
    ) -> Response:
        """Send a request; an error status becomes an exception unless it is in ``accept``.

        ``whole``: the body is short and is received now, so that a connection that breaks within it is like
        one that breaks before it.
        """
        if self._process != os.getpid():
            # A forked child shares the connection with its parent: each would read the other's responses.
            self._process = os.getpid()
            self.close()
        timeout = self.timeout if timeout is None else timeout
        tries = self.tries if tries is None else tries
        renewed = False
        attempts = 0
        while True:
            was_open = self.connection is not None and self.connection.is_open
            try:
                response = self._send(method, path, values, body, headers, timeout, at_root)
                if whole and (response.status < 400 or response.status in accept):
                    response.buffer_body()
            except OSError as e:
                self.close()
                if self._is_interrupted:
                    raise connection_error(e, self.where, timeout) from None
                if was_open and not has_timed_out(e):
                    continue  # the persistent connection was stale; retry on a new one
                if self.renew and not renewed and tries > 1:
                    renewed = True
                    if (endpoint := self.renew(CONNECTION_LOST, self.endpoint)) is not None:
                        self.endpoint = endpoint
                        continue
                attempts += 1
                if attempts >= tries or has_timed_out(e) or not _is_retryable(e):
                    raise connection_error(e, self.where, timeout) from None
                time.sleep(self._retry_delay_s(attempts))
                continue
            if response.status < 300 or response.status in accept:
                return response
            if response.status < 400:
                self.close()
                raise redirected(response.headers.get("location", ""), self.where)
            if response.status in (429, 502, 503, 504) and attempts + 1 < tries:
                attempts += 1
                self._read_error(response)
                time.sleep(_retry_after(response.headers) or self._retry_delay_s(attempts))
                continue
            error = error_from_response(response.status, self._read_error(response), self.where)
            if isinstance(error, Unauthorized) and self.renew and not renewed:
                renewed = True
                self.endpoint = self.renew(TOKEN_REJECTED, self.endpoint) or self.endpoint
                self.close()
                continue
            if isinstance(error, Unauthorized):
                raise token_rejected(error, self.alias, self.endpoint.token)
            raise error

    def _retry_delay_s(self, attempts: int) -> float:
        return self.retry_delays_s[min(attempts, len(self.retry_delays_s)) - 1]

    def _read_error(self, response: Response) -> bytes:
        body = bytearray()
        ends = time.monotonic() + self.timeout
        try:
            while data := response.read_some():
                body += data
                if len(body) >= MAX_ERROR_BYTES or time.monotonic() > ends:
                    self.close()  # the rest is not the next response
                    break
        except OSError:
            self.close()  # the status says enough
        return bytes(body)

    def upgrade(self, path: str, values: Mapping[str, object], protocol: str) -> tuple[socket.socket, bytes]:
        """Open a WebSocket with this subprotocol; returns its socket, and its first bytes if any came."""
        from pairuntime.transport import websocket

        key = websocket.new_key()
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": websocket.VERSION,
            "Sec-WebSocket-Key": key,
            "Sec-WebSocket-Protocol": protocol,
        }
        response = self.request("GET", path, values=values, headers=headers)
        connection, self.connection = self.connection, None
        accepted = response.headers.get("sec-websocket-accept", "")
        if response.status != 101 or accepted != websocket.accept_key(key) or connection is None:
            if connection is not None:
                connection.close()
            raise ConnectionFailed(
                f"{self.where} did not open a WebSocket.",
                hint="A proxy between you and the cluster must pass the header Upgrade on.",
            )
        try:
            sock, received = connection.detach()
        except OSError as e:
            raise ConnectionFailed(f"{self.where} did not open a WebSocket: {e}.") from None
        sock.settimeout(None)
        return sock, received

    def rediscover(self) -> None:
        """Find the new address of a cluster that may have restarted; never starts it."""
        if self.renew:
            try:
                self.endpoint = self.renew(STREAM_LOST, self.endpoint) or self.endpoint
            except (OSError, ConnectionFailed, Unavailable):
                pass  # the next request tells

    def _notify_slow(self) -> None:
        if self.on_slow_response:
            self.on_slow_response(f"Waiting for {self.where[0].lower()}{self.where[1:]} ...")
            self.on_slow_response = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def interrupt(self) -> None:
        """Let a request fail that another thread waits for; none is repeated from now on."""
        self._is_interrupted = True
        if (connection := self.connection) is not None:
            connection.interrupt()

    def _send(
        self,
        method: str,
        path: str,
        values: Mapping[str, object] | None,
        body: bytes | Body | None,
        headers: Mapping[str, str] | None,
        timeout: float,
        at_root: bool,
    ) -> Response:
        endpoint = self.endpoint
        if self.connection is None:
            self.connection = connect(endpoint, self.connect_timeout)
            if self.on_slow_response and sys.stderr.isatty():
                self.connection.on_slow_response = self._notify_slow
        if self._is_interrupted:
            self.connection.interrupt()
        # Nothing here decodes a compressed response.
        sent = {"Host": endpoint.address.netloc, "User-Agent": "pai", "Accept": "*/*"}
        sent["Accept-Encoding"] = "identity"
        if endpoint.token:
            sent["Authorization"] = f"{endpoint.scheme} {endpoint.token}"
        sent.update(headers or {})
        prefix = "" if at_root else endpoint.address.prefix + endpoint.rest_path
        target = prefix + path + (query(values) if values else "")
        if not self.logs_requests:
            return self.connection.request(method, target, sent, body, timeout)
        began = time.perf_counter()
        response = self.connection.request(method, target, sent, body, timeout)
        took = (time.perf_counter() - began) * 1000
        sys.stderr.write(f"{self.alias}: {method} {target}: {response.status} in {took:.0f} ms\n")
        return response


def connect(endpoint: Endpoint, timeout: float = CONNECT_TIMEOUT_S) -> Connection:
    """Create the connection this address needs (socket, TLS or proxy). Nothing is sent yet."""
    address = endpoint.address
    if not address.is_secure and (address.is_loopback or not _any_proxy()):
        return Connection(address.host, address.port, timeout)
    from openpaisdk.client.tls_and_proxies import ProxyConnection, SecureConnection, proxy_for, tls_context

    proxy = proxy_for(address)
    if address.is_secure:
        trust = tls_context(endpoint.verify, endpoint.ca_file, endpoint.certificate)
        return SecureConnection(address, proxy, timeout, trust)
    if proxy:
        return ProxyConnection(address, proxy, timeout)
    return Connection(address.host, address.port, timeout)


def _any_proxy() -> bool:
    return any(os.environ.get(n) for n in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"))


def _is_retryable(error: OSError) -> bool:
    """Whether a retry can help; an unknown host name or a bad certificate stays that way."""
    return isinstance(error, ConnectionError | HttpProtocolError) or error.errno == errno.ETIMEDOUT


def _retry_after(headers: Mapping[str, str]) -> float:
    value = headers.get("retry-after", "")
    return min(float(value), 10.0) if value.isdecimal() else 0.0
