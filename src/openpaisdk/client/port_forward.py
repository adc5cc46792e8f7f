"""Forwarded ports: a port of a task, reachable on loopback of this machine.

Each connection that is accepted here is a WebSocket of its own to the cluster, opened when it is needed: so
the forward outlives a restart of the server.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import threading
import time

from openpaisdk.client.models import FINAL_STATES
from paiprotocol.errors import ConnectionFailed, Forbidden, NotFound, PaiError, Unauthorized, Unavailable
from pairuntime.transport.relay import Relay, RelayLoop, Stream, WebSocketStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from openpaisdk.client.cluster_client import ClusterClient
    from openpaisdk.client.task_choice import TaskChoice

HOST = "127.0.0.1"

# For as long as a restart of the server takes: meanwhile the program that connected waits.
_RECONNECT_TIMEOUT_S = 60.0
_RECONNECT_INTERVAL_S = 0.5
# More connections than these are opened one after the other.
_MAX_OPENING = 32
_BACKLOG = 512
_NOT_RUNNING = "TaskNotRunningError"


class PortForward:
    """A port of a task on loopback, from the creation of this object until ``close``.

    ``with PortForward(cluster, TaskChoice("train"), 8888) as forward: open_page(forward.local_port)``

    Raises at once if the task is not running, or if the local port is taken. ``local``: 0 chooses a free
    port. ``on_problem`` is called, in another thread, for each connection that could not be opened; the
    others go on.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        task: TaskChoice,
        remote: int,
        *,
        local: int = 0,
        on_problem: Callable[[PaiError], None] | None = None,
    ):
        self._cluster = cluster.with_own_connection()
        self._task = task
        self._remote = remote
        self._on_problem = on_problem
        task.role, task.index = self._cluster.forwarded_task(task)
        self._listener = _listen(local)
        self.local_port: int = self._listener.getsockname()[1]
        self._opening = threading.BoundedSemaphore(_MAX_OPENING)
        self._is_closed = threading.Event()
        self._failure: PaiError | None = None
        self._loop = RelayLoop()
        self._loop.watch(self._listener, selectors.EVENT_READ, self._accept)
        self._thread = threading.Thread(target=self._run, name="port-forward", daemon=True)
        self._thread.start()

    def __str__(self) -> str:
        return f"{HOST}:{self.local_port} -> {self._task.role}-{self._task.index}:{self._remote}"

    def __enter__(self) -> PortForward:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end: True after ``close``, False after ``timeout_s``.

        Raises the error after which no connection can be opened any more: the job has finished, or access
        was denied.
        """
        ended = self._is_closed.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return ended

    def close(self) -> None:
        """End all connections and listen no longer."""
        self._is_closed.set()
        self._loop.call(lambda: None)
        self._thread.join()

    # -- in the thread of the loop -------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed.is_set():
            self._loop.step()
        self._listener.close()
        self._loop.close()

    def _accept(self, events: int) -> None:
        try:
            local, _ = self._listener.accept()
        except OSError as e:
            if e.errno in (errno.EMFILE, errno.ENFILE):
                self._report(PaiError("Too many open connections: a new one was not accepted."))
                time.sleep(_RECONNECT_INTERVAL_S)  # it stays in the queue
            return
        local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._open, args=(local,), daemon=True).start()

    def _start(self, local: socket.socket, remote: socket.socket, received: bytes) -> None:
        if self._is_closed.is_set():
            local.close()
            remote.close()
        else:
            far = WebSocketStream(remote, masks=True, received=received)
            Relay(self._loop, Stream(local), far, lambda: None)

    # -- in a thread of each new connection ----------------------------------------------------

    def _open(self, local: socket.socket) -> None:
        with self._opening:
            try:
                remote, received = self._connect()
            except PaiError as e:
                Stream(local).reset()
                if not self._is_closed.is_set():
                    self._on_failure(e)
                return
        self._loop.call(lambda: self._start(local, remote, received))

    def _connect(self) -> tuple[socket.socket, bytes]:
        """A connection to the port, and its first bytes; waits for a server that is not reachable."""
        deadline = time.monotonic() + _RECONNECT_TIMEOUT_S
        while True:
            cluster = self._cluster.with_own_connection()
            try:
                opened = cluster.open_port(self._task, self._remote)
            except (ConnectionFailed, Unavailable):
                if time.monotonic() > deadline or self._is_closed.wait(_RECONNECT_INTERVAL_S):
                    raise
                cluster.transport.rediscover()
            else:
                return opened
            finally:
                # Where the server is now, for the next connections.
                self._cluster.transport.endpoint = cluster.transport.endpoint

    def _on_failure(self, error: PaiError) -> None:
        if isinstance(error, NotFound | Forbidden | Unauthorized) or self._is_job_over(error):
            self._failure = error
            self._is_closed.set()
            self._loop.call(lambda: None)
        else:
            self._report(error)

    def _is_job_over(self, error: PaiError) -> bool:
        if error.code != _NOT_RUNNING:
            return False
        try:
            status = self._cluster.with_own_connection().job(self._task.job, self._task.user)
        except PaiError:
            return False
        return status.state in FINAL_STATES

    def _report(self, error: PaiError) -> None:
        if self._on_problem is not None:
            self._on_problem(error)


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as e:
        listener.close()
        if e.errno == errno.EADDRINUSE:
            raise PaiError(
                f"Port {port} of this machine is taken.", hint="Choose another one, as in 0:80 for any."
            ) from None
        if isinstance(e, PermissionError):
            raise PaiError(
                f"You may not listen on port {port} of this machine.", hint="Choose one above 1023."
            ) from None
        raise PaiError(f"Port {port} of this machine cannot be used: {e.strerror or e}.") from None
    return listener
