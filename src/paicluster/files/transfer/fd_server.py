"""A window for whoever is on this machine: open files are handed over through a Unix socket, never paths.

Who stands there proves himself with a ticket he got over HTTP; what he may have is asked of the storage, as
for everybody. The socket lies in no folder, so nobody needs to be let into the cluster's home to reach it.
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
from typing import Any

import msgspec

from openpaisdk.errors import InvalidParameters, PaiError, Unauthorized, Unavailable
from paicluster.files import Storage, StorageUser
from paicluster.files.transfer.upload import UploadRequest
from paicluster.files.transfer.upload_registry import UploadRegistry

log = logging.getLogger("paicluster.transfer")

_TICKET_S = 30.0
# After this long somebody has to ask for a new ticket: by then his token may have been taken back.
_TALK_S = 600.0
# Nobody stands in others' way for longer without a ticket.
_ADMISSION_S = 5.0
_LONGEST_LINE = 1 << 16
_MAX_SESSIONS = 64
# One person's programs may talk with so many threads as are left to others too.
_MOST_OF_ONE = 16


class FdServer:
    def __init__(self, storage: Storage, uploads: UploadRegistry):
        self._storage = storage
        self._uploads = uploads
        self._tickets: dict[str, tuple[StorageUser, float]] = {}
        self._lock = threading.Lock()
        self._name = ""
        self._talks = threading.Semaphore(_MAX_SESSIONS)
        self._of_each: Counter[str] = Counter()

    def ticket_for(self, who: StorageUser) -> dict[str, object]:
        """Opens the window at first use."""
        with self._lock:
            if not self._name:
                self._name = self._listen()
            now = time.monotonic()
            self._tickets = {key: kept for key, kept in self._tickets.items() if kept[1] > now}
            ticket = secrets.token_urlsafe(24)
            self._tickets[ticket] = (who, now + _TICKET_S)
        return {"socket": self._name, "ticket": ticket, "pid": os.getpid(), "uid": os.geteuid()}

    def _listen(self) -> str:
        name = f"paicluster-{secrets.token_hex(16)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind("\0" + name)
        listener.listen(64)
        threading.Thread(target=self._serve, args=(listener,), name="window", daemon=True).start()
        return name

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                talk, _ = listener.accept()
            except OSError:  # no descriptor is free: there will be again
                time.sleep(0.1)
                continue
            if not self._talks.acquire(blocking=False):
                talk.close()
                continue
            threading.Thread(
                target=self._serve_client, args=(talk,), name="handing over", daemon=True
            ).start()

    def _serve_client(self, talk: socket.socket) -> None:
        try:
            with contextlib.closing(talk), talk.makefile("rb") as lines:
                who = self._admitted(json.loads(_ticket(talk)))
                with self._counted(who):
                    ends = time.monotonic() + _TALK_S
                    talk.settimeout(_TALK_S)
                    _send(talk, {})
                    while line := lines.readline(_LONGEST_LINE):
                        if time.monotonic() > ends:
                            return
                        self._answer(talk, line, who)
        except (OSError, ValueError, PaiError):
            pass
        except Exception:
            log.exception("handing over failed")
        finally:
            self._talks.release()

    def _admitted(self, said: Any) -> StorageUser:
        with self._lock:
            kept = self._tickets.pop(str(said.get("ticket")), None)
        if kept is None or kept[1] < time.monotonic():
            raise Unauthorized("This ticket is not good.")
        return kept[0]

    @contextlib.contextmanager
    def _counted(self, who: StorageUser) -> Iterator[None]:
        """Whoever talks too much is not listened to here; over HTTP he gets everything all the same."""
        with self._lock:
            if self._of_each[who.name] >= _MOST_OF_ONE:
                raise Unavailable("You have too many such talks already.")
            self._of_each[who.name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._of_each[who.name] -= 1
                self._of_each += Counter()  # forgets whoever has none

    def _answer(self, talk: socket.socket, line: bytes, who: StorageUser) -> None:
        try:
            said = json.loads(line)
            what = said.get("op")
            if what == "open":
                self._open(talk, str(said.get("path")), who)
            elif what == "begin":
                self._begin(talk, line, who)
            elif what == "mark":
                with self._uploads.locked(str(said["id"]), who) as upload:
                    digest = bytes.fromhex(said["digest"])
                    upload.arrived(int(said["offset"]), int(said["length"]), digest)
                _send(talk, {})
            elif what == "finish":
                size, mtime = int(said["size"]), int(said["mtime"])
                self._uploads.finish(str(said["id"]), who, size, mtime, str(said["digest"]))
                _send(talk, {})
            else:
                raise InvalidParameters("There is no such thing to ask for here.")
        except (KeyError, TypeError, ValueError, msgspec.DecodeError):
            _refuse(talk, InvalidParameters("The question was not understood."))
        except PaiError as error:
            _refuse(talk, error)

    def _open(self, talk: socket.socket, path: str, who: StorageUser) -> None:
        opened = self._storage.open_read(path, who)
        try:
            _send(talk, {"mode": opened.entry.record.mode & 0o777}, opened.fd)
        finally:
            os.close(opened.fd)

    def _begin(self, talk: socket.socket, line: bytes, who: StorageUser) -> None:
        with self._uploads.begun(msgspec.json.decode(line, type=UploadRequest), who) as upload:
            said = upload.described()
            fd = upload.handed_over()
        try:
            _send(talk, said, fd)
        finally:
            os.close(fd)


def _ticket(talk: socket.socket) -> bytes:
    """The first line: all of it comes soon, however slowly its bytes come, and nothing comes after it yet."""
    ends = time.monotonic() + _ADMISSION_S
    line = b""
    while not line.endswith(b"\n"):
        talk.settimeout(max(0.001, ends - time.monotonic()))
        data = talk.recv(_LONGEST_LINE - len(line))
        if not data or time.monotonic() > ends:
            raise Unauthorized("No ticket was shown.")
        line += data
    return line


def _send(talk: socket.socket, said: dict[str, object], fd: int = -1) -> None:
    line = json.dumps(said).encode() + b"\n"
    if fd < 0:
        talk.sendall(line)
        return
    sent = socket.send_fds(talk, [line], [fd])
    talk.sendall(line[sent:])


def _refuse(talk: socket.socket, error: PaiError) -> None:
    _send(talk, {"code": error.code, "message": error.message, "status": error.status})
