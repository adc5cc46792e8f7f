"""One way to a cluster: a connection that is kept, the token, a few tries, and errors that say what to do."""

from __future__ import annotations

import os
import sys
import time

from openpaisdk.client.address import Address, parse_uri, query
from openpaisdk.client.http1 import Body, SocketConnection
from openpaisdk.client.http_errors import connection_error, error_from_response, token_rejected
from openpaisdk.errors import Unauthorized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from openpaisdk.client.http1 import Connection, Response

    Renew = Callable[[str, "Endpoint"], "Endpoint | None"]

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 60.0
MAX_ATTEMPTS = 3
RETRY_DELAYS_S = (0.1, 0.4, 1.0)
CONNECTION_LOST, STREAM_LOST, TOKEN_REJECTED = "gone", "following", "token refused"
"""Why a cluster is looked for again."""
DEBUG_FILE = os.path.join(".openpai", "debug_enable")
"""Where it lies in the folder a person stands in, every request is told on stderr; so with PAI_DEBUG."""
REST_SERVER = "/rest-server"
"""Where OpenPAI's front door keeps its API. A cluster without the front door has it at the root."""


class Endpoint:
    """Where a cluster is and who we are there. The embedded cluster's changes whenever it starts anew."""

    __slots__ = ("address", "authority_file", "rest_path", "token", "user", "verify")

    def __init__(
        self,
        uri: str,
        user: str = "",
        token: str = "",
        *,
        rest_path: str = REST_SERVER,
        verify: bool = True,
        authority_file: str = "",
    ):
        self.address: Address = parse_uri(uri)
        self.user = user
        self.token = token
        self.rest_path = "" if self.address.prefix.endswith(REST_SERVER) else rest_path
        self.verify = verify
        self.authority_file = authority_file


class Transport:
    """Requests to one cluster. Everything sent is safe to send again: reads, whole writes, or under a key."""

    def __init__(self, alias: str, endpoint: Endpoint, renew: Renew | None = None):
        """``renew(why, failed)`` finds a cluster again that moved from there; None: it is not back yet."""
        self.alias = alias
        self.endpoint = endpoint
        self.renew = renew
        self.connection: Connection | None = None
        self._process = os.getpid()
        self.on_slow_response: Callable[[str], None] | None = None
        """Told at a terminal, once, that a cluster is slow to answer."""
        self.connect_timeout, self.timeout, self.tries = CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, MAX_ATTEMPTS
        self.logs_requests = bool(os.environ.get("PAI_DEBUG")) or os.path.exists(DEBUG_FILE)

    def shorten_timeouts(self, seconds: float) -> None:
        """For questions nobody waits long for: one try, and an answer within that time."""
        self.connect_timeout = self.timeout = seconds
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
    ) -> Response:
        """Send a request; an answer that says no becomes an error, unless its status is in ``accept``."""
        if self._process != os.getpid():
            # A fork shares the connection with its parent: each would read answers meant for the other.
            self._process = os.getpid()
            self.close()
        timeout = self.timeout if timeout is None else timeout
        tries = self.tries if tries is None else tries
        renewed = False
        tried = 0
        while True:
            was_open = self.connection is not None and self.connection.is_open
            try:
                answer = self._send(method, path, values, body, headers, timeout, at_root)
            except OSError as e:
                self.close()
                if was_open and not isinstance(e, TimeoutError):
                    continue  # the kept connection had gone stale; a fresh one decides
                if self.renew and not renewed and tries > 1:
                    renewed = True
                    self.endpoint = self.renew(CONNECTION_LOST, self.endpoint) or self.endpoint
                    continue
                tried += 1
                if tried >= tries or isinstance(e, TimeoutError) or not _may_pass(e):
                    raise connection_error(e, self.where, timeout) from None
                time.sleep(RETRY_DELAYS_S[min(tried, len(RETRY_DELAYS_S)) - 1])
                continue
            if answer.status < 400 or answer.status in accept:
                return answer
            if answer.status in (429, 502, 503, 504) and tried + 1 < tries:
                tried += 1
                answer.read()
                time.sleep(
                    _asked_pause(answer.headers) or RETRY_DELAYS_S[min(tried, len(RETRY_DELAYS_S)) - 1]
                )
                continue
            error = error_from_response(answer.status, answer.read(), self.where)
            if isinstance(error, Unauthorized) and self.renew and not renewed:
                renewed = True
                self.endpoint = self.renew(TOKEN_REJECTED, self.endpoint) or self.endpoint
                self.close()
                continue
            if isinstance(error, Unauthorized):
                raise token_rejected(error, self.alias, self.endpoint.token)
            raise error

    def _tell_slow(self) -> None:
        if self.on_slow_response:
            self.on_slow_response(f"Waiting for {self.where[0].lower()}{self.where[1:]} ...")
            self.on_slow_response = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

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
        there = self.endpoint
        if self.connection is None:
            self.connection = connect(there, self.connect_timeout)
            if (
                self.on_slow_response
                and isinstance(self.connection, SocketConnection)
                and sys.stderr.isatty()
            ):
                self.connection.on_slow_response = self._tell_slow
        sent = {"Host": there.address.authority, "User-Agent": "pai", "Accept": "*/*"}
        if there.token:
            sent["Authorization"] = f"Bearer {there.token}"
        sent.update(headers or {})
        front = "" if at_root else there.address.prefix + there.rest_path
        target = front + path + (query(values) if values else "")
        if not self.logs_requests:
            return self.connection.request(method, target, sent, body, timeout)
        began = time.perf_counter()
        answer = self.connection.request(method, target, sent, body, timeout)
        took = (time.perf_counter() - began) * 1000
        sys.stderr.write(f"{self.alias}: {method} {target}: {answer.status} in {took:.0f} ms\n")
        return answer


def connect(endpoint: Endpoint, timeout: float = CONNECT_TIMEOUT_S) -> Connection:
    """A connection of the kind this address needs. Nothing is sent yet."""
    address = endpoint.address
    if not address.is_secure and (address.is_loopback or not _any_proxy()):
        return SocketConnection(address.host, address.port, timeout)
    from openpaisdk.client.http_client_connection import HttpClientConnection, proxy_for

    proxy = proxy_for(address)
    if not proxy and not address.is_secure:
        return SocketConnection(address.host, address.port, timeout)
    return HttpClientConnection(address, proxy, timeout, endpoint.verify, endpoint.authority_file)


def _any_proxy() -> bool:
    return any(os.environ.get(n) for n in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"))


def _may_pass(error: OSError) -> bool:
    """Whether trying again in a moment can help: a name that is unknown or a bad certificate stays so."""
    return isinstance(error, ConnectionError) or type(error).__name__ == "HttpProtocolError"


def _asked_pause(headers: Mapping[str, str]) -> float:
    asked = headers.get("retry-after", "")
    return min(float(asked), 10.0) if asked.isdecimal() else 0.0
