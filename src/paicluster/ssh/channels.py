"""Channels of an SSH connection: each is a session in the task, as that of `pai exec`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import asyncssh

from paicluster.engines.common.session_client import (
    RFC_SIGNALS,
    SIGNALS,
    STDERR,
    SessionClient,
    SessionEnd,
    SessionListener,
)
from paicluster.engines.common.session_host import SSH_TASK_VARIABLE, sftp_command, shell_command
from paiprotocol.errors import PaiError

# What sshd says for a signal that RFC 4254 does not name.
_OTHER_SIGNAL = "SIG@openssh.com"

# Exit status of `ssh` itself where the command was not run.
NO_SESSION = 255

# Variables that a client sets, by SendEnv or SetEnv; more are ignored.
_MAX_VARIABLES = 64
_MAX_VARIABLE_BYTES = 32 << 10
# The locale is that of the task: most clients send theirs, which the image may not have.
_OWN_VARIABLES = ("LANG", "LANGUAGE", "LC_", SSH_TASK_VARIABLE)
_DEFAULT_SIZE = (24, 80)
_MAX_EARLY_SIGNALS = 64

# With a terminal or not, and in which task, if the client names one.
OpenSession = Callable[[SessionListener, bool, str], Awaitable[SessionClient]]


class TaskChannel(asyncssh.SSHServerSession[bytes]):
    """A command, a shell or SFTP in the task."""

    def __init__(self, open_session: OpenSession, on_lost: Callable[[], None]) -> None:
        self._open_session = open_session
        self._on_lost = on_lost
        self._channel: asyncssh.SSHServerChannel[bytes]
        self._command: Sequence[str] = ()
        self._session: SessionClient | None = None
        self._opening: asyncio.Task[None] | None = None
        # What the client sent before there was a session.
        self._early_input = b""
        self._has_ended_input = False
        self._early_signals: list[str] = []
        self._is_lost = False

    # -- what the client asks for --------------------------------------------------------------

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: object) -> bool:
        return True

    def shell_requested(self) -> bool:
        return self._begin(())

    def exec_requested(self, command: str) -> bool:
        return self._begin(shell_command(command))

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == "sftp" and self._begin(sftp_command())

    def _begin(self, command: Sequence[str]) -> bool:
        self._command = command
        self._opening = asyncio.create_task(self._open())
        return True

    async def _open(self) -> None:
        term = self._channel.get_terminal_type()
        try:
            task = self._channel.get_environment().get(SSH_TASK_VARIABLE, "")
            session = await self._open_session(self, term is not None, task)
        except PaiError as error:
            self.session_ended(SessionEnd(error=str(error)))
            return
        if self._is_lost:
            session.close()
            return
        self._session = session
        session.start(self._with_variables(), None if term is None else (term, *self._size()))
        early, self._early_input = self._early_input, b""
        if early:
            session.send_input(early)
        if self._has_ended_input:
            session.end_input()
        for signal in self._early_signals:
            session.send_signal(signal)
        self._channel.resume_reading()

    def _with_variables(self) -> Sequence[str]:
        """The command, with the variables that the client has set."""
        sent = list(self._channel.get_environment().items())[:_MAX_VARIABLES]
        variables = [
            f"{name}={value}"
            for name, value in sent
            if name.isidentifier()
            and not name.startswith(_OWN_VARIABLES)
            and len(value) <= _MAX_VARIABLE_BYTES
            and "\0" not in value
        ]
        if not variables:
            return self._command
        # A shell starts in the way of `pai exec`, so it has to be named here.
        return ["env", *variables, *(self._command or shell_command("exec ${SHELL:-sh}"))]

    def _size(self) -> tuple[int, int]:
        columns, rows, *_ = self._channel.get_terminal_size()
        return (rows, columns) if rows and columns else _DEFAULT_SIZE

    # -- client to task ------------------------------------------------------------------------

    def data_received(self, data: bytes, datatype: object) -> None:
        if self._session is None:
            # More than this one piece waits in the client.
            self._early_input += data
            self._channel.pause_reading()
            return
        self._session.send_input(data)
        if self._session.is_full:
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        self._has_ended_input = True
        if self._session is not None:
            self._session.end_input()
        return True  # the output goes on

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        if self._session is not None and width and height:
            self._session.resize(height, width)

    def signal_received(self, signal: str) -> None:
        if signal not in SIGNALS:
            return
        if self._session is not None:
            self._session.send_signal(signal)
        elif len(self._early_signals) < _MAX_EARLY_SIGNALS:
            self._early_signals.append(signal)

    def break_received(self, msec: int) -> bool:
        return False

    # -- task to client ------------------------------------------------------------------------

    def output_received(self, stream: int, data: bytes) -> None:
        if stream == STDERR:
            self._channel.write_stderr(data)
        else:
            self._channel.write(data)

    def input_accepted(self) -> None:
        if self._session is not None and not self._session.is_full:
            self._channel.resume_reading()

    def session_ended(self, end: SessionEnd) -> None:
        self._session = None
        if self._channel.is_closing():
            return
        if end.error:
            self._channel.write_stderr(f"{end.error}\r\n".encode())
        if end.signal in RFC_SIGNALS:
            self._channel.exit_with_signal(end.signal)
        elif end.signal:
            self._channel.exit_with_signal(_OTHER_SIGNAL, msg=f"Ended by signal {end.signal}")
        else:
            self._channel.exit(NO_SESSION if end.status is None else end.status)

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.pause_output()

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.resume_output()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._on_lost()
        if self._session is not None:
            self._session.close()
            self._session = None


class PortChannel(asyncssh.SSHTCPSession[bytes]):
    """A connection with a port of the task, for `ssh -L`, `-D` and `-W`."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost
        self._port: asyncio.Transport
        self._channel: asyncssh.SSHTCPChannel[bytes] | None = None
        # What the port sent before the client's channel was open: many servers speak first.
        self._early_output = b""
        self._has_port_ended = False
        self._ended_directions = 0

    @classmethod
    async def connect(cls, stream: socket.socket, on_lost: Callable[[], None]) -> PortChannel:
        """A channel that has the other end of ``stream``."""
        session = cls(on_lost)
        await asyncio.get_running_loop().create_connection(lambda: _PortStream(session), sock=stream)
        return session

    # -- client to port ------------------------------------------------------------------------

    def connection_made(self, chan: asyncssh.SSHTCPChannel[bytes]) -> None:
        self._channel = chan
        early, self._early_output = self._early_output, b""
        if early:
            chan.write(early)
        if self._has_port_ended:
            chan.write_eof()
        if self._port.is_closing():
            chan.close()
        else:
            self._port.resume_reading()

    def data_received(self, data: bytes, datatype: object) -> None:
        self._port.write(data)

    def eof_received(self) -> bool:
        if not self._port.is_closing():
            self._port.write_eof()
        self._end_direction()
        return True  # the other direction goes on

    def pause_writing(self) -> None:
        if not self._port.is_closing():
            self._port.pause_reading()

    def resume_writing(self) -> None:
        if not self._port.is_closing():
            self._port.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel = None
        self._on_lost()
        self._port.abort() if exc is not None else self._port.close()

    # -- port to client ------------------------------------------------------------------------

    def port_connected(self, port: asyncio.Transport) -> None:
        self._port = port

    def port_output_received(self, data: bytes) -> None:
        if self._channel is not None:
            self._channel.write(data)
        else:
            self._early_output += data
            # More than this one piece waits in the task.
            self._port.pause_reading()

    def port_output_ended(self) -> None:
        self._has_port_ended = True
        if self._channel is not None:
            self._channel.write_eof()
        self._end_direction()

    def port_is_full(self, *, is_full: bool) -> None:
        if self._channel is not None:
            self._channel.pause_reading() if is_full else self._channel.resume_reading()

    def port_lost(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _end_direction(self) -> None:
        """One side has sent all; after both of them there is nothing left to wait for."""
        self._ended_directions += 1
        if self._ended_directions == 2:
            self._port.close()


class _PortStream(asyncio.Protocol):
    """The channel's end of a forwarded connection."""

    def __init__(self, session: PortChannel) -> None:
        self._session = session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._session.port_connected(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._session.port_output_received(data)

    def eof_received(self) -> bool:
        self._session.port_output_ended()
        return True  # the other direction goes on

    def pause_writing(self) -> None:
        self._session.port_is_full(is_full=True)

    def resume_writing(self) -> None:
        self._session.port_is_full(is_full=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.port_lost()
