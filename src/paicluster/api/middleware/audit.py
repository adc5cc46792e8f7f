"""Audit log: one line of JSON for each request that changes something, and for each login.

A request only puts an entry into a queue; a thread writes the lines, so that a slow disk delays no request. A
line contains the route's path and the subject that the route set, never parts of a body or a header: no
secret gets in.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import queue
import re
import sys
import time
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request

if TYPE_CHECKING:
    from paicluster.auth.tokens import Identity

log = logging.getLogger("paicluster.audit")

# Keys of a request's scope: its authenticated identity, and its subject.
IDENTITY_KEY = "paicluster.identity"
_SUBJECT_KEY = "paicluster.subject"

# Path parameters that are credentials.
_SECRET = frozenset({"token", "ticket"})
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_encode = msgspec.json.Encoder().encode

# WebHDFS has the operation in the query.
_OPERATION = re.compile(rb"(?:^|&)op=([A-Za-z]{1,40})(?:&|$)")

# Entries waiting for a slow disk, some 100 MB. Further ones are dropped, with a warning.
_MAX_QUEUED = 100_000
_WARN_EVERY = 1000

_Entry = tuple[float, "Identity | None", str, str, str, dict[str, object], bytes, str | None, int]


def set_subject(request: Request, subject: str) -> None:
    """Set what a request is about where its path does not say: the submitted job, the created user."""
    request.scope[_SUBJECT_KEY] = subject


class AuditLog:
    """`audit.log` in the home, readable only by the server's account; rotated to `audit.log.1` and so on."""

    def __init__(self, path: Path, max_bytes: int = 16 << 20, backups: int = 5) -> None:
        entries: queue.Queue[logging.LogRecord | None] = queue.Queue(_MAX_QUEUED)
        self._file = _AuditFile(path, max_bytes, backups, entries)
        self._file.setFormatter(_LineFormatter())
        self._queue = _AuditQueue(entries)
        self._writer = _AuditWriter(entries, self._file)
        self._writer.start()

    def record(self, request: Request, template: str, status: int) -> None:
        scope = request.scope
        client = scope.get("client")
        entry: _Entry = (
            time.time(),
            scope.get(IDENTITY_KEY),
            client[0] if client else "",
            scope["method"],
            template,
            scope.get("path_params", {}),
            scope.get("query_string", b""),
            scope.get(_SUBJECT_KEY),
            status,
        )
        self._queue.handle(logging.makeLogRecord({"entry": entry}))

    def close(self) -> None:
        """Write all queued entries and close the file."""
        self._writer.stop()
        with contextlib.suppress(OSError):  # the disk is full: already reported
            self._file.close()


class _AuditQueue(QueueHandler):
    """Drops entries when the queue is full."""

    _dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        self._dropped += 1
        if self._dropped % _WARN_EVERY == 1:
            log.warning("The audit log cannot keep up: %d entries dropped so far.", self._dropped)


class _AuditWriter(QueueListener):
    queue: queue.Queue[logging.LogRecord | None]

    def enqueue_sentinel(self) -> None:
        # Waits for space when the queue is full; the default would raise and leave entries unwritten.
        self.queue.put(None)


class _AuditFile(RotatingFileHandler):
    """Rotated file of mode 0600. Lines that are queued together are written together."""

    def __init__(
        self, path: Path, max_bytes: int, backups: int, entries: queue.Queue[logging.LogRecord | None]
    ) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=backups, encoding="utf-8")
        self._entries = entries
        self._size = path.stat().st_size

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802
        # The default costs three system calls per line and counts characters instead of bytes.
        line_bytes = len(self.format(record).encode()) + 1
        is_full = self._size > 0 and self._size + line_bytes > self.maxBytes
        self._size = line_bytes if is_full else self._size + line_bytes
        return is_full

    def flush(self) -> None:
        if self._entries.empty():
            super().flush()

    def _open(self) -> io.TextIOWrapper:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return io.TextIOWrapper(open(self.baseFilename, "ab", opener=private), encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        log.warning("Cannot write audit entries to %s: %s", self.baseFilename, sys.exc_info()[1])


class _LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = record.__dict__
        if "line" not in fields:  # called twice: for the size check and for the write
            fields["line"] = _line(fields["entry"])
        line: str = fields["line"]
        return line


def _line(entry: _Entry) -> str:
    at, identity, address, method, template, parameters, query, subject, status = entry

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        return "***" if name in _SECRET else str(parameters.get(name, ""))

    line: dict[str, object] = {
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "user": identity.username if identity is not None else None,
        "address": address,
        "method": method,
        "path": _PARAMETER.sub(fill, template),
        "status": status,
    }
    if operation := _OPERATION.search(query):
        line["operation"] = operation[1].decode().upper()
    if subject is not None:
        line["about"] = subject
    if identity is not None and identity.job_id is not None:
        line["byJob"] = identity.job_id
    elif identity is not None and identity.kind == "application":
        line["application"] = True
    return _encode(line).decode()
