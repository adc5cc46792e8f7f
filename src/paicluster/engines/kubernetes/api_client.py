"""Client of the Kubernetes API: requests and streams of lines over HTTP/1.1, for one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import h11
import msgspec

from paicluster.engines.kubernetes.cluster_access import ClusterAccess
from paiprotocol.errors import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECT_TIMEOUT_S = 10.0
_REQUEST_TIMEOUT_S = 30.0
# API servers close idle connections after minutes, proxies before them sooner.
_IDLE_S = 20.0
_MAX_CONNECTIONS = 16
_READ_BYTES = 1 << 16
_MAX_HEAD_BYTES = 1 << 16
# Of one change in a watch: API servers store objects of at most 1.5 MB.
_MAX_LINE_BYTES = 16 << 20
# Repetitions of a request that the API server does not take now (429), with its own Retry-After.
_MAX_THROTTLED = 5
_MAX_RETRY_AFTER_S = 30.0

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


class ApiError(Exception):
    """A response that is not a success: HTTP status, and reason and message of the Kubernetes status."""

    def __init__(self, status: int, reason: str = "", message: str = "", retry_after_s: float = 0.0):
        super().__init__(message or reason or f"HTTP status {status}")
        self.status = status
        self.reason = reason
        self.message = message or f"HTTP status {status}"
        self.retry_after_s = retry_after_s

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status == 429 or self.status >= 500


class ApiUnavailable(Exception):
    """No response: the API server cannot be reached, or closed the connection."""


class _KubernetesStatus(msgspec.Struct):
    reason: str | None = None
    message: str | None = None


class _Connection:
    """One connection, with one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str):
        self._reader = reader
        self._writer = writer
        self._host = host
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self.used_at = time.monotonic()
        self.is_fresh = True

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> h11.Response:
        lines = [("Host", self._host), ("Accept", JSON), *headers.items()]
        if body or method not in ("GET", "DELETE"):
            lines.append(("Content-Length", str(len(body))))
        data = self._http.send(h11.Request(method=method, target=target, headers=lines)) or b""
        if body:
            data += self._http.send(h11.Data(data=body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        self._writer.write(data)
        await self._writer.drain()
        event = await self._next()
        while isinstance(event, h11.InformationalResponse):
            event = await self._next()
        if not isinstance(event, h11.Response):
            raise ConnectionResetError("the connection was closed")
        return event

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body of the response."""
        while True:
            event = await self._next()
            if isinstance(event, h11.EndOfMessage):
                return
            if not isinstance(event, h11.Data):
                raise ConnectionResetError("the response ended too early")
            yield bytes(event.data)

    async def _next(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]
            self._http.receive_data(await self._reader.read(_READ_BYTES))

    def is_reusable(self) -> bool:
        """Whether another request can follow."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self.used_at = time.monotonic()
        self.is_fresh = False
        return True

    def is_idle_too_long(self) -> bool:
        return time.monotonic() - self.used_at > _IDLE_S or self._reader.at_eof()

    def close(self) -> None:
        self._writer.close()


class ApiClient:
    """Client of one API server. Counts its requests, and how many were throttled."""

    def __init__(self, access: ClusterAccess):
        self.access = access
        parts = urlsplit(access.server)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._authority = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path.rstrip("/")
        self._idle: list[_Connection] = []
        self._slots = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._closed = False
        self.requests = 0
        self.throttled = 0

    async def close(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def get(self, path: str, kind: type[T], **query: str | int) -> T:
        return msgspec.json.decode(await self.request("GET", path, query=query), type=kind)

    async def create(self, path: str, value: Mapping[str, Any]) -> bytes:
        return await self.request("POST", path, msgspec.json.encode(value))

    async def delete(self, path: str, *, grace_s: int | None = None, uid: str = "") -> bool:
        """Delete an object; False if there is none. ``uid``: only the object with this uid."""
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self.request("DELETE", path, msgspec.json.encode(body))
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        query: Mapping[str, str | int] | None = None,
        content_type: str = JSON,
        timeout_s: float = _REQUEST_TIMEOUT_S,
    ) -> bytes:
        """The response's body. Raises ApiError, ApiUnavailable, or ConfigError of the credentials."""
        target = self._target(path, query)
        for attempt in range(_MAX_THROTTLED + 1):
            try:
                async with self._slots:
                    return await self._exchange(method, target, body, content_type, timeout_s)
            except ApiError as error:
                if error.status != 429 or not error.retry_after_s or attempt == _MAX_THROTTLED:
                    raise
                self.throttled += 1
                pause_s = min(error.retry_after_s, _MAX_RETRY_AFTER_S)
            await asyncio.sleep(pause_s * random.uniform(1.0, 1.5))
        raise AssertionError

    async def lines(
        self, path: str, *, query: Mapping[str, str | int], idle_timeout_s: float
    ) -> AsyncGenerator[bytes]:
        """The lines of a response that does not end soon, each when it arrives."""
        target = self._target(path, query)
        connection = None
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                connection = await self._connect()
                await self._send(connection, "GET", target, b"", JSON)
            rest = b""
            chunks = connection.chunks()
            while True:
                try:
                    async with asyncio.timeout(idle_timeout_s):
                        chunk = await anext(chunks)
                except (StopAsyncIteration, TimeoutError):
                    # Silence: the connection may be dead, so the caller begins another one.
                    break
                if len(rest) > _MAX_LINE_BYTES:
                    raise ApiUnavailable(f"{self.access.server} sends an object that is too large")
                *complete, rest = (rest + chunk).split(b"\n")
                for line in complete:
                    if line:
                        yield line
            if rest:
                yield rest
        except TimeoutError:
            raise ApiUnavailable(f"{self.access.server} does not respond") from None
        except (OSError, h11.RemoteProtocolError) as error:
            raise ApiUnavailable(_reason(error, self.access.server)) from error
        finally:
            if connection is not None:
                connection.close()

    def _target(self, path: str, query: Mapping[str, str | int] | None) -> str:
        return f"{self._prefix}{path}{f'?{urlencode(query)}' if query else ''}"

    async def _exchange(
        self, method: str, target: str, body: bytes, content_type: str, timeout_s: float
    ) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    connection = self._reused() or await self._connect()
                    try:
                        return await self._exchange_over(connection, method, target, body, content_type)
                    except (OSError, h11.RemoteProtocolError):
                        connection.close()
                        # An idle connection may have been closed a moment ago. All our requests may be
                        # repeated: what is created has a name.
                        if connection.is_fresh:
                            raise
                    except BaseException:
                        connection.close()
                        raise
        except TimeoutError:
            raise ApiUnavailable(f"{self.access.server} does not respond") from None
        except (OSError, h11.RemoteProtocolError) as error:
            raise ApiUnavailable(_reason(error, self.access.server)) from error

    async def _exchange_over(
        self, connection: _Connection, method: str, target: str, body: bytes, content_type: str
    ) -> bytes:
        try:
            await self._send(connection, method, target, body, content_type)
            content = b"".join([chunk async for chunk in connection.chunks()])
        except ApiError:
            self._keep(connection)
            raise
        self._keep(connection)
        return content

    async def _send(
        self, connection: _Connection, method: str, target: str, body: bytes, content_type: str
    ) -> h11.Response:
        self.requests += 1
        headers = dict(await self.access.credentials.headers())
        if body:
            headers["Content-Type"] = content_type
        response = await connection.send(method, target, headers, body)
        if not 200 <= response.status_code < 300:
            if response.status_code == 401:
                self.access.credentials.reject()
            text = b"".join([chunk async for chunk in connection.chunks()])
            raise _error(response, text)
        return response

    def _reused(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_idle_too_long():
                return connection
            connection.close()
        return None

    def _keep(self, connection: _Connection) -> None:
        if not self._closed and connection.is_reusable():
            self._idle.append(connection)
        else:
            connection.close()

    async def _connect(self) -> _Connection:
        # First: an exec plugin may have a client certificate.
        await self.access.credentials.headers()
        context = self.access.tls()
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                self._host,
                self._port,
                ssl=context,
                server_hostname=(self.access.tls_server_name or self._host) if context else None,
            )
        return _Connection(reader, writer, self._authority)


def _error(response: h11.Response, text: bytes) -> ApiError:
    status = _KubernetesStatus()
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        status = msgspec.json.decode(text, type=_KubernetesStatus)
    retry_after_s = 0.0
    for name, value in response.headers:
        if name == b"retry-after" and value.isdigit():
            retry_after_s = float(value)
    message = status.message or text[:300].decode(errors="replace")
    return ApiError(response.status_code, status.reason or "", message, retry_after_s)


def _reason(error: Exception, server: str) -> str:
    text = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
    return f"{server}: {text}"


def config_error(error: ApiError | ApiUnavailable, purpose: str) -> ConfigError:
    """A failed request as an error for an administrator. ``purpose``: what could not be done."""
    if isinstance(error, ApiUnavailable):
        return ConfigError(f"Kubernetes does not respond: {error}.", hint="Check: kubectl cluster-info")
    if error.status == 401:
        return ConfigError(
            f"Kubernetes rejects the credentials: {error.message}.", hint="Check: kubectl auth whoami"
        )
    return ConfigError(f"{purpose}: {error.message}.")
