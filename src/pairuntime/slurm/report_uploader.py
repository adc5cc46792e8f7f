"""Brings what a task writes to the server, where no file system does: its claim, its logs, its end.

The process that Slurm started does that, and the supervisor is its child. What the supervisor writes stays
here until the server has it; a server that does not answer is asked again, for as long as Slurm lets us.
"""

import http.client
import json
import os
import signal
import sys
import time
from urllib.parse import urlsplit

from pairuntime.slurm import bootstrap, gang_launcher, placement, stale_folders
from pairuntime.supervisor import attempt as supervise
from pairuntime.supervisor import claim, exit_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

STREAMS = ("all", "stdout", "stderr")
# The figures a task keeps of its steps, from its working folder, and as many as the server reads.
FIGURES = "metrics"
_FIGURES_FILE = os.path.join("work", ".pai", "metrics.jsonl")
MOST_FIGURES = 32 << 20
LARGEST = 256 << 10

# By which the supervisor is told to end: a signal of Slurm's reaches everybody, and does not say whose it is.
TOLD = signal.SIGUSR2
_TIMEOUT_S = 10.0
# When Slurm ends us there is little time to ask who wanted that.
_HURRY_S = 2.0
_LOOK_S = 0.3
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 15.0
# The server is asked whether it wants the task to stop, though there is nothing to bring.
_QUIET_S = 10.0
# After its end a task waits so long for the server before its node is given back.
_RETRY_WINDOW_S = 24 * 3600.0
# The file with what went wrong, and how much of its end is told.
_WORDS = "words"
_MOST_WORDS = 4096
# The server closes connections that are quiet for a little longer.
_KEPT_S = 3.0

_server = None  # type: ReportClient | None


def run(told: "dict[str, Any]", root: "str") -> "int":
    """What a batch script or a step of srun does, once everything is here."""
    global _server  # noqa: PLW0603 - one process, one server
    _server = ReportClient(told, root)
    folder = os.path.join(root, told["folder"])
    try:
        # Who was submitted by an older server does not hold it yet.
        bootstrap.lock_folder(root)
        # What we complain of, which Slurm would keep if it had a place for it.
        os.dup2(os.open(os.path.join(root, _WORDS), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        if gang_launcher.COMPONENT in os.environ:
            return gang_launcher.run_task(folder)
        if not told["alone"]:
            # It ends when its tasks have: Slurm tells them itself.
            signal.signal(signal.SIGTERM, _nothing)
        return gang_launcher.run(folder)
    except Exception:  # noqa: BLE001 - it becomes words for people
        _complain()
        return 1
    finally:
        _server.leave()


def _nothing(signum: "int", frame: "object") -> "None":
    """A signal that is only not to end us."""


def _complain() -> "None":
    sys.excepthook(*sys.exc_info())
    sys.stderr.flush()


class ReportRejected(Exception):
    """The server wants nothing more of this attempt."""


class ReportClient:
    def __init__(self, told: "dict[str, Any]", root: "str") -> "None":
        self._root = root
        self._told = told
        self._gang = told["gang"]
        self._headers = bootstrap.headers(told["ticket"])
        self._connection = None  # type: http.client.HTTPConnection | None
        self._used = 0.0

    def put(self, path: "str", body: "bytes", timeout_s: "float" = _TIMEOUT_S) -> "dict[str, Any]":
        """One try. OSError and HTTPException: it may be tried again."""
        if time.monotonic() - self._used > _KEPT_S:
            self.hang_up()
        if self._connection is None:
            self._connection = bootstrap.connect(self._told, timeout_s)
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_s)
        way = urlsplit(self._told["url"]).path.rstrip("/") + "/api/v2/attempts/" + path
        done = False
        try:
            self._connection.request("PUT", way, body, self._headers)
            answer = self._connection.getresponse()
            text = answer.read()
            if answer.status == 409:
                raise ReportRejected(path)
            if answer.status != 200:
                raise http.client.HTTPException("status %d" % answer.status)
            found = dict(json.loads(text.decode()))
            done = True
            self._used = time.monotonic()
            return found
        except ValueError as e:  # something else than our server answered
            raise http.client.HTTPException(str(e))
        finally:
            if not done:
                self.hang_up()

    def hang_up(self) -> "None":
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def claim(self, folder: "str", attempt: "str") -> "bool":
        """Make the attempt ours, before anything of it begins. False: it is not for us, or we must leave."""
        with open(os.path.join(folder, placement.PLACE)) as f:
            where = json.loads(f.read())
        pid = os.getpid()
        said = {
            "attempt": attempt,
            "boot_id": claim.boot_id(),
            "pid": pid,
            "start_time": claim.start_time(pid),
            "claimed_ms": int(time.time() * 1000),
            # By which we are known again when the answer gets lost.
            "word": os.urandom(16).hex(),
            "place": where,
        }
        pause = _FIRST_PAUSE_S
        while signal.SIGTERM not in signal.sigpending():
            try:
                self.put(attempt + "/claim", json.dumps(said).encode())
                return True
            except ReportRejected:
                return False
            except (OSError, http.client.HTTPException):
                time.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        return False

    def leave(self) -> "None":
        """Say what went wrong, if anything did, and remove everything of ours from this node."""
        path = os.path.join(self._root, _WORDS)
        try:
            words = _contents(path, max(0, os.path.getsize(path) - _MOST_WORDS), _MOST_WORDS)
            if words:
                self.put(self._gang + "/diagnostics", words)
        except (OSError, http.client.HTTPException, ReportRejected):
            pass  # they are a help for people, and nothing depends on them
        try:
            stale_folders.remove(self._root)
        except OSError:
            pass  # whoever comes next tries again
        stale_folders.remove_abandoned(os.path.dirname(self._root))


def run_and_report(folder: "str", attempt: "str", run_it: "Callable[[], int]") -> "int":
    """Claim the attempt, have it run by a child, and bring away what it writes."""
    assert _server is not None
    # They are waited for; the child takes them again.
    heard = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    try:
        if not _server.claim(folder, attempt):
            return 3
        # Until the supervisor listens itself, these must not end it.
        for signum in (TOLD, signal.SIGTERM):
            signal.signal(signum, _nothing)
        _server.hang_up()
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
                status = run_it()
            except BaseException:
                _complain()
            finally:
                os._exit(status)
        return ReportUploader(_server, folder, attempt, pid).run()
    finally:
        _server.leave()


class ReportUploader:
    def __init__(self, server: "ReportClient", folder: "str", attempt: "str", child: "int") -> "None":
        self._server = server
        self._folder = folder
        self._attempt = attempt
        self._child = child
        self._status = None  # type: int | None
        # How much the server has of each.
        self._at = dict.fromkeys(STREAMS + (FIGURES,), 0)
        self._sent = time.monotonic()
        # Before the server is asked again that did not answer.
        self._pause = _FIRST_PAUSE_S
        # Slurm wants us to end, and whether the server was asked about that.
        self._told = False
        self._asked = False

    def run(self) -> "int":
        ended = None  # type: float | None
        while True:
            try:
                # In this order: what is there when the record is, is all there will be.
                over = self._reap() or os.path.exists(os.path.join(self._folder, exit_record.NAME))
                if over and ended is None:
                    ended = time.monotonic()
                self._check_signals()
                sent = self._send()
                if over and not sent and self._end():
                    break
                self._rest(0.0 if sent and (over or sent == LARGEST) else _LOOK_S)
            except ReportRejected:
                break
            except (OSError, http.client.HTTPException):
                if ended is not None and time.monotonic() - ended > _RETRY_WINDOW_S:
                    break
                self._rest(self._pause)
                self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)
        while not self._reap():
            self._check_signals()
            self._rest(_LOOK_S)
        return int(self._status or 0)

    def _rest(self, seconds: "float") -> "None":
        """Until something happens, at most so long."""
        ends = time.monotonic() + seconds
        while True:
            left = ends - time.monotonic()
            got = signal.sigtimedwait((signal.SIGTERM, signal.SIGCHLD), max(0.0, left))
            if got is None:
                return
            if got.si_signo == signal.SIGTERM:
                self._told = True
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
        if not self._told or self._status is not None:
            return
        if not self._asked:
            self._asked = True
            try:
                self._put("all", self._at["all"], b"", _HURRY_S)
            except (OSError, http.client.HTTPException, ReportRejected):
                pass  # then it is Slurm that ends it, as far as we know
        # Again and again, until it is over: the first one may have come before anybody listened.
        os.kill(self._child, TOLD)

    def _take_stop(self, wanted: "dict[str, Any] | None") -> "None":
        path = os.path.join(self._folder, supervise.STOP)
        if wanted is not None and not os.path.exists(path):
            placement.write(path, json.dumps(wanted))
            self._told = self._asked = True

    # -- bringing ------------------------------------------------------------------------------

    def _send(self) -> "int":
        """A piece of each stream that has grown; how large the largest was."""
        largest = 0
        for stream in STREAMS + (FIGURES,):
            at, data = self._piece(stream)
            if data:
                before = self._at[stream]
                self._put(stream, at, data)
                if self._at[stream] == before:
                    raise OSError("the server has no room")
                largest = max(largest, len(data))
        if not largest and time.monotonic() - self._sent > _QUIET_S:
            self._put("all", self._at["all"], b"")
        return largest

    def _put(self, stream: "str", at: "int", data: "bytes", timeout_s: "float" = _TIMEOUT_S) -> "None":
        """What stands at this offset; from where the server's ends until there, nothing is left."""
        path = "%s/logs/%s?at=%d&after=%d" % (self._attempt, stream, at, self._at[stream])
        answer = self._server.put(path, data, timeout_s)
        self._sent = time.monotonic()
        self._pause = _FIRST_PAUSE_S
        self._at[stream] = int(answer["end"])
        self._take_stop(answer.get("stop"))

    def _piece(self, stream: "str") -> "tuple[int, bytes]":
        """What stands where the server's ends, or next; and where that is."""
        at = self._at[stream]
        if stream == FIGURES:
            path = os.path.join(self._folder, _FIGURES_FILE)
            return at, _contents(path, at, min(LARGEST, MOST_FIGURES - at))
        prefix = stream + "."
        try:
            names = os.listdir(self._folder)
        except OSError:
            names = []  # the task has removed it; there is nothing to wait for
        starts = [name[len(prefix) :] for name in names if name.startswith(prefix)]
        for start in sorted(int(start) for start in starts if start.isdigit()):
            data = _contents(os.path.join(self._folder, prefix + str(start)), max(0, at - start), LARGEST)
            if data:
                return max(at, start), data
        return at, b""

    def _end(self) -> "bool":
        """Tell the end, if there is one to tell. False: the server lacks something that it had."""
        try:
            said = claim.read_file(os.path.join(self._folder, exit_record.NAME))
        except FileNotFoundError:
            return self._status is not None
        sizes = "&".join("%s=%d" % (stream, self._at[stream]) for stream in STREAMS)
        answer = self._server.put("%s/end?%s" % (self._attempt, sizes), said)
        for stream in STREAMS:
            self._at[stream] = int(answer["ends"][stream])
        return bool(answer["taken"])


def _contents(path: "str", at: "int", most: "int") -> "bytes":
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.pread(fd, most, at) if most > 0 else b""
    except OSError:
        return b""
    finally:
        os.close(fd)
