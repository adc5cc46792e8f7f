"""Connection pool of a storage: one connection per thread and host, and retries after connection errors."""

from __future__ import annotations

import os
import threading
import time
from weakref import WeakSet

from openpaisdk.client.http_errors import connection_error
from openpaisdk.client.transport import CONNECT_TIMEOUT_S, Endpoint, Transport, connect
from paiprotocol.errors import ConnectionFailed, NotConnected, PaiError, TooManyRequests, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from openpaisdk.client.transport import Renew
    from pairuntime.transport.http1 import Body, Connection, Response

    T = TypeVar("T")

RETRY_WINDOW_S = 8.0
"""Retry window of one part: longer than a server takes to restart."""
BACKOFF_MAX_S = 4.0
THROTTLE_WINDOW_S = 60.0
"""How long throttled requests are repeated: a cloud recovers when its clients pause, not at once."""
MAX_RESTARTS = 5
"""How often the window starts again after an attempt that lasted longer than the window."""
REQUEST_TIMEOUT_S = 120.0
"""Time without progress of a request to a storage that is alive: deleting a large tree takes long. A dead one
is noticed much earlier (``http1.DEAD_PEER_TIMEOUT_S``)."""
_retry_state = threading.local()


class _ThreadConnections:
    """Connections of one thread. Only the thread holds them: they are closed when it ends."""

    def __init__(self) -> None:
        self.transports: dict[str, Transport] = {}
        self.redirects: dict[tuple[int, str], Connection] = {}
        """By process and address. A fork shares these sockets with its parent, and each would read the
        other's responses."""

    def interrupt(self) -> None:
        for each in self._all():
            each.interrupt()

    def close(self) -> None:
        for each in self._all():
            each.close()

    def _all(self) -> list[Transport | Connection]:
        return [*self.transports.values(), *self.redirects.values()]


class ConnectionPool:
    """Connections of all threads to one storage."""

    def __init__(
        self,
        alias: str,
        endpoint: Endpoint,
        renew: Renew | None = None,
        *,
        request_timeout_s: float | None = None,
    ):
        """``request_timeout_s``: for each request, which is then repeated only if a kept-alive connection was
        lost. If the storage had got it, the second answer says that there is nothing to move or delete."""
        self.alias = alias
        self.endpoint = endpoint
        self.request_timeout_s = request_timeout_s or REQUEST_TIMEOUT_S
        self._has_own_timeout = request_timeout_s is not None
        self._renew = renew
        self._lock = threading.Lock()
        self._local = threading.local()
        self._all: WeakSet[_ThreadConnections] = WeakSet()
        self._is_interrupted = False

    def transport(self, *, streaming: bool = False) -> Transport:
        """This thread's transport to the storage's own address.

        A response that is being streamed may be written to the same storage at the same time, so streamed
        reads have a transport of their own.
        """
        self._check_usable()
        name = "streaming" if streaming else "requests"
        connections = self._thread_connections()
        current = connections.transports.get(name)
        if current is None:
            current = Transport(self.alias, self.endpoint, self._renew_endpoint if self._renew else None)
            if self._has_own_timeout:
                current.shorten_timeouts(self.request_timeout_s)
            connections.transports[name] = current
            if self._is_interrupted:
                current.interrupt()  # meanwhile
        current.endpoint = self.endpoint
        return current

    def _renew_endpoint(self, reason: str, failed: Endpoint) -> Endpoint | None:
        with self._lock:
            renewed = self._renew(reason, failed) if self._renew else None
            if renewed is not None:
                self.endpoint = Endpoint(
                    str(renewed.address),
                    renewed.user,
                    renewed.token,
                    rest_path=self.endpoint.rest_path,
                    verify=renewed.verify,
                    ca_file=renewed.ca_file,
                )
            return self.endpoint if renewed is not None else None

    def follow_redirect(self, method: str, location: str, body: bytes | Body | None) -> Response:
        """Send a request to the address of a redirect. Our token is sent only to the storage's own
        address."""
        from openpaisdk.client.address import parse_uri

        self._check_usable()
        scheme, _, rest = location.partition("://")
        netloc, _, target = rest.partition("/")
        here = self.endpoint
        address = parse_uri(f"{scheme}://{netloc}")
        there = Endpoint(f"{scheme}://{netloc}", rest_path="", verify=here.verify, ca_file=here.ca_file)
        connections = self._thread_connections().redirects
        key = (os.getpid(), netloc)
        headers = {"Host": address.netloc, "User-Agent": "pai", "Accept": "*/*"}
        headers["Accept-Encoding"] = "identity"
        if str(address) == f"{here.address.scheme}://{here.address.netloc}" and here.token:
            headers["Authorization"] = f"Bearer {here.token}"
        if method in ("PUT", "POST"):
            headers["Content-Type"] = "application/octet-stream"
        for is_retry in (False, True):
            connection = connections.get(key)
            if connection is None or is_retry:
                connection = connections[key] = connect(there, min(CONNECT_TIMEOUT_S, self.request_timeout_s))
            if self._is_interrupted:
                connection.interrupt()
            was_open = connection.is_open
            try:
                return connection.request(method, "/" + target, headers, body, self.request_timeout_s)
            except OSError as e:
                connection.close()
                if not was_open or is_retry or self._is_interrupted:
                    raise connection_error(e, f"The storage at {netloc}", self.request_timeout_s) from None
        raise AssertionError("unreachable")

    def _thread_connections(self) -> _ThreadConnections:
        connections: _ThreadConnections | None = getattr(self._local, "connections", None)
        if connections is None:
            connections = self._local.connections = _ThreadConnections()
            with self._lock:
                self._all.add(connections)
        return connections

    def interrupt(self) -> None:
        """Let the requests of all threads fail. No more can be sent: the program ends."""
        self._is_interrupted = True
        with self._lock:
            for connections in self._all:
                connections.interrupt()

    def _check_usable(self) -> None:
        if self._is_interrupted:
            # Not an error after which a request is repeated.
            raise PaiError(f"The connections to the storage {self.alias} are closed.")

    def close(self) -> None:
        with self._lock:
            for connections in self._all:
                connections.close()


def with_retries(action: Callable[[], T]) -> T:
    """Retry after connection errors, for PAI_TRANSFER_RETRY_S seconds, and while a storage throttles
    requests, for THROTTLE_WINDOW_S seconds unless that is set; other errors are raised at once.

    A nested call does not retry: the caller gets the error after one retry window, not after several.
    """
    if getattr(_retry_state, "is_active", False):
        return action()
    _retry_state.is_active = True
    try:
        return _retry(action)
    finally:
        _retry_state.is_active = False


def _retry(action: Callable[[], T]) -> T:
    setting = os.environ.get("PAI_TRANSFER_RETRY_S", "")
    window = float(setting) if setting.isdecimal() else RETRY_WINDOW_S
    throttle_window = window if setting.isdecimal() else THROTTLE_WINDOW_S
    ends, throttle_ends, pause, restarts = 0.0, 0.0, 0.1, 0
    while True:
        began = time.monotonic()
        try:
            return action()
        except TooManyRequests as e:
            now = time.monotonic()
            throttle_ends = throttle_ends or now + throttle_window
            pause = max(pause, min(e.retry_after_s, throttle_window))
            if now + pause > throttle_ends:
                raise
        except (ConnectionFailed, Unavailable) as e:
            now = time.monotonic()
            has_lasted = now - began > window and not isinstance(e, NotConnected)
            if not ends or (has_lasted and restarts < MAX_RESTARTS):
                # The first error; or the attempt was connected and lasted longer than the window.
                ends, pause, restarts = now + window, 0.1, restarts + bool(ends)
            if now + pause > ends or (isinstance(e, Unavailable) and e.status == 507):
                raise
        time.sleep(pause)
        pause = min(pause * 2, BACKOFF_MAX_S)


def iter_body(response: Response, url: str, timeout_s: float = REQUEST_TIMEOUT_S) -> Iterator[bytes]:
    """Bytes of a response; a lost connection raises our error, not an OSError. ``timeout_s`` is that of its
    request."""
    try:
        while data := response.read_some():
            yield data
    except OSError as e:
        raise connection_error(e, url, timeout_s) from None


def iter_blocks(response: Response, url: str, buffer: memoryview) -> Iterator[memoryview]:
    """Bytes of a response in blocks as large as ``buffer``. A block is valid until the next is requested."""
    try:
        while got := response.read_into(buffer):
            yield buffer[:got]
    except OSError as e:
        raise connection_error(e, url, REQUEST_TIMEOUT_S) from None


def read_all(
    response: Response, url: str, timeout_s: float = REQUEST_TIMEOUT_S, *, max_bytes: int | None = None
) -> bytes:
    data, size = [], 0
    for chunk in iter_body(response, url, timeout_s):
        size += len(chunk)
        if max_bytes is not None and size > max_bytes:
            raise PaiError(f"The storage {url} sent a response of more than {max_bytes >> 20} MiB.")
        data.append(chunk)
    return b"".join(data)


__all__ = ["ConnectionPool", "iter_blocks", "iter_body", "read_all", "with_retries"]
