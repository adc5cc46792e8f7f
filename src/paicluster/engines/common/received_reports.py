"""Reports received from tasks on other machines, stored in their attempt folders here.

What a task reports is untrusted: it is stored within limits, and nowhere else. Every call is idempotent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

from paicluster.engines.common import task_files, untrusted_files
from paicluster.engines.interface import AppendResult
from paiprotocol.errors import JOB_CONFLICT, Conflict, Unavailable
from pairuntime.local_files import log_times_format
from pairuntime.reports import placement, report_uploader, usage_file
from pairuntime.supervisor import attempt, claim, exit_record
from pairuntime.supervisor.log_segments import SegmentedLog

log = logging.getLogger(__name__)

T = TypeVar("T")

_WORK = "work"
_MAX_OFFSET = 1 << 52
# Every gap in a log starts a new segment file.
_MAX_SEGMENTS = 64


async def run_in_files(files: Executor, work: Callable[[], T]) -> T:
    """Run what stores a report in the thread that reads and writes the folders of attempts."""
    try:
        return await asyncio.get_running_loop().run_in_executor(files, work)
    except OSError as error:
        # Usually a full disk. The node sends the report again.
        reason = f"The server cannot store reports of tasks: {error.strerror or error}."
        log.warning("%s", reason)
        raise Unavailable(reason, hint="Check the disk of the server's home.") from None


class ReceivedReports:
    """Stores reports in attempt folders. Blocking; concurrent duplicates must come one after the other."""

    def __init__(self, log_limit: int, log_segment: int):
        """Sizes in bytes: of a stream's log, and of each file of it."""
        self._log_limit = log_limit
        self._log_segment = log_segment

    def check_running(self, path: Path) -> None:
        """Raise Conflict unless the attempt in this folder is claimed and has not ended."""
        owner = untrusted_files.read_claim(path)
        # An empty claim is what a crash of this machine left.
        is_buried = owner is None or (owner and "pid" not in owner)
        if is_buried or os.path.lexists(path / exit_record.NAME):
            raise Conflict("The task has ended, or has not started.", code=JOB_CONFLICT)

    def claim(self, path: Path, content: Mapping[str, Any]) -> None:
        owner = untrusted_files.read_json(path / claim.NAME)
        if owner is None and content.get("nonce"):
            write_report(path / placement.PLACEMENT, json.dumps(content.get("placement")))
            temporary = path / f"claim.{os.urandom(8).hex()}"
            temporary.write_text(json.dumps({"pid": 0, **content, "placement": None}))
            try:
                # Does not replace a tombstone that was written meanwhile.
                os.link(temporary, path / claim.NAME)
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
            owner = untrusted_files.read_json(path / claim.NAME)
        if not owner or not content.get("nonce") or owner.get("nonce") != content["nonce"]:
            raise Conflict("The task has started already, or was stopped.", code=JOB_CONFLICT)

    def append(self, path: Path, stream: str, at: int, after: int, data: bytes) -> AppendResult:
        self.check_running(path)
        if not after <= at <= _MAX_OFFSET:
            raise Conflict("The offsets are invalid.", code=JOB_CONFLICT)
        stop = untrusted_files.read_json(path / attempt.STOP)
        if stream == report_uploader.METRICS:
            return AppendResult(_append_metrics(path / _WORK / task_files.METRICS_FILE, at, data), stop)
        if stream == report_uploader.TIMES:
            return AppendResult(_write_times(path / log_times_format.NAME, at, data), stop)
        with self._log(path, stream) as received:
            if at > received.offset >= after:
                received.skip_to(at)
            if at <= received.offset:
                received.write(data[received.offset - at :])
        # From the disk: if it is full, not everything was written.
        return AppendResult(self._log(path, stream).offset, stop)

    def end(
        self, path: Path, record: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        """Store the exit record. Else the ends of the streams, which must reach ``sizes`` first."""
        if os.path.lexists(path / exit_record.NAME):
            return None
        self.check_running(path)
        logs = {stream: self._log(path, stream) for stream in report_uploader.STREAMS}
        ends = {stream: received.offset for stream, received in logs.items()}
        if any(ends[stream] < size for stream, size in sizes.items()):
            return ends
        for received in logs.values():
            received.force()
        fd = exit_record.reserve(str(path))
        try:
            exit_record.write(str(path), fd, dict(record))
        finally:
            os.close(fd)
        # The node deletes its copy after this response.
        exit_record.sync(str(path))
        return None

    def record_usage(self, path: Path, data: bytes) -> None:
        self.check_running(path)
        write_report(path / usage_file.NAME, data.decode(errors="replace"))

    def _log(self, path: Path, stream: str) -> _ReceivedLog:
        return _ReceivedLog(path, stream, self._log_limit, self._log_segment)


def write_report(path: Path, text: str) -> None:
    """Write a file atomically, closed to other accounts; the folder may belong to another one."""
    # No other account can have prepared a file under this random name.
    temporary = f"{path}.{os.urandom(8).hex()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "w") as f:
            f.write(text)
        Path(temporary).rename(path)
    except OSError:
        Path(temporary).unlink()
        raise


class _ReceivedLog(SegmentedLog):
    """A log that continues where its files end."""

    def __init__(self, path: Path, stream: str, limit: int, segment: int):
        super().__init__(str(path), stream, limit, segment)
        prefix = f"{stream}."
        ends = [name.removeprefix(prefix) for name in os.listdir(path) if name.startswith(prefix)]
        self._starts = sorted(int(end) for end in ends if end.isdecimal())
        if self._starts:
            self._size = self._last().stat().st_size
            self._offset = self._starts[-1] + self._size

    def _last(self) -> Path:
        return Path(f"{self._prefix}{self._starts[-1]}")

    def __enter__(self) -> _ReceivedLog:
        if self._starts and self._size < self._segment:
            self._fd = os.open(self._last(), os.O_WRONLY | os.O_APPEND)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def skip_to(self, at: int) -> None:
        """Mark the bytes up to the offset as lost."""
        self._drop(at - self._offset)
        while len(self._starts) >= _MAX_SEGMENTS:
            self._drop_oldest(keep=0)

    def force(self) -> None:
        """Sync to disk."""
        with self:
            self.sync()


def _write_times(file: Path, at: int, data: bytes) -> int:
    """Write a part of the index of a log's times; at its beginning instead of what is there."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        if not at:
            os.ftruncate(fd, 0)
        end = os.fstat(fd).st_size
        if at <= end and at + len(data) <= report_uploader.MAX_TIMES_BYTES:
            end = max(end, at + os.pwrite(fd, data, at))
        return end
    finally:
        os.close(fd)


def _append_metrics(file: Path, at: int, data: bytes) -> int:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        end = os.fstat(fd).st_size
        if at <= end and at + len(data) <= report_uploader.MAX_METRICS_BYTES:
            end += os.write(fd, data[end - at :])
        return end
    finally:
        os.close(fd)
