"""One SSH connection: authenticated by key, bound to one job, and closed with it, or with its user."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable

import asyncssh
from sqlalchemy import Connection

from paicluster.api.context import ConnectionContext
from paicluster.api.v2.exec import host_command
from paicluster.api.v2.follow import job_and_roles, selected_task
from paicluster.api.v2.forward import open_stream
from paicluster.auth.tokens import Identity
from paicluster.engines.common.session_client import SessionClient, SessionListener
from paicluster.ssh.authorization import JobAuthorization, OpenedJob, Target
from paicluster.ssh.channels import PortChannel, TaskChannel
from paicluster.store import jobs
from paicluster.store.rows import JobRow
from paiprotocol.errors import InvalidParameters, NotFound, PaiError, Unauthorized

# Keys that a client may offer, as in sshd: each costs a query.
MAX_KEYS_OFFERED = 6
# Connections of all clients. Each costs memory for its buffers; its commands are bounded as sessions.
MAX_CONNECTIONS = 512
# Of these, clients that have not authenticated: they hold the connection for _LOGIN_TIMEOUT_S at most.
MAX_UNAUTHENTICATED = 64
# Channels that are open at a time in one connection: each is a session, which are bounded for a user, too.
MAX_CHANNELS = 64

# The task's own machine, in the words of clients.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LOGIN_TIMEOUT_S = 30
# Those that processors compute themselves.
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
# A client whose machine has vanished is noticed after two minutes.
_KEEPALIVE_INTERVAL_S = 30
_KEEPALIVE_COUNT = 4
_TOKEN_CHECK_S = 60.0


class SshConnections:
    """The open connections of an endpoint, and what they share."""

    def __init__(self, connections: ConnectionContext, authorization: JobAuthorization) -> None:
        self.connections = connections
        self.authorization = authorization
        # In the order in which they were opened.
        self.open: dict[SshConnection, None] = {}

    async def listen(self, listener: socket.socket, host_key: str) -> asyncssh.SSHAcceptor:
        # Below this level it logs the commands of clients, which may contain secrets.
        asyncssh.set_log_level("ERROR")
        return await asyncssh.listen(
            sock=listener,
            config=None,
            server_factory=lambda: SshConnection(self),
            server_host_keys=[asyncssh.import_private_key(host_key)],
            server_version="paicluster",
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            gss_host=None,
            # Both would make sockets in the server, outside the task.
            agent_forwarding=False,
            x11_forwarding=False,
            encoding=None,
            line_editor=False,
            compression_algs=None,
            encryption_algs=_CIPHERS,
            login_timeout=_LOGIN_TIMEOUT_S,
            keepalive_interval=_KEEPALIVE_INTERVAL_S,
            keepalive_count_max=_KEEPALIVE_COUNT,
        )

    def add(self, newest: SshConnection) -> None:
        """Count a new connection. Where there are too many, the oldest of the address with the most clients
        that have not authenticated is closed: a newcomer is refused only where none of these is left.
        """
        self.open[newest] = None
        waiting = [connection for connection in self.open if connection.job is None]
        if len(self.open) <= MAX_CONNECTIONS and len(waiting) <= MAX_UNAUTHENTICATED:
            return
        of_address: dict[str, list[SshConnection]] = {}
        for connection in waiting:
            if connection is not newest:
                of_address.setdefault(connection.address, []).append(connection)
        most = max(of_address.values(), key=len, default=[newest])
        # Those that have offered a key are about to authenticate.
        (next((one for one in most if one.is_silent), most[0])).abort()

    def close(self) -> None:
        for connection in list(self.open):
            connection.close()


class SshConnection(asyncssh.SSHServer):
    """A connection. ``job``: what it is bound to, once the client has proved that it has the key."""

    def __init__(self, all_connections: SshConnections) -> None:
        self._all = all_connections
        self._connection: asyncssh.SSHServerConnection
        self._keys_offered = 0
        self._found: OpenedJob | None = None
        self._target = Target("", "")
        self.job: JobRow | None = None
        self._identity: Identity | None = None
        # What it ends with: see `Tokens.is_live`.
        self._holders: tuple[str, ...] = ()
        self._watch: asyncio.Task[None] | None = None
        self._channels = 0

    # -- life ----------------------------------------------------------------------------------

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.open.pop(self, None)
        if self._watch is not None:
            self._watch.cancel()

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._all.open.pop(self, None)
        self._connection.abort()

    @property
    def is_silent(self) -> bool:
        """Whether the client has not offered a key yet."""
        return not self._keys_offered

    # -- authentication ------------------------------------------------------------------------

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        self._keys_offered += 1
        if self._keys_offered > 2 * MAX_KEYS_OFFERED:  # each is offered, then proved
            self._connection.disconnect(
                asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "Too many keys: use IdentitiesOnly."
            )
            return False
        public = key.export_public_key("openssh").decode()
        self._target = Target.parse(username)
        job = await self._all.authorization.find_job(self._target, " ".join(public.split()[:2]), self.address)
        if job is None:
            return False
        tokens = self._all.connections.tokens
        try:
            # As the job itself: what is opened here ends with this attempt of the job, and with its user.
            self._identity = await tokens.verify(tokens.of_job(job.row))
        except Unauthorized:  # it has ended just now
            return False
        self._found = job
        return True

    def auth_completed(self) -> None:
        """The client has proved that it has the private key that was validated last."""
        assert self._found is not None and self._identity is not None
        row = self.job = self._found.row
        # Tasks of a job reach each other while its user is disabled.
        holders = self._identity.holders_in_job_of(row.username)
        self._holders = (self._identity.token_id,) if self._found.is_for_task else holders
        self._watch = asyncio.create_task(self._close_with_holders())
        if self._all.connections.audit is not None:
            self._all.connections.audit.record_connection(
                self._identity, self.address, row.framework, self._target.task
            )

    @property
    def address(self) -> str:
        return str((self._connection.get_extra_info("peername") or ("",))[0])

    async def _close_with_holders(self) -> None:
        tokens = self._all.connections.tokens
        changed = asyncio.Event()
        with tokens.watch_all(self._holders, changed.set):
            while await tokens.are_live(self._holders):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TOKEN_CHECK_S):
                        await changed.wait()
                changed.clear()
        self.close()

    # -- channels ------------------------------------------------------------------------------

    def session_requested(self) -> TaskChannel:
        self._count_channel()
        return TaskChannel(self.open_session, self._on_channel_lost)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[PortChannel]:
        if dest_host.lower() not in _LOOPBACK:
            # A job must not become a way into the network of the cluster.
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED,
                f"Only ports of the task itself are forwarded: use localhost, not {dest_host}",
            )
        self._count_channel()
        return self._open_port(dest_port)

    async def _open_port(self, port: int) -> PortChannel:
        assert self.job is not None and self._identity is not None
        try:
            row, role, index = await self._task()
            # Forwarders are shared with the users of the job's token, so they end when the user is disabled.
            tokens = self._all.connections.tokens
            (await tokens.verify(tokens.of_job(row))).check_enabled("no port of a job is forwarded")
            stream = await open_stream(self._all.connections, self._identity, row, role, index, port)
            channel = await PortChannel.connect(stream, self._on_channel_lost)
        except (PaiError, OSError) as error:
            self._on_channel_lost()
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None
        if self not in self._all.open:
            # The client has gone meanwhile, and nothing else would close the connection with the port.
            channel.connection_lost(None)
        return channel

    def _count_channel(self) -> None:
        if self._channels >= MAX_CHANNELS:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_RESOURCE_SHORTAGE, f"A connection has at most {MAX_CHANNELS} channels."
            )
        self._channels += 1

    def _on_channel_lost(self) -> None:
        self._channels -= 1

    async def open_session(
        self, listener: SessionListener, has_terminal: bool, named_task: str
    ) -> SessionClient:
        """Start a session in the task that the user name means, or else the one that the client names."""
        connections = self._all.connections
        assert self._identity is not None
        row, role, index = await self._task(named_task)
        connections.sessions.check_limits(self._identity.username)
        command = await host_command(connections, row, role, index, terminal=has_terminal)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await connections.sessions.start_host(self._identity, command, theirs, self._holders)
            loop = asyncio.get_running_loop()
            _, session = await loop.create_connection(lambda: SessionClient(listener), sock=ours)
        except OSError as error:
            ours.close()
            raise PaiError(f"The session could not be started: {error.strerror or error}.") from error
        return session

    async def _task(self, named_task: str = "") -> tuple[JobRow, str, int]:
        """The job as it is now, with role and index of the task that the user name means.

        ``named_task``: if the user name means none.
        """
        assert self.job is not None
        framework, read = self.job.framework, self._all.connections.store.read
        row, roles = await read(lambda conn: job_and_roles(conn, framework))
        if task := self._target.task or named_task:
            return row, *_task_of(row, roles, task)
        return row, *await read(lambda conn: _first_running(conn, row, roles))


def _first_running(conn: Connection, row: JobRow, roles: dict[str, int]) -> tuple[str, int]:
    """Role and index of the first task that runs; of the first one, if none does."""
    for task in jobs.tasks_of(conn, row.id, row.attempt):
        if task.launched_ms is not None and not task.ended:
            return task.role, task.task_index
    return next(iter(roles)), 0


def _task_of(row: JobRow, roles: dict[str, int], task: str) -> tuple[str, int]:
    """Role and index of a task, from the user name of a client, such as ``worker-0``."""
    role, _, index = task.rpartition("-")
    if not (role and index.isascii() and index.isdigit()):
        raise NotFound(
            f"{task!r} is no task of job {row.name}: use root for the first one, or a user name such as "
            f"{next(iter(roles))}-0."
        )
    try:
        return selected_task(row, roles, role, index)
    except InvalidParameters as error:
        raise NotFound(str(error)) from None
