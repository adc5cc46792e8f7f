"""Uploader of a task's claim, logs and exit record, for nodes without a shared file system.

The process that was started on the node is the uploader; the supervisor is its child. What the supervisor
writes stays on the node until the server has it; uploads to a server that does not respond are retried for as
long as the job may run.
"""

import http.client
import json
import os
import signal
import sys
import time

from pairuntime.local_files import log_times_format
from pairuntime.reports import placement, usage_file
from pairuntime.reports.report_client import BACKOFF_MAX_S, BACKOFF_MIN_S, REQUEST_TIMEOUT_S, ReportRejected
from pairuntime.supervisor import attempt as supervise
from pairuntime.supervisor import claim, exit_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from pairuntime.reports.report_client import ReportClient

STREAMS = ("all", "stdout", "stderr")
# The stream of a task's metrics, their file in the working folder, and how much the server reads.
METRICS = "metrics"
_METRICS_FILE = os.path.join("work", ".pai", "metrics.jsonl")
MAX_METRICS_BYTES = 32 << 20
# The stream of the index of the log's times. At offset 0 it replaces what the server has.
TIMES = "times"
MAX_TIMES_BYTES = (1 + log_times_format.MAX_ENTRIES) * log_times_format.ENTRY_BYTES
MAX_CHUNK_BYTES = 256 << 10

# Tells the supervisor to stop. The own signal of an outside scheduler may reach all processes, and does not
# say who sent it.
STOP_SIGNAL = signal.SIGUSR2
# When the job is being ended there is little time to ask the server whether it requested that.
_URGENT_TIMEOUT_S = 2.0
_POLL_INTERVAL_S = 0.3
# After a server refused the times of a log.
_REFUSED_TIMES_INTERVAL_S = 60.0
# Interval of empty uploads, whose response says whether the task is to stop.
_HEARTBEAT_INTERVAL_S = 10.0
# How long uploads are retried after the task ended, before the node is released.
_RETRY_WINDOW_S = 24 * 3600.0


def print_exception() -> "None":
    sys.excepthook(*sys.exc_info())
    sys.stderr.flush()


def ignore_signal(signum: "int", frame: "object") -> "None":
    """Handler of a signal that must not end the process."""


def run_and_report(
    client: "ReportClient",
    folder: "str",
    attempt: "str",
    supervise_attempt: "Callable[[], int]",
    after_fork: "Callable[[], None]" = lambda: None,
    ends_when_rejected: "bool" = False,
) -> "int":
    """Claim the attempt, supervise it in a child process, and upload what it writes.

    ``after_fork``: called in this process when the child exists. ``ends_when_rejected``: kill the supervisor
    if the server accepts nothing more of the attempt: it has given it up, and may have started another one.
    """
    # Waited for with sigtimedwait; the child unblocks them.
    waited_for = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    if not client.claim(folder, attempt):
        return 3
    # These must not end the supervisor before it has installed its own handlers.
    for signum in (STOP_SIGNAL, signal.SIGTERM):
        signal.signal(signum, ignore_signal)
    client.disconnect()
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, waited_for)
            status = supervise_attempt()
        except BaseException:
            print_exception()
        finally:
            os._exit(status)
    after_fork()
    return ReportUploader(client, folder, attempt, pid, ends_when_rejected).run()


class ReportUploader:
    """Uploads logs, metrics and exit record of one attempt, and forwards stop requests to its supervisor."""

    def __init__(
        self,
        client: "ReportClient",
        folder: "str",
        attempt: "str",
        child: "int",
        ends_when_rejected: "bool" = False,
    ) -> "None":
        self._client = client
        self._folder = folder
        self._attempt = attempt
        self._child = child
        self._ends_when_rejected = ends_when_rejected
        self._status = None  # type: int | None
        # How many bytes of each stream the server has.
        self._uploaded = dict.fromkeys(STREAMS + (METRICS, TIMES), 0)
        # The file of the index that was uploaded: a thinned one is another file.
        self._times_inode = 0
        self._times_due = 0.0
        self._last_upload = time.monotonic()
        self._sent_usage = b""
        # Back-off after a failed request.
        self._backoff_s = BACKOFF_MIN_S
        # Whether Slurm is ending the job, and whether the server was asked if it requested that.
        self._stopping = False
        self._checked_stop = False

    def run(self) -> "int":
        ended = None  # type: float | None
        while True:
            try:
                # In this order: once the exit record exists, the logs are complete.
                is_over = self._reap() or os.path.exists(os.path.join(self._folder, exit_record.NAME))
                if is_over and ended is None:
                    ended = time.monotonic()
                self._check_signals()
                sent = self._send()
                if is_over and not sent and self._end():
                    break
                self._wait(0.0 if sent and (is_over or sent == MAX_CHUNK_BYTES) else _POLL_INTERVAL_S)
            except ReportRejected:
                if self._ends_when_rejected and not self._reap():
                    os.kill(self._child, signal.SIGKILL)
                break
            except (OSError, http.client.HTTPException):
                if ended is not None and time.monotonic() - ended > _RETRY_WINDOW_S:
                    break
                self._wait(self._backoff_s)
                self._backoff_s = min(self._backoff_s * 2, BACKOFF_MAX_S)
        while not self._reap():
            self._check_signals()
            self._wait(_POLL_INTERVAL_S)
        return int(self._status or 0)

    def _wait(self, seconds: "float") -> "None":
        """Wait for a signal or the end of the child, at most this long."""
        deadline = time.monotonic() + seconds
        while True:
            remaining_s = deadline - time.monotonic()
            got = signal.sigtimedwait((signal.SIGTERM, signal.SIGCHLD), max(0.0, remaining_s))
            if got is None:
                return
            if got.si_signo == signal.SIGTERM:
                self._stopping = True
                return
            if self._reap():
                return

    def _reap(self) -> "bool":
        if self._status is None:
            pid, status = os.waitpid(self._child, os.WNOHANG)
            if pid:
                self._status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        return self._status is not None

    # -- stopping ------------------------------------------------------------------------------

    def _check_signals(self) -> "None":
        if not self._stopping or self._status is not None:
            return
        if not self._checked_stop:
            self._checked_stop = True
            try:
                self._put("all", self._uploaded["all"], b"", _URGENT_TIMEOUT_S)
            except (OSError, http.client.HTTPException, ReportRejected):
                pass  # then Slurm is taken as the cause
        # Repeated until the attempt ended: the first signal may have come before the handler was installed.
        os.kill(self._child, STOP_SIGNAL)

    def _apply_stop(self, request: "dict[str, Any] | None") -> "None":
        path = os.path.join(self._folder, supervise.STOP)
        if request is not None and not os.path.exists(path):
            placement.write(path, json.dumps(request))
            self._stopping = self._checked_stop = True

    # -- uploading -----------------------------------------------------------------------------

    def _send(self) -> "int":
        """Upload the next chunk of each stream that has grown; returns the size of the largest."""
        largest = 0
        for stream in STREAMS + (METRICS,):
            at, data = self._next_chunk(stream)
            if data:
                if stream != METRICS:
                    self._send_times()
                before = self._uploaded[stream]
                self._put(stream, at, data)
                if self._uploaded[stream] == before:
                    raise OSError("the server's disk is full")
                largest = max(largest, len(data))
        if not largest and time.monotonic() - self._last_upload > _HEARTBEAT_INTERVAL_S:
            self._put("all", self._uploaded["all"], b"")
        self._send_usage()
        return largest

    def _send_times(self) -> "None":
        """Upload what is new in the index, which has the times of all output that was read until now."""
        path = os.path.join(self._folder, log_times_format.NAME)
        while time.monotonic() >= self._times_due:
            try:
                inode = os.stat(path).st_ino
            except OSError:
                return
            if inode != self._times_inode:
                self._times_inode, self._uploaded[TIMES] = inode, 0
            at = self._uploaded[TIMES]
            data = read_at(path, at, min(MAX_CHUNK_BYTES, MAX_TIMES_BYTES - at))
            if not data:
                return
            try:
                self._put(TIMES, at, data)
            except http.client.HTTPException:
                # The output matters, and its upload tells whether the server works. Older ones have no index.
                self._times_due = time.monotonic() + _REFUSED_TIMES_INTERVAL_S
                return
            if self._uploaded[TIMES] <= at:
                return  # the server's disk is full

    def _send_usage(self) -> "None":
        usage = read_at(os.path.join(self._folder, usage_file.NAME), 0, usage_file.SIZE_BYTES)
        if usage == self._sent_usage or self._status is not None:
            return
        self._sent_usage = usage
        try:
            self._client.put(self._attempt + "/usage", usage)
        except http.client.HTTPException:
            pass  # nothing depends on it, and the next one comes soon

    def _put(self, stream: "str", at: "int", data: "bytes", timeout_s: "float" = REQUEST_TIMEOUT_S) -> "None":
        """Upload the bytes at this offset. Those between the server's end and the offset were dropped."""
        path = "%s/logs/%s?at=%d&after=%d" % (self._attempt, stream, at, self._uploaded[stream])
        response = self._client.put(path, data, timeout_s)
        self._last_upload = time.monotonic()
        self._backoff_s = BACKOFF_MIN_S
        self._uploaded[stream] = int(response["end"])
        self._apply_stop(response.get("stop"))

    def _next_chunk(self, stream: "str") -> "tuple[int, bytes]":
        """The bytes at the server's end, or at the next offset that is kept; and that offset."""
        at = self._uploaded[stream]
        if stream == METRICS:
            path = os.path.join(self._folder, _METRICS_FILE)
            return at, read_at(path, at, min(MAX_CHUNK_BYTES, MAX_METRICS_BYTES - at))
        prefix = stream + "."
        try:
            names = os.listdir(self._folder)
        except OSError:
            names = []  # the task has removed it; there is nothing to upload
        starts = [name[len(prefix) :] for name in names if name.startswith(prefix)]
        for start in sorted(int(start) for start in starts if start.isdigit()):
            data = read_at(
                os.path.join(self._folder, prefix + str(start)), max(0, at - start), MAX_CHUNK_BYTES
            )
            if data:
                return max(at, start), data
        return at, b""

    def _end(self) -> "bool":
        """Upload the exit record, if there is one. False: the server has lost log data that it had."""
        try:
            record = claim.read_file(os.path.join(self._folder, exit_record.NAME))
        except FileNotFoundError:
            return self._status is not None
        sizes = "&".join("%s=%d" % (stream, self._uploaded[stream]) for stream in STREAMS)
        response = self._client.put("%s/end?%s" % (self._attempt, sizes), record)
        for stream in STREAMS:
            self._uploaded[stream] = int(response["ends"][stream])
        return bool(response["taken"])


def read_at(path: "str", at: "int", limit: "int") -> "bytes":
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.pread(fd, limit, at) if limit > 0 else b""
    except OSError:
        return b""
    finally:
        os.close(fd)
