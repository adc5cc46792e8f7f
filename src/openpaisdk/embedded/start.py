"""Start of the embedded cluster. A lock lets one of several concurrent commands start it; all use it."""

from __future__ import annotations

import os
import sys
import threading
import time

from openpaisdk.config.paths import display_path
from openpaisdk.config.task_cluster import OWN_ALIAS, is_inside_task
from openpaisdk.embedded.handshake import Handshake, is_alive, is_listening, read_handshake
from openpaisdk.embedded.home import make_home
from openpaisdk.embedded.versions import is_older
from paiprotocol._version import __version__
from paiprotocol.errors import ConfigError, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

LOG = "server.log"
ERROR_PREFIX = "paicluster: "
MAX_LOG_BYTES = 4 << 20
START_LOCK = "start.lock"
SERVER_LOCK = "server.lock"
START_TIMEOUT_S = 60.0
EXIT_TIMEOUT_S = 15.0
POLL_INTERVAL_S = 0.005
IDLE_TIMEOUT_S = 3600


def start(*, notify: Callable[[str], None] | None = None, failed: str = "", port: int = 0) -> Handshake:
    """Start the cluster unless it is running; replace a server that is older than this command line."""
    check_platform()
    check_not_in_task()
    home = make_home()
    with _StartLock(home):
        handshake = read_handshake(home)
        if handshake and failed == handshake.url and not is_listening(handshake):
            _wait_until_exited(handshake, EXIT_TIMEOUT_S)
            handshake = read_handshake(home)
        if handshake and is_alive(handshake):
            if not is_older(handshake.version, __version__):
                return handshake
            from openpaisdk.embedded.upgrade import stop_for_upgrade

            if notify:
                notify(
                    f"Upgrading the embedded cluster from {handshake.version} to {__version__}; "
                    "jobs continue."
                )
            stop_for_upgrade(home, handshake)
        elif _wait_until_unlocked(home):
            handshake = read_handshake(home)
            if handshake and is_alive(handshake):
                return handshake
        elif notify and not os.path.exists(os.path.join(home, "cluster.db")):
            notify("Starting the embedded cluster for the first time.")
        return _spawn(home, port)


def check_platform() -> None:
    """The embedded cluster needs Linux."""
    if not sys.platform.startswith("linux"):
        system = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        raise Unavailable(
            f"The embedded cluster runs on Linux only, not on {system}.",
            hint="Use a remote cluster: pai add-cluster -a NAME --pai-uri http://HOST --user USER",
        )


def check_not_in_task() -> None:
    """A cluster inside a task would end with it, and its jobs would use resources of the task."""
    if is_inside_task():
        raise Unavailable(
            "The embedded cluster is not started inside a task.",
            hint=f"Without -a, commands use the task's own cluster, which is called {OWN_ALIAS}.",
        )


def _spawn(home: str, port: int) -> Handshake:
    import subprocess

    log = os.path.join(home, LOG)
    try:
        if os.path.exists(log) and os.path.getsize(log) > MAX_LOG_BYTES:
            os.replace(log, log + ".1")
        log_offset = os.path.getsize(log) if os.path.exists(log) else 0
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as e:
        raise ConfigError(f"{display_path(log)} cannot be written: {e.strerror}.") from None
    command = [sys.executable, "-P", "-m", "paicluster", "serve", "--home", home, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--embedded", "--idle-exit", str(IDLE_TIMEOUT_S)]
    process = None
    try:
        with _DeferredInterrupt():
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=fd,
                    stderr=fd,
                    cwd=home,
                    close_fds=True,
                    start_new_session=True,
                )
            except OSError as e:
                raise Unavailable(
                    f"The cluster cannot be started with {sys.executable}: {e.strerror}."
                ) from None
        return _wait_until_ready(process, home, log, log_offset)
    except KeyboardInterrupt:
        # After Ctrl-C the user does not expect a server to start in the background.
        if process is not None:
            process.terminate()
        raise
    finally:
        os.close(fd)


class _DeferredInterrupt:
    """Raises KeyboardInterrupt after the block for a Ctrl-C within it.

    ``subprocess.Popen`` runs for a moment after its process has started: an exception there would lose the
    only reference to the process.
    """

    __slots__ = ("_handler", "_is_pending")

    def __enter__(self) -> None:
        import signal

        self._is_pending = False
        self._handler = signal.getsignal(signal.SIGINT)
        # Other handlers raise nothing, and outside the main thread none can be set.
        if (
            self._handler is signal.default_int_handler
            and threading.current_thread() is threading.main_thread()
        ):
            signal.signal(signal.SIGINT, self._defer)
        else:
            self._handler = None

    def _defer(self, *_: object) -> None:
        self._is_pending = True

    def __exit__(self, *_: object) -> None:
        import signal

        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self._is_pending:
            raise KeyboardInterrupt


def _wait_until_ready(process: subprocess.Popen[bytes], home: str, log: str, log_offset: int) -> Handshake:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        handshake = read_handshake(home)
        if handshake and handshake.pid == process.pid and is_alive(handshake):
            process.returncode = 0  # it outlives this process and is not waited for
            return handshake
        if process.poll() is not None:
            # The server of a command that was killed may have locked the home first: it is used, too.
            if _wait_until_unlocked(home) and (handshake := read_handshake(home)) and is_alive(handshake):
                return handshake
            message, hint = _startup_error(log, log_offset)
            raise Unavailable(
                f"The embedded cluster could not start: {message}",
                hint=hint or f"Its log is {display_path(log)}",
            )
        time.sleep(POLL_INTERVAL_S)
    process.terminate()
    raise Unavailable(
        f"The embedded cluster was not ready within {START_TIMEOUT_S:.0f} seconds.",
        hint=f"Its log is {display_path(log)}",
    )


def _wait_until_exited(handshake: Handshake, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while is_alive(handshake) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)


def _wait_until_unlocked(home: str) -> bool:
    """Wait for a server that locks the home without a handshake (starting or exiting), if there is one."""
    waited = False
    if sys.platform != "win32":
        import fcntl

        try:
            fd = os.open(os.path.join(home, SERVER_LOCK), os.O_RDWR)
        except OSError:
            return False
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                waited = True
            handshake = read_handshake(home)
            if handshake and is_alive(handshake):
                break
            time.sleep(POLL_INTERVAL_S)
        os.close(fd)
    return waited


def _startup_error(log: str, log_offset: int) -> tuple[str, str]:
    """Error message and hint that the server logged before it exited."""
    try:
        with open(log, "rb") as f:
            f.seek(log_offset)
            lines = [
                line.strip() for line in f.read().decode("utf-8", "replace").splitlines() if line.strip()
            ]
    except OSError:
        lines = []
    for i in range(len(lines) - 1, -1, -1):
        if lines[i].startswith(ERROR_PREFIX):
            return lines[i].removeprefix(ERROR_PREFIX), " ".join(lines[i + 1 :])
    if lines:
        return lines[-1], ""
    if _is_full(os.path.dirname(log)):
        return "there is no space left on its disk.", ""
    return "it exited without an error message.", ""


def _is_full(folder: str) -> bool:
    """Whether the disk is full: then the server could not write its error message either."""
    free = 1 << 30
    if sys.platform != "win32":
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
    return free < 1 << 16


class _StartLock:
    """Lock of the command that starts the cluster; other commands wait, and then find it running."""

    def __init__(self, home: str):
        self.path = os.path.join(home, START_LOCK)
        self.fd = -1

    def __enter__(self) -> None:
        try:
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as e:
            raise ConfigError(f"{display_path(self.path)} cannot be written: {e.strerror}.") from None
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(self.fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        if self.fd >= 0:
            os.close(self.fd)
