"""Connection pool of a storage: one connection per thread and host, and retries after connection errors."""

from __future__ import annotations

import os
import threading
import time

from openpaisdk.client.http_errors import connection_error
from openpaisdk.client.transport import Endpoint, Transport, connect
from openpaisdk.errors import ConnectionFailed, NotConnected, TooManyRequests, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from openpaisdk.client.http1 import Body, Connection, Response
    from openpaisdk.client.transport import Renew

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


class ConnectionPool:
    """Connections of all threads to one storage."""

    def __init__(self, alias: str, endpoint: Endpoint, renew: Renew | None = None):
        self.alias = alias
        self.endpoint = endpoint
        self._renew = renew
        self._lock = threading.Lock()
        self._local = threading.local()
        self._all: list[Transport] = []

    def transport(self, *, streaming: bool = False) -> Transport:
        """This thread's transport to the storage's own address.

        A response that is being streamed may be written to the same storage at the same time, so streamed
        reads have a transport of their own.
        """
        name = "streaming" if streaming else "requests"
        current: Transport | None = getattr(self._local, name, None)
        if current is None:
            current = Transport(self.alias, self.endpoint, self._renew_endpoint if self._renew else None)
            setattr(self._local, name, current)
            with self._lock:
                self._all.append(current)
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
                    authority_file=renewed.authority_file,
                )
            return self.endpoint if renewed is not None else None

    def follow_redirect(self, method: str, location: str, body: bytes | Body | None) -> Response:
        """Send a request to the address of a redirect. Our token is sent only to the storage's own
        address."""
        from openpaisdk.client.address import parse_uri

        scheme, _, rest = location.partition("://")
        authority, _, target = rest.partition("/")
        here = self.endpoint
        address = parse_uri(f"{scheme}://{authority}")
        there = Endpoint(
            f"{scheme}://{authority}", rest_path="", verify=here.verify, authority_file=here.authority_file
        )
        # Per process: a fork shares these sockets with its parent, and each would read the other's responses.
        connections: dict[tuple[int, str], Connection] = self._local.__dict__.setdefault("redirects", {})
        key = (os.getpid(), authority)
        headers = {"Host": address.authority, "User-Agent": "pai", "Accept": "*/*"}
        if str(address) == f"{here.address.scheme}://{here.address.authority}" and here.token:
            headers["Authorization"] = f"Bearer {here.token}"
        if method in ("PUT", "POST"):
            headers["Content-Type"] = "application/octet-stream"
        for is_retry in (False, True):
            connection = connections.get(key)
            if connection is None or is_retry:
                connection = connections[key] = connect(there)
            was_open = connection.is_open
            try:
                return connection.request(method, "/" + target, headers, body, REQUEST_TIMEOUT_S)
            except OSError as e:
                connection.close()
                if not was_open or is_retry:
                    raise connection_error(e, f"The storage at {authority}", REQUEST_TIMEOUT_S) from None
        raise AssertionError("unreachable")

    def close(self) -> None:
        for transport in self._all:
            transport.close()
        for connection in getattr(self._local, "redirects", {}).values():
            connection.close()


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


def iter_body(response: Response, url: str) -> Iterator[bytes]:
    """Bytes of a response; a lost connection raises our error, not an OSError."""
    try:
        while data := response.read_some():
            yield data
    except OSError as e:
        raise connection_error(e, url, REQUEST_TIMEOUT_S) from None


def iter_blocks(response: Response, url: str, buffer: memoryview) -> Iterator[memoryview]:
    """Bytes of a response in blocks as large as ``buffer``. A block is valid until the next is requested."""
    try:
        while got := response.read_into(buffer):
            yield buffer[:got]
    except OSError as e:
        raise connection_error(e, url, REQUEST_TIMEOUT_S) from None


def read_all(response: Response, url: str) -> bytes:
    return b"".join(iter_body(response, url))


__all__ = ["ConnectionPool", "iter_blocks", "iter_body", "read_all", "with_retries"]
