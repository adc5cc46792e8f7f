"""SSH endpoint: a listener of the server, opened when it is first asked for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from paicluster.api.context import ConnectionContext
from paicluster.auth.ssh_keys import SshKeys
from paicluster.ssh.authorization import JobAuthorization
from paiprotocol.errors import Unavailable

if TYPE_CHECKING:
    import asyncssh

    from paicluster.ssh.connection import SshConnections

log = logging.getLogger(__name__)

_BACKLOG = 128


class SshEndpoint:
    """The listener with its connections. Without asyncssh, or where the settings say so, there is none.

    ``port_file`` remembers the port, so that a restarted server listens there again: the configurations of
    clients contain it.
    """

    def __init__(
        self, connections: ConnectionContext, keys: SshKeys, host: str, port: int | None, port_file: Path
    ) -> None:
        self._context = connections
        self.keys = keys
        self._host = host
        self._port = port
        self._port_file = port_file
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._connections: SshConnections | None = None
        self._start = asyncio.Lock()
        self._resume: asyncio.Task[int | None] | None = None

    def resume(self) -> None:
        """Listen again, in the background, if the cluster's endpoint has been used, or its port is set."""
        if self._port or (self._port is not None and self._port_file.exists()):
            self._resume = asyncio.create_task(self._resume_quietly())

    async def _resume_quietly(self) -> int | None:
        try:
            return await self.port()
        except Unavailable as error:
            log.warning("%s", error)
            return None

    async def port(self) -> int | None:
        """Start to listen, unless it does, and return the port; None if this cluster has no endpoint."""
        if self._port is None:
            return None
        async with self._start:
            if self._acceptor is None and not await self._listen(self._port):
                return None
            assert self._acceptor is not None
            return self._acceptor.get_port()

    async def _listen(self, port: int) -> bool:
        try:
            # Half a second of imports: not on the event loop.
            connection = await asyncio.to_thread(_import_connection)
        except ImportError:
            return False
        listener = self._bind(port)
        context = self._context
        authorization = JobAuthorization(context.store, self.keys, context.engines.nodes)
        self._connections = connection(context, authorization)
        self._acceptor = await self._connections.listen(listener, self.keys.of_host().private)
        if not port:
            self._port_file.write_text(f"{self._acceptor.get_port()}\n")
        return True

    def _bind(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        wanted = [port] if port else [*self._last_port(), 0]
        failure: OSError | None = None
        for number in wanted:
            listener = socket.socket(family)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((self._host, number))
                listener.listen(_BACKLOG)
            except OSError as error:
                listener.close()
                failure = error
                continue
            listener.setblocking(False)
            return listener
        assert failure is not None
        raise Unavailable(
            f"The SSH endpoint cannot listen on port {port} of {self._host}: {failure.strerror}.",
            hint='Set another "ssh-port" in the section "listen" of cluster.yaml.',
        )

    def _last_port(self) -> list[int]:
        with contextlib.suppress(OSError, ValueError):
            return [int(self._port_file.read_text())]
        return []

    async def close(self) -> None:
        """Stop to listen, and end all connections: those of SSH do not outlive the server."""
        if self._resume is not None:
            self._resume.cancel()
        async with self._start:
            if self._acceptor is not None:
                self._acceptor.close()
                self._acceptor = None
            if self._connections is not None:
                self._connections.close()


def _import_connection() -> type[SshConnections]:
    from paicluster.ssh.connection import SshConnections

    return SshConnections
