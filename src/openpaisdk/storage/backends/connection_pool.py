"""Connections for many threads: each has its own to every host it talks to."""

from __future__ import annotations

import os
import threading
import time

from openpaisdk.client.http_errors import connection_error
from openpaisdk.client.transport import Endpoint, Transport, connect
from openpaisdk.errors import ConnectionFailed, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from openpaisdk.client.http1 import Body, Connection, Response
    from openpaisdk.client.transport import Renew

    T = TypeVar("T")

RETRY_WINDOW_S = 8.0
"""Seconds for which one part is tried again: longer than a server takes to come back."""
BACKOFF_MAX_S = 4.0
MAX_RESTARTS = 5
"""So often a part may be cut after it went well for longer than that."""
REQUEST_TIMEOUT_S = 120.0
_patient = threading.local()


class ConnectionPool:
    """The ways of all threads to one storage."""

    def __init__(self, alias: str, endpoint: Endpoint, renew: Renew | None = None):
        self.alias = alias
        self.endpoint = endpoint
        self._renew = renew
        self._lock = threading.Lock()
        self._mine = threading.local()
        self._all: list[Transport] = []

    def transport(self, *, reading: bool = False) -> Transport:
        """This thread's way to the storage's own address.

        What is read may be written to the same storage at the same time, so reading has a way of its own.
        """
        name = "reading" if reading else "asking"
        found: Transport | None = getattr(self._mine, name, None)
        if found is None:
            found = Transport(self.alias, self.endpoint, self._renewed if self._renew else None)
            setattr(self._mine, name, found)
            with self._lock:
                self._all.append(found)
        found.endpoint = self.endpoint
        return found

    def _renewed(self, why: str, failed: Endpoint) -> Endpoint | None:
        with self._lock:
            found = self._renew(why, failed) if self._renew else None
            if found is not None:
                self.endpoint = Endpoint(
                    str(found.address),
                    found.user,
                    found.token,
                    rest_path=self.endpoint.rest_path,
                    verify=found.verify,
                    authority_file=found.authority_file,
                )
            return self.endpoint if found is not None else None

    def follow_redirect(self, method: str, location: str, body: bytes | Body | None) -> Response:
        """Ask the address a redirect gave. Our token goes with it only when that is where it came from."""
        from openpaisdk.client.address import parse_uri

        scheme, _, rest = location.partition("://")
        authority, _, target = rest.partition("/")
        here = self.endpoint
        address = parse_uri(f"{scheme}://{authority}")
        there = Endpoint(
            f"{scheme}://{authority}", rest_path="", verify=here.verify, authority_file=here.authority_file
        )
        # By process: a fork shares these with its parent, and each would read the other's answers.
        kept: dict[tuple[int, str], Connection] = self._mine.__dict__.setdefault("elsewhere", {})
        key = (os.getpid(), authority)
        headers = {"Host": address.authority, "User-Agent": "pai", "Accept": "*/*"}
        if str(address) == f"{here.address.scheme}://{here.address.authority}" and here.token:
            headers["Authorization"] = f"Bearer {here.token}"
        if method in ("PUT", "POST"):
            headers["Content-Type"] = "application/octet-stream"
        for fresh in (False, True):
            connection = kept.get(key)
            if connection is None or fresh:
                connection = kept[key] = connect(there)
            was_open = connection.is_open
            try:
                return connection.request(method, "/" + target, headers, body, REQUEST_TIMEOUT_S)
            except OSError as e:
                connection.close()
                if not was_open or fresh:
                    raise connection_error(e, f"The storage at {authority}", REQUEST_TIMEOUT_S) from None
        raise AssertionError("unreachable")

    def close(self) -> None:
        for transport in self._all:
            transport.close()
        for connection in getattr(self._mine, "elsewhere", {}).values():
            connection.close()


def with_retries(action: Callable[[], T]) -> T:
    """Try again when the way was cut, for as long as PAI_TRANSFER_PATIENCE says; a no stays a no.

    One inside another does not try by itself: whoever waits is told after that long, not after many times it.
    """
    if getattr(_patient, "is_trying", False):
        return action()
    _patient.is_trying = True
    try:
        return _tried(action)
    finally:
        _patient.is_trying = False


def _tried(action: Callable[[], T]) -> T:
    said = os.environ.get("PAI_TRANSFER_PATIENCE", "")
    patience = float(said) if said.isdecimal() else RETRY_WINDOW_S
    ends, pause, new_starts = 0.0, 0.1, 0
    while True:
        began = time.monotonic()
        try:
            return action()
        except (ConnectionFailed, Unavailable) as e:
            now = time.monotonic()
            if not ends or (now - began > patience and new_starts < MAX_RESTARTS):
                # The first cut; or it went well for long before it was cut again.
                ends, pause, new_starts = now + patience, 0.1, new_starts + bool(ends)
            if now + pause > ends or (isinstance(e, Unavailable) and e.status == 507):
                raise
        time.sleep(pause)
        pause = min(pause * 2, BACKOFF_MAX_S)


def body_of(answer: Response, where: str) -> Iterator[bytes]:
    """An answer's bytes; a cut is an error of ours, not of the socket."""
    try:
        while data := answer.read_some():
            yield data
    except OSError as e:
        raise connection_error(e, where, REQUEST_TIMEOUT_S) from None


def blocks_of(answer: Response, where: str, buffer: memoryview) -> Iterator[memoryview]:
    """An answer's bytes in blocks as large as ``buffer``: each is good until the next one is asked for."""
    try:
        while got := answer.read_into(buffer):
            yield buffer[:got]
    except OSError as e:
        raise connection_error(e, where, REQUEST_TIMEOUT_S) from None


def whole(answer: Response, where: str) -> bytes:
    return b"".join(body_of(answer, where))


__all__ = ["ConnectionPool", "blocks_of", "body_of", "whole", "with_retries"]
