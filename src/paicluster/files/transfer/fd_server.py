"""File-descriptor server: passes open files to local clients over a Unix socket, never paths.

A client authenticates with a ticket that it got over HTTP; the storage checks its permissions as for any
other request. The socket is an abstract one, so clients need no access to the cluster's home directory.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from paicluster.files import Storage, StorageUser
from paicluster.files.transfer.passed_descriptors import PassedDescriptors
from paicluster.files.transfer.upload import UploadRequest
from paicluster.files.transfer.upload_registry import UploadRegistry
from paiprotocol.errors import InvalidParameters, PaiError, Unauthorized, Unavailable

log = logging.getLogger("paicluster.transfer")

_TICKET_LIFETIME_S = 30.0
# Then the client needs a new ticket: its token may have expired meanwhile.
_CONNECTION_LIFETIME_S = 600.0
# A connection without a ticket occupies a slot no longer than this.
_TICKET_TIMEOUT_S = 5.0
_MAX_LINE_BYTES = 1 << 16
_MAX_CONNECTIONS = 64
# Leaves connections (each has a thread) for other users.
_MAX_CONNECTIONS_PER_USER = 16
_ACCEPT_RETRY_DELAY_S = 0.1


@dataclass(frozen=True, slots=True)
class _SessionTicket:
    user: StorageUser
    # Id of the token that it was issued for.
    holder: str
    expires: float


class FdServer:
    """Server for one storage. Listens from the first ticket on."""

    def __init__(
        self, storage: Storage, uploads: UploadRegistry, *, ticket_timeout_s: float = _TICKET_TIMEOUT_S
    ):
        self._ticket_timeout_s = ticket_timeout_s
        self._storage = storage
        self._uploads = uploads
        self._tickets: dict[str, _SessionTicket] = {}
        self._sessions: dict[socket.socket, _SessionTicket] = {}
        self._lock = threading.Lock()
        self._name = ""
        self._connection_slots = threading.Semaphore(_MAX_CONNECTIONS)
        self._connections_of_user: Counter[str] = Counter()
        self._passed = PassedDescriptors()

    def issue_ticket(self, user: StorageUser, holder: str) -> dict[str, object]:
        """Ticket that is valid once, and the socket's address. The first call opens the socket.

        ``holder``: id of the user's token, for `end_sessions`.
        """
        with self._lock:
            if not self._name:
                self._name = self._listen()
            now = time.monotonic()
            self._tickets = {key: entry for key, entry in self._tickets.items() if entry.expires > now}
            ticket = secrets.token_urlsafe(24)
            self._tickets[ticket] = _SessionTicket(user, holder, now + _TICKET_LIFETIME_S)
        return {"socket": self._name, "ticket": ticket, "pid": os.getpid(), "uid": os.geteuid()}

    def end_sessions(self, holder: str) -> None:
        """End the sessions of a token that was revoked, or whose user changed; for any thread.

        A client that may still use the storage gets a new ticket, with the rights as they are now.
        """
        with self._lock:
            self._tickets = {key: entry for key, entry in self._tickets.items() if entry.holder != holder}
            for connection, session in self._sessions.items():
                if session.holder == holder:
                    with contextlib.suppress(OSError):  # the client has gone
                        connection.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> str:
        name = f"paicluster-{secrets.token_hex(16)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind("\0" + name)
        listener.listen(64)
        threading.Thread(target=self._serve, args=(listener,), name="fd-server", daemon=True).start()
        return name

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # no file descriptor is free: retry
                time.sleep(_ACCEPT_RETRY_DELAY_S)
                continue
            if not self._connection_slots.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(
                target=self._serve_client, args=(connection,), name="fd-connection", daemon=True
            ).start()

    def _serve_client(self, connection: socket.socket) -> None:
        try:
            with contextlib.closing(connection), connection.makefile("rb") as lines:
                message = json.loads(_read_ticket(connection, self._ticket_timeout_s))
                with self._session(connection, message) as user:
                    deadline = time.monotonic() + _CONNECTION_LIFETIME_S
                    connection.settimeout(_CONNECTION_LIFETIME_S)
                    _send(connection, {})
                    while line := lines.readline(_MAX_LINE_BYTES):
                        if time.monotonic() > deadline:
                            return
                        self._handle(connection, line, user)
        except (OSError, ValueError, PaiError):
            pass
        except Exception:
            log.exception("fd passing connection failed")
        finally:
            self._connection_slots.release()

    @contextlib.contextmanager
    def _session(self, connection: socket.socket, message: Any) -> Iterator[StorageUser]:
        """The user of a connection, by its first message.

        At most 16 connections per user are counted; further clients fall back to HTTP.
        """
        with self._lock:
            ticket = self._tickets.pop(str(message.get("ticket")), None)
            if ticket is None or ticket.expires < time.monotonic():
                raise Unauthorized("The ticket is invalid or expired.")
            user = ticket.user
            if self._connections_of_user[user.name] >= _MAX_CONNECTIONS_PER_USER:
                raise Unavailable(
                    f"Too many local transfer sessions for user {user.name} "
                    f"(limit {_MAX_CONNECTIONS_PER_USER})."
                )
            self._connections_of_user[user.name] += 1
            self._sessions[connection] = ticket
        try:
            yield user
        finally:
            with self._lock:
                del self._sessions[connection]
                self._connections_of_user[user.name] -= 1
                self._connections_of_user += Counter()  # removes users without connections

    def _handle(self, connection: socket.socket, line: bytes, user: StorageUser) -> None:
        try:
            message = json.loads(line)
            operation = message.get("op")
            if operation == "open":
                self._open(connection, str(message.get("path")), user)
            elif operation == "begin":
                self._begin(connection, line, user)
            elif operation == "mark":
                with self._uploads.locked(str(message["id"]), user) as upload:
                    digest = bytes.fromhex(message["digest"])
                    upload.record_part(int(message["offset"]), int(message["length"]), digest)
                _send(connection, {})
            elif operation == "finish":
                size, mtime = int(message["size"]), int(message["mtime"])
                self._uploads.finish(str(message["id"]), user, size, mtime, str(message["digest"]))
                _send(connection, {})
            else:
                raise InvalidParameters("Unknown operation.")
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError, msgspec.DecodeError):
            _send_error(connection, InvalidParameters("The request is not valid."))
        except PaiError as error:
            _send_error(connection, error)

    def _open(self, connection: socket.socket, path: str, user: StorageUser) -> None:
        opened = self._storage.open_read(path, user)
        try:
            _send(connection, {"mode": opened.entry.ownership.mode & 0o777}, opened.fd)
        finally:
            os.close(opened.fd)

    def _begin(self, connection: socket.socket, line: bytes, user: StorageUser) -> None:
        request = msgspec.json.decode(line, type=UploadRequest)
        if request.size < 0:
            raise InvalidParameters("A local upload announces its size.")
        with self._uploads.begin(request, user) as upload:
            description = upload.describe()
            fd = upload.dup_fd()
            try:
                self._passed.add(upload, fd, request.size)
            except BaseException:
                os.close(fd)
                raise
        try:
            _send(connection, description, fd)
        finally:
            os.close(fd)


def _read_ticket(connection: socket.socket, timeout_s: float) -> bytes:
    """First line of a connection. All of it must arrive within the timeout; nothing may follow it yet."""
    deadline = time.monotonic() + timeout_s
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        data = connection.recv(_MAX_LINE_BYTES - len(line))
        if not data or time.monotonic() > deadline:
            raise Unauthorized("No ticket was sent.")
        line += data
    return line


def _send(connection: socket.socket, message: dict[str, object], fd: int = -1) -> None:
    line = json.dumps(message).encode() + b"\n"
    if fd < 0:
        connection.sendall(line)
        return
    sent = socket.send_fds(connection, [line], [fd])
    connection.sendall(line[sent:])


def _send_error(connection: socket.socket, error: PaiError) -> None:
    _send(connection, {"code": error.code, "message": error.message, "status": error.status})
