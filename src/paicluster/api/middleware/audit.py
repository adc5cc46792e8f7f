"""Who did what: one line of JSON for each request that changes something, and for each login.

Requests only leave a note; a thread writes the lines, so that a slow disk delays nobody. The words of a line
come from the route's address and from what the route named, never from a body or a header: no secret gets in.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request

if TYPE_CHECKING:
    from paicluster.auth.tokens import Identity

log = logging.getLogger("paicluster.audit")

# Where a request carries who it is from, and what it was about.
WHO = "paicluster.who"
_ABOUT = "paicluster.about"

# Parts of an address that would open a door.
_SECRET = frozenset({"token", "ticket"})
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_encode = msgspec.json.Encoder().encode

# WebHDFS has in the query what is done.
_OPERATION = re.compile(rb"(?:^|&)op=([A-Za-z]{1,40})(?:&|$)")

_Entry = tuple[float, "Identity | None", str, str, str, dict[str, object], bytes, str | None, int]


def set_subject(request: Request, about: str) -> None:
    """Name what a request is about where its address does not: the job it hands in, the user it makes."""
    request.scope[_ABOUT] = about


class AuditLog:
    """`audit.log` in the home, readable by this account alone; a full one is set aside as `audit.log.1`."""

    def __init__(self, path: Path, largest: int = 16 << 20, kept: int = 5) -> None:
        self._path = path
        self._largest = largest
        self._kept = kept
        self._entries: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._file = self._open()
        self._thread = threading.Thread(target=self._write_all, name="audit", daemon=True)
        self._thread.start()

    def record(self, request: Request, template: str, status: int) -> None:
        scope = request.scope
        client = scope.get("client")
        self._entries.put(
            (
                time.time(),
                scope.get(WHO),
                client[0] if client else "",
                scope["method"],
                template,
                scope.get("path_params", {}),
                scope.get("query_string", b""),
                scope.get(_ABOUT),
                status,
            )
        )

    def close(self) -> None:
        self._entries.put(None)
        self._thread.join()
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _write_all(self) -> None:
        ended = False
        while not ended:
            entries = [self._entries.get()]
            while not self._entries.empty():
                entries.append(self._entries.get())
            ended = entries[-1] is None
            lines = b"".join(_line(entry) for entry in entries if entry is not None)
            try:
                self._write(lines)
            except OSError as error:
                log.warning("%d lines of %s were lost: %s", lines.count(b"\n"), self._path, error.strerror)

    def _write(self, lines: bytes) -> None:
        size = os.fstat(self._file).st_size
        if size and size + len(lines) > self._largest:
            self._rotate()
        while lines:
            lines = lines[os.write(self._file, lines) :]

    def _rotate(self) -> None:
        def numbered(number: int) -> Path:
            return self._path.with_name(f"{self._path.name}.{number}")

        for number in range(self._kept - 1, 0, -1):
            if numbered(number).exists():
                numbered(number).rename(numbered(number + 1))
        self._path.rename(numbered(1))
        os.close(self._file)
        self._file = self._open()


def _line(entry: _Entry) -> bytes:
    at, who, address, method, template, parameters, query, about, status = entry

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        return "***" if name in _SECRET else str(parameters.get(name, ""))

    line: dict[str, object] = {
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "user": who.username if who is not None else None,
        "address": address,
        "method": method,
        "path": _PARAMETER.sub(fill, template),
        "status": status,
    }
    if operation := _OPERATION.search(query):
        line["operation"] = operation[1].decode().upper()
    if about is not None:
        line["about"] = about
    if who is not None and who.job_id is not None:
        line["byJob"] = who.job_id
    elif who is not None and who.application:
        line["application"] = True
    return _encode(line) + b"\n"
