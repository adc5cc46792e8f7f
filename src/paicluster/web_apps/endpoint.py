"""Listeners of web apps: one port of the server for each port of a task that a browser has open.

A port of its own is an origin of its own: a page of a job reaches neither the API nor another job.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from paicluster.api.context import AppTicket, ConnectionContext
from paicluster.api.v2.forward import open_stream
from paicluster.auth.tokens import Identity
from paicluster.services.admission import no_job
from paicluster.store import jobs
from paicluster.store.rows import JobRow
from paicluster.web_apps.grants import AppGrants
from paiprotocol.errors import TooManyRequests, Unavailable

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from paicluster.api.middleware.slow_clients import SlowClientReaper
    from paicluster.web_apps.proxy import Proxy

MAX_APPS = 256
"""Apps that are open at a time, each with a listener. A further one takes the place of one not in use."""
MAX_APPS_PER_USER = 32
MAX_CONNECTIONS = 256
"""HTTP connections of one app. A browser has six with a host; connections need no cookie, and use up the file
descriptors that the API needs, too."""

# An app without a connection: its tab was closed, or the browser sleeps.
_IDLE_TIMEOUT_S = 6 * 3600.0
_BACKLOG = 128
# A connection that the browser keeps open between two requests.
_KEEP_ALIVE_S = 30


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class AppKey:
    """A port of a task."""

    job_id: int
    role: str
    index: int
    port: int


@dataclass(slots=True)
class _App:
    opener: str
    grants: AppGrants
    proxy: Proxy
    server: asyncio.Server
    state: ServerState
    reaper: SlowClientReaper
    opened: float = field(default_factory=time.monotonic)

    @property
    def port(self) -> int:
        return int(self.server.sockets[0].getsockname()[1])

    @property
    def is_used(self) -> bool:
        return self.proxy.open_exchanges > 0

    def close(self) -> None:
        self.server.close()
        self.reaper.close()
        for connection in tuple(self.state.connections):
            connection.shutdown()


class WebApps:
    """The apps of one server. ``ports``: where they may listen, 0 for any free one.

    ``slow_client_s``: how long a connection may be without progress.
    """

    def __init__(
        self, connections: ConnectionContext, host: str, ports: range, tls: Tls | None, slow_client_s: float
    ) -> None:
        self._connections = connections
        self._host = host
        self._ports = ports
        self._tls = tls
        self._slow_client_s = slow_client_s
        self._apps: dict[AppKey, _App] = {}
        self._lock = asyncio.Lock()

    @property
    def scheme(self) -> str:
        return "https" if self._tls else "http"

    async def open(self, identity: Identity, row: JobRow, role: str, index: int, port: int) -> AppTicket:
        """A ticket with which a browser opens a port of a task, once; the caller has checked its user."""
        key = AppKey(row.id, role, index, port)
        connect = partial(_connect, self._connections, row.framework, key)
        # Whether something listens there is an error of this request, not a page of the app.
        (await connect(identity)).close()
        # Two requests for one app at a time would start it twice.
        async with self._lock:
            self._drop_idle()
            if key not in self._apps:
                self._make_room(identity.username)
                self._apps[key] = await self._start(identity.username, row.username, port, connect)
            app = self._apps[key]
        return AppTicket(self.scheme, app.port, app.grants.issue_ticket(identity))

    async def _start(
        self,
        opener: str,
        job_user: str,
        task_port: int,
        connect: Callable[[Identity], Awaitable[socket.socket]],
    ) -> _App:
        from paicluster.api.middleware.slow_clients import SlowClientReaper
        from paicluster.web_apps.proxy import Proxy

        async def is_permitted(identity: Identity) -> bool:
            return await self._connections.tokens.are_live(identity.holders_in_job_of(job_user))

        grants = AppGrants()
        proxy = Proxy(grants, task_port, connect, is_permitted)
        listener = self._bind()
        try:
            server, state = await self._serve(proxy, listener)
        except BaseException:
            listener.close()
            raise
        reaper = SlowClientReaper(state.connections, self._slow_client_s)
        return _App(opener, grants, proxy, server, state, reaper)

    async def _serve(self, proxy: Proxy, listener: socket.socket) -> tuple[Any, ServerState]:
        import uvicorn
        from uvicorn.server import ServerState

        from paicluster.api.middleware.connection_limits import ConnectionLimits
        from paicluster.api.middleware.slow_clients import LimitedHttpProtocol

        limits = ConnectionLimits(MAX_CONNECTIONS)
        config = uvicorn.Config(
            proxy,
            ws="none",
            lifespan="off",
            access_log=False,
            proxy_headers=False,
            log_config=None,
            date_header=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            ssl_certfile=self._tls.certificate if self._tls else None,
            ssl_keyfile=self._tls.key if self._tls else None,
        )
        config.load()
        state = ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: LimitedHttpProtocol(config=config, server_state=state, app_state={}, limits=limits),
            sock=listener,
            ssl=config.ssl,
            backlog=_BACKLOG,
        )
        return server, state

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        used = {app.port for app in self._apps.values()}
        # In any order: a port soon belongs to another app only where there are few.
        for port in random.sample(self._ports, len(self._ports)):
            listener = socket.socket(family)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                if port not in used:
                    listener.bind((self._host, port))
                    listener.setblocking(False)
                    return listener
            listener.close()
        raise Unavailable(
            "No port is free for another app.",
            hint='Close one, or set a larger range "app-ports" in the section "listen" of cluster.yaml.',
        )

    def _drop_idle(self) -> None:
        now = time.monotonic()
        for key, app in tuple(self._apps.items()):
            if not app.is_used and now - max(app.proxy.last_used, app.opened) > _IDLE_TIMEOUT_S:
                self._close(key)

    def _make_room(self, username: str) -> None:
        """Close the app that was not used for the longest time, where there are too many."""
        own = [key for key, app in self._apps.items() if app.opener == username]
        limits = [(own, MAX_APPS_PER_USER), (list(self._apps), MAX_APPS)]
        if self._ports.start:
            limits.append((list(self._apps), len(self._ports)))
        for keys, limit in limits:
            if len(keys) < limit:
                continue
            unused = [key for key in keys if key in self._apps and not self._apps[key].is_used]
            if not unused:
                raise TooManyRequests(
                    f"{limit} apps of jobs are open, which is the limit.",
                    limit=limit,
                    hint="Close the tab of one.",
                )
            self._close(min(unused, key=lambda key: self._apps[key].proxy.last_used))

    def _close(self, key: AppKey) -> None:
        self._apps.pop(key).close()

    def close(self) -> None:
        for key in tuple(self._apps):
            self._close(key)


async def _connect(
    connections: ConnectionContext, framework: str, key: AppKey, identity: Identity
) -> socket.socket:
    """A connection with the task of the job's attempt that runs now: an app outlives a retry of its job."""
    row = await connections.store.read(lambda conn: jobs.get_job_by_id(conn, key.job_id))
    # Ids of removed jobs may be given again.
    if row is None or row.framework != framework:
        raise no_job(framework)
    return await open_stream(connections, identity, row, key.role, key.index, key.port)
