"""Audit log: one line of JSON for each request that changes something, and for each login.

A request only puts an entry into a queue; a thread writes the lines, so that a slow disk delays no request. A
line contains the route's path and the subject that the route set, never parts of a body or a header: no
secret gets in. Requests of strangers (without a valid token) that are refused are counted and summed up in at
most one short line per minute: no client that merely reaches the port can push older lines out of the log.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import queue
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request

from paicluster.api.routing.scope import IDENTITY_KEY
from paicluster.api.wire.clusters import AuditEntry

if TYPE_CHECKING:
    from paicluster.auth.tokens import Identity

log = logging.getLogger("paicluster.audit")

# Key of a request's scope.
_SUBJECT_KEY = "paicluster.subject"

# Path parameters that are credentials.
_SECRET = frozenset({"token", "ticket"})
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditEntry).decode

# How much of its end is read for a request.
MAX_READ_BYTES = 4 << 20

# WebHDFS has the operation in the query.
_OPERATION = re.compile(rb"(?:^|&)op=([A-Za-z]{1,40})(?:&|$)")

# Longest value of a field: clients choose names and paths, and the log keeps a fixed number of bytes.
_MAX_FIELD_CHARS = 200
# Refusals of strangers are written this often. Such a line has some 1.5 KB at most: it takes an attack of
# more than a month to fill the 96 MB of the log.
_REFUSAL_INTERVAL_S = 60.0
# In such a line: the most frequent requests, addresses and subjects, and how many are told apart.
_MAX_REFUSED_REQUESTS = 8
_MAX_REFUSED_NAMES = 5
_MAX_REFUSED_NAME_CHARS = 40
_MAX_DISTINCT = 1000

# Entries waiting for a slow disk, some 100 MB. Further ones are dropped, with a warning.
_MAX_QUEUED = 100_000
_WARN_EVERY = 1000

_Entry = tuple[float, "Identity | None", str, str, str, dict[str, object], bytes, str | None, int]


def set_subject(request: Request, subject: str) -> None:
    """Set what a request is about where its path does not say: the submitted job, the created user."""
    request.scope[_SUBJECT_KEY] = subject


class AuditLog:
    """`audit.log` in the home, readable only by the server's account; rotated to `audit.log.1` and so on."""

    def __init__(
        self,
        path: Path,
        max_bytes: int = 16 << 20,
        backups: int = 5,
        *,
        max_queued: int = _MAX_QUEUED,
        refusal_interval_s: float = _REFUSAL_INTERVAL_S,
    ) -> None:
        entries: queue.Queue[logging.LogRecord | None] = queue.Queue(max_queued)
        self._file = _AuditFile(path, max_bytes, backups, entries)
        self._file.setFormatter(_LineFormatter())
        self._queue = _AuditQueue(entries)
        self._writer = _AuditWriter(entries, self._file)
        self._writer.start()
        self._refusals = _Refusals(
            lambda line: self._queue.handle(logging.makeLogRecord({"line": line})), refusal_interval_s
        )

    def record(self, request: Request, template: str, status: int) -> None:
        scope = request.scope
        client = scope.get("client")
        address = client[0] if client else ""
        identity = scope.get(IDENTITY_KEY)
        if identity is None and status >= 400:
            self._refusals.count((scope["method"], template, status), address, scope.get(_SUBJECT_KEY))
            return
        entry: _Entry = (
            time.time(),
            identity,
            address,
            scope["method"],
            template,
            scope.get("path_params", {}),
            scope.get("query_string", b""),
            scope.get(_SUBJECT_KEY),
            status,
        )
        self._queue.handle(logging.makeLogRecord({"entry": entry}))

    def record_connection(self, identity: Identity, address: str, framework: str, task: str) -> None:
        """Record an SSH connection to a job."""
        parameters: dict[str, object] = {"framework": framework}
        entry: _Entry = (
            time.time(),
            identity,
            address,
            "SSH",
            "/{framework}",
            parameters,
            b"",
            task or None,
            200,
        )
        self._queue.handle(logging.makeLogRecord({"entry": entry}))

    def last_entries(self, limit: int, keyword: str = "") -> list[AuditEntry]:
        """Last entries that contain the keyword, newest first, as far as the end of the log has them."""
        lines = _last_lines(Path(self._file.baseFilename), MAX_READ_BYTES)
        wanted = keyword.lower().encode()
        entries: list[AuditEntry] = []
        for line in reversed(lines):
            if len(entries) >= limit:
                break
            if wanted in line.lower():
                # The last line may be written at this moment.
                with contextlib.suppress(msgspec.DecodeError):
                    entries.append(_decode(line))
        return entries

    def close(self) -> None:
        """Write all queued entries and close the file."""
        self._refusals.close()
        self._writer.stop()
        with contextlib.suppress(OSError):  # the disk is full: already reported
            self._file.close()


def _last_lines(path: Path, max_bytes: int) -> list[bytes]:
    """Whole lines at the end of a log; where it has just been rotated, of its predecessor, too."""
    data = b""
    for file in (path, path.with_name(f"{path.name}.1")):
        try:
            with file.open("rb") as log_file:
                size = log_file.seek(0, os.SEEK_END)
                start = max(0, size - (max_bytes - len(data)))
                log_file.seek(start)
                part = log_file.read(size - start)
        except OSError:
            break
        data = (part.partition(b"\n")[2] if start else part) + data
        if start:
            break
    return data.splitlines()


class _Refusals:
    """Counts refused requests of strangers; a timer writes the counts as one line."""

    def __init__(self, write: Callable[[str], object], interval_s: float) -> None:
        self._write = write
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._reset()

    def _reset(self) -> None:
        self._since = 0.0
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._addresses: Counter[str] = Counter()
        self._subjects: Counter[str] = Counter()

    def count(self, request: tuple[str, str, int], address: str, subject: str | None) -> None:
        with self._lock:
            if self._timer is None:
                self._since = time.time()
                self._timer = threading.Timer(self._interval_s, self._flush)
                self._timer.daemon = True
                self._timer.start()
            self._requests[request] += 1
            _count_name(self._addresses, address)
            if subject is not None:
                _count_name(self._subjects, subject)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            line = self._line() if self._requests else None
            self._timer = None
            self._reset()
        if line is not None:
            self._write(line)

    def _line(self) -> str:
        requests = [
            {"method": method, "path": path, "status": status, "count": count}
            for (method, path, status), count in self._requests.most_common(_MAX_REFUSED_REQUESTS)
        ]
        line = {
            "time": _iso(time.time()),
            "since": _iso(self._since),
            "user": None,
            "refused": self._requests.total(),
            "requests": requests,
            "addresses": dict(self._addresses.most_common(_MAX_REFUSED_NAMES)),
            "about": dict(self._subjects.most_common(_MAX_REFUSED_NAMES)),
        }
        return _encode(line).decode()


def _count_name(counts: Counter[str], name: str) -> None:
    """Count a name that a client chose: a bounded number of them, each of bounded length."""
    name = _cut(name, _MAX_REFUSED_NAME_CHARS)
    if name in counts or len(counts) < _MAX_DISTINCT:
        counts[name] += 1


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
        "time": _iso(at),
        "user": _cut(identity.username) if identity is not None else None,
        "address": address,
        "method": method,
        "path": _cut(_PARAMETER.sub(fill, template)),
        "status": status,
    }
    if operation := _OPERATION.search(query):
        line["operation"] = operation[1].decode().upper()
    if subject is not None:
        line["about"] = _cut(subject)
    if identity is not None and identity.job_id is not None:
        line["byJob"] = identity.job_id
    elif identity is not None and identity.kind == "application":
        line["application"] = True
    return _encode(line).decode()


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cut(text: str, max_chars: int = _MAX_FIELD_CHARS) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
