"""Host of one session: runs a command in a task and connects its streams with a client's WebSocket.

A process of its own, started by the server for each session with the connection as its standard input. It
outlives the server where the connection is the client's own socket. The session ends with the command, or
with the connection: then everything that the command started is killed.
"""

import os
import select
import signal
import time

from pairuntime.session.remote_process import LOGIN_SHELL, Entrance, RemoteProcess, Terminal
from pairuntime.transport import session_messages, websocket

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs time
    from typing import Any

# A client must say what to run within this time.
_START_TIMEOUT_S = 30.0
# So that no proxy considers the connection idle.
_PING_INTERVAL_S = 20.0
# How often the host looks whether its task has ended.
_TASK_INTERVAL_S = 5.0
# The exit record of a task; the module that writes it takes longer to import than a command to start.
_EXIT_RECORD = "exit.json"
# Output that is waiting for the client, above which none is read from the command.
_MAX_PENDING_BYTES = 1 << 20
# Of all words of a command; the kernel allows 128 KB for one.
_MAX_COMMAND_BYTES = 512 << 10
_MAX_WINDOW = 10_000
# Output after the command's exit comes from what it left behind, which is killed then.
_DRAIN_TIMEOUT_S = 5.0
_READ_BYTES = session_messages.CHUNK_BYTES
_F_SETPIPE_SZ = 1031


class _Dropped(Exception):
    """The client closed the connection."""


def run(entrance: "Entrance", fd: "int" = 0) -> "int":
    # Without the module `socket`, whose import takes longer than most commands. Duplicated, so that the
    # command does not inherit it.
    connection = os.dup(fd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), fd)
    os.set_blocking(connection, False)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, _raise_dropped)
    host = Host(connection, entrance)
    try:
        host.serve()
    except _Dropped:
        pass
    finally:
        host.close()
    return 0


def _raise_dropped(signum: "int", frame: "object") -> "None":
    raise _Dropped


class Host:
    def __init__(self, connection: "int", entrance: "Entrance") -> "None":
        self._connection = connection
        self._entrance = entrance
        self._reader = websocket.MessageReader(masked=True)
        self._to_client = bytearray()
        self._process = None  # type: RemoteProcess | None
        self._to_stdin = bytearray()
        self._stdin_ends = False
        # Streams by the descriptor they are read from.
        self._outputs = {}  # type: dict[int, int]
        self._stdin = -1
        # The end of the output, while it may be the beginning of the command's announcement.
        self._held = b""
        self._wake_r, self._wake_w = os.pipe()
        self._has_ended = False
        self._next_ping = time.time() + _PING_INTERVAL_S
        self._next_look = time.time() + _TASK_INTERVAL_S

    # -- life ----------------------------------------------------------------------------------

    def serve(self) -> "None":
        """Serve the session to its end; raises _Dropped if the client is gone before."""
        started = time.time()
        try:
            while self._process is None and not self._has_ended:
                self._step()
                if self._process is None and time.time() > started + _START_TIMEOUT_S:
                    self._fail("No command was received in time.")
            if self._process is not None:
                self._finish(*self._wait())
            while self._to_client:
                self._step()
        except websocket.WebSocketError as e:
            self._to_client += websocket.close_frame(e.code, str(e))
            self._flush()
            raise _Dropped

    def _wait(self) -> "tuple[int, int]":
        """Serve until the command has exited and its output is sent; returns its exit status, and the signal
        that ended it, or 0."""
        assert self._process is not None
        end = None  # type: tuple[int, int] | None
        while end is None:
            self._step()
            end = self._end_of(self._process)
        self._process.end_leftovers()
        deadline = time.time() + _DRAIN_TIMEOUT_S
        while self._outputs and time.time() < deadline:
            self._step(_DRAIN_TIMEOUT_S)
            if self._to_client:
                # The client reads slowly: it gets everything.
                deadline = time.time() + _DRAIN_TIMEOUT_S
        return end

    def _end_of(self, process: "RemoteProcess") -> "tuple[int, int] | None":
        """Exit status and signal of the command; None while it runs. Reaps orphans, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if not pid:
                return None
            if pid == process.pid:
                return process.exited(status)

    def _finish(self, status: "int", signum: "int") -> "None":
        self._has_ended = True
        if signum:
            self._send(session_messages.EXIT, status=status, signal=_signal_name(signum))
        else:
            self._send(session_messages.EXIT, status=status)
        self._to_client += websocket.close_frame(websocket.NORMAL)

    def _fail(self, message: "str") -> "None":
        """Tell the client why there is no session, and end it."""
        self._has_ended = True
        self._send(session_messages.ERROR, message=message)
        self._to_client += websocket.close_frame(websocket.NORMAL)

    def close(self) -> "None":
        """Close the connection; if the command still runs, end it."""
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        os.close(self._connection)
        if self._process is not None and not self._has_ended:
            self._process.end()

    # -- one round of the loop -----------------------------------------------------------------

    def _step(self, timeout_s: "float" = _PING_INTERVAL_S) -> "None":
        """Wait for the next events, for this long at most, and handle them."""
        poll = select.poll()
        # Also where nothing is read or written, the end of the connection is noticed.
        wanted = select.POLLRDHUP | select.POLLIN
        poll.register(self._connection, wanted | (select.POLLOUT if self._to_client else 0))
        poll.register(self._wake_r, select.POLLIN)
        if len(self._to_client) < _MAX_PENDING_BYTES:
            for fd in self._outputs:
                poll.register(fd, select.POLLIN)
        if self._to_stdin and self._stdin >= 0:
            # A terminal is read and written through one descriptor.
            poll.register(
                self._stdin, select.POLLOUT | (select.POLLIN if self._stdin in self._outputs else 0)
            )
        timeout_s = max(0.0, min(min(self._next_ping, self._next_look) - time.time(), timeout_s))
        for fd, events in poll.poll(timeout_s * 1000):
            if fd == self._connection:
                self._on_connection(events)
            elif fd == self._wake_r:
                os.read(self._wake_r, 4096)
            else:
                if fd in self._outputs and events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    self._read_output(fd)
                if fd == self._stdin and events & (select.POLLOUT | select.POLLERR):
                    self._write_stdin()
        if time.time() >= self._next_ping:
            self._next_ping = time.time() + _PING_INTERVAL_S
            if not self._to_client:
                self._to_client += websocket.frame(websocket.PING, b"")
        if time.time() >= self._next_look:
            self._next_look = time.time() + _TASK_INTERVAL_S
            self._end_with_task()
        self._flush()

    def _end_with_task(self) -> "None":
        """Kill a command that ignored SIGTERM, as interactive shells do, when its task has ended.

        Without a cgroup the supervisor does not find it: it does not descend from the task.
        """
        folder = self._entrance.folder
        if self._process is not None and folder and os.path.exists(os.path.join(folder, _EXIT_RECORD)):
            self._process.send_signal(signal.SIGKILL)

    def _on_connection(self, events: "int") -> "None":
        if events & select.POLLIN:
            try:
                data = os.read(self._connection, _READ_BYTES)
            except BlockingIOError:
                data = None
            except OSError:
                raise _Dropped
            if data == b"":
                raise _Dropped
            if data:
                for opcode, payload in self._reader.feed(data):
                    self._on_message(opcode, payload)
        elif events & (select.POLLRDHUP | select.POLLHUP | select.POLLERR):
            raise _Dropped

    def _flush(self) -> "None":
        if not self._to_client:
            return
        try:
            sent = os.write(self._connection, self._to_client)
        except BlockingIOError:
            return
        except OSError:
            raise _Dropped
        del self._to_client[:sent]

    # -- messages ------------------------------------------------------------------------------

    def _send(self, kind: "str", **fields: "object") -> "None":
        self._to_client += websocket.frame(websocket.TEXT, session_messages.encode(kind, **fields))

    def _on_message(self, opcode: "int", payload: "bytes") -> "None":
        if opcode == websocket.CLOSE:
            raise _Dropped
        if opcode == websocket.PING:
            self._to_client += websocket.frame(websocket.PONG, payload)
        elif opcode == websocket.BINARY:
            self._on_data(payload)
        elif opcode == websocket.TEXT:
            self._on_control(session_messages.decode(payload))

    def _on_data(self, payload: "bytes") -> "None":
        if self._process is None and self._has_ended:
            return  # sent before the client knew that there is no command
        if self._process is None or payload[:1] != bytes((session_messages.STDIN,)):
            raise websocket.WebSocketError(websocket.PROTOCOL_ERROR, "data for a stream that is not open")
        if len(self._to_stdin) + len(payload) > session_messages.STDIN_WINDOW_BYTES + 1:
            raise websocket.WebSocketError(websocket.TOO_LARGE, "more input than was acknowledged")
        if self._stdin < 0:
            # The command reads no input: it is discarded.
            self._send(session_messages.ACK, bytes=len(payload) - 1)
            return
        self._to_stdin += payload[1:]
        self._write_stdin()

    def _on_control(self, message: "dict[str, Any]") -> "None":
        kind = message.get("type")
        if self._process is None:
            if self._has_ended:
                return
            if kind != session_messages.START:
                raise websocket.WebSocketError(websocket.PROTOCOL_ERROR, "the first message must be a start")
            self._start(message)
        elif kind == session_messages.RESIZE:
            size = _window_size(message)
            if size is not None:
                self._process.resize(*size)
        elif kind == session_messages.SIGNAL and message.get("name") in session_messages.SIGNALS:
            self._process.send_signal(getattr(signal, "SIG%s" % message["name"]))
        elif kind == session_messages.STDIN_END:
            self._stdin_ends = True
            self._write_stdin()

    def _start(self, message: "dict[str, Any]") -> "None":
        command = message.get("command") or list(LOGIN_SHELL)
        if not _is_command(command):
            self._fail("The command must be a list of at least one word, of at most 512 KB together.")
            return
        terminal = None
        if isinstance(message.get("terminal"), dict):
            rows, columns = _window_size(message["terminal"]) or (24, 80)
            term = message["terminal"].get("term")
            terminal = Terminal(term if _is_term(term) else "xterm", rows, columns)
        # Woken by the end of the command, also where its output stays open.
        os.set_blocking(self._wake_w, False)
        os.set_blocking(self._wake_r, False)
        signal.set_wakeup_fd(self._wake_w)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        session = os.urandom(12).hex()
        # For the child, until it is the command: signals of the client, which may have come already, are for
        # that. For this process, until it knows its child.
        blocked = [getattr(signal, "SIG%s" % name) for name in session_messages.SIGNALS]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            self._process = RemoteProcess(self._entrance, session, command, terminal)
        except FileNotFoundError:
            # Its cgroup and what describes its environment are gone; the server did not know yet.
            self._fail("The task has just ended, so no command can be run in it.")
            return
        except OSError as e:
            self._fail("The command could not be started: %s." % (e.strerror or e))
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._stdin = self._process.stdin
        self._outputs = {fd: stream for stream, fd in self._process.outputs.items()}
        for fd in {self._stdin, *self._outputs}:
            os.set_blocking(fd, False)
        if terminal is None:
            _enlarge_pipes(self._outputs)
        self._process.take_account()

    # -- streams -------------------------------------------------------------------------------

    def _read_output(self, fd: "int") -> "None":
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # the terminal has no process any more
            data = b""
        stream = self._outputs[fd]
        text = self._without_announcement(stream, data)
        if text:
            self._to_client += websocket.frame(websocket.BINARY, bytes((stream,)) + text)
        if data:
            return
        del self._outputs[fd]
        if fd == self._stdin:
            self._stdin = -1
        os.close(fd)

    def _without_announcement(self, stream: "int", data: "bytes") -> "bytes":
        """Output that the client gets: without the line with which the command announced itself."""
        assert self._process is not None
        word = self._process.announcement
        if not word or stream != max(self._process.outputs):
            return data
        held = self._held + data
        lines = word + b"\n", word + b"\r\n"  # the second one from a terminal
        for line in lines:
            before, found, after = held.partition(line)
            if found:
                self._held = b""
                self._process.begin()
                return before + after
        # What may be the beginning of the line waits for its rest; at the end of the output there is none.
        keep = max(_common_end(held, line) for line in lines) if data else 0
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def _write_stdin(self) -> "None":
        if self._stdin < 0:
            return
        sent = 0
        if self._to_stdin:
            try:
                sent = os.write(self._stdin, self._to_stdin[:_READ_BYTES])
            except BlockingIOError:
                return
            except OSError:  # the command does not read any more
                sent = len(self._to_stdin)
                self._stdin_ends = True
            del self._to_stdin[:sent]
            self._send(session_messages.ACK, bytes=sent)
        if self._stdin_ends and not self._to_stdin:
            if self._stdin in self._outputs:
                return  # a terminal: the user types the end of the input
            os.close(self._stdin)
            self._stdin = -1


def _common_end(data: "bytes", line: "bytes") -> "int":
    """How many bytes at the end of the data are the beginning of the line."""
    return next((size for size in range(len(line), 0, -1) if data.endswith(line[:size])), 0)


def _signal_name(signum: "int") -> "str":
    """Name of a signal, as `TERM`; the one of RFC 4254 where it has several."""
    names = [name[3:] for name in dir(signal) if name.startswith("SIG") and not name.startswith("SIG_")]
    aliases = [name for name in names if getattr(signal, "SIG" + name) == signum]
    if not aliases:
        return str(signum)
    return min(aliases, key=lambda name: (name not in session_messages.RFC_SIGNALS, name))


def _window_size(message: "dict[str, Any]") -> "tuple[int, int] | None":
    size = message.get("rows"), message.get("columns")
    if all(type(number) is int and 0 < number <= _MAX_WINDOW for number in size):
        return size  # type: ignore[return-value]
    return None


def _is_command(command: "object") -> "bool":
    return (
        isinstance(command, list)
        and all(isinstance(word, str) and "\0" not in word for word in command)
        and bool(command[0])
        and sum(len(word) for word in command) <= _MAX_COMMAND_BYTES
    )


def _is_term(term: "object") -> "bool":
    return isinstance(term, str) and 0 < len(term) <= 64 and term.replace("-", "").replace(".", "").isalnum()


def _enlarge_pipes(fds: "Any") -> "None":
    """Enlarge pipes: larger ones move more bytes per round."""
    import fcntl

    for fd in fds:
        try:
            fcntl.fcntl(fd, _F_SETPIPE_SZ, 1 << 20)
        except OSError:
            pass  # the account's limit of pipe memory is reached
